"""The head with which a checkpoint predicts tokens, applied to any vectors of the stream."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
import transformers
from torch import nn
from transformers.utils.generic import ModelOutput

from ...arrays import Float, Float32
from ...errors import StudyError
from .model_loading import Network, adapter_of, load_as, quiet, refusing, tensors_of_adapter


def head_alone(whole: nn.Module) -> nn.Module:
    """The model around a backbone that returns the states that it is given."""
    head = copy.copy(whole)
    backbone = str(whole.base_model_prefix)
    head.__dict__["_modules"] = {**whole._modules, backbone: _GivenStates()}
    return head


@torch.no_grad()
def head_logits(
    head: nn.Module, states: Float[torch.Tensor, "tokens dim"]
) -> Float32[torch.Tensor, "tokens vocabulary"]:
    """What the head makes of the states, as if they were the backbone's output."""
    logits: torch.Tensor = head(inputs_embeds=states[None]).logits[0]
    return logits.float()


class _GivenStates(nn.Module):
    """A backbone whose last states are the embeddings that it is given."""

    @property
    def decoder(self) -> _GivenStates:
        """OPT's head asks the decoder of its backbone."""
        return self

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> _GivenOutput:
        return _GivenOutput(last_hidden_state=inputs_embeds)


@dataclass
class _GivenOutput(ModelOutput):
    last_hidden_state: torch.Tensor | None = None
    past_key_values: None = None
    hidden_states: None = None
    attentions: None = None
    cross_attentions: None = None
    router_logits: None = None


Prediction = Literal["masked", "next"]
"""What a network was trained to predict: masked tokens, or the next one."""

OWN_HEADS = (
    "lm_head",
    "embed_out",
    "cls",
    "predictions",
    "lm_predictions",
    "generator_predictions",
    "generator_lm_head",
    "vocab_transform",
    "vocab_projector",
    "embed_tokens",
    "word_embeddings",
    "wte",
)
"""Modules of a head or tied to one; an adapter that changes them has another head than its base."""


def prediction_of(network: Network) -> Prediction | None:
    """What the network predicts; None where that is neither masked tokens nor the next one.

    Of an encoder-decoder the encoder counts, which reads masked texts where there is a mask.
    """
    if network.config.is_encoder_decoder:
        return "masked" if _has_mask(network.tokenizer) else None
    return tokens_predicted(network.config, network.tokenizer)


def tokens_predicted(config: Any, tokenizer: Any) -> Prediction | None:
    """The same of an encoder's or a decoder's architecture."""
    masked = type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING
    if masked and not getattr(config, "is_decoder", False):
        return "masked" if _has_mask(tokenizer) else None
    return "next" if type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING else None


def load_head(source: str, network: Network, *, base: str | None = None) -> nn.Module:
    """The head of the checkpoint that `network` was loaded from, as `head_alone` makes it; of an
    adapter that of its base.

    Raises:
        StudyError: it ships none.
    """
    predicts = prediction_of(network)
    if predicts is None or network.config.is_encoder_decoder:
        raise StudyError(f"{network.name}: no language head reads its first stream")
    adapter, base = adapter_of(source, base)
    if adapter:
        changed = _parts_of_a_head(source, adapter)
        if changed:
            raise StudyError(f"{network.name}: the adapter changes its base's head ({changed[0]})")
        source = base or ""
    masked = predicts == "masked"
    kind = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    with refusing(network.name), quiet():
        model, lacking = load_as(kind, source)
    missing = [key for key in lacking if not key.startswith(f"{model.base_model_prefix}.")]
    if missing:
        raise StudyError(f"{network.name}: ships no language head ({missing[0]} is missing)")
    return head_alone(model).to(network.device).eval()


def _parts_of_a_head(source: str, adapter: dict[str, Any]) -> list[str]:
    """The parts of a head that an adapter changes, by its tensors: a target of `dense` is also a
    matrix of BERT's head, and targets may be a regular expression."""
    changed = {part for name in tensors_of_adapter(source) for part in name.split(".")}
    changed |= set(adapter.get("modules_to_save") or ())
    return [name for name in OWN_HEADS if name in changed]


def _has_mask(tokenizer: Any) -> bool:
    return getattr(tokenizer, "mask_token_id", None) is not None
