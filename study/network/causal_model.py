"""Causal language models with their own head: logits from any layer's state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from ...arrays import Float
from ...errors import StudyError
from ...results import count
from . import model_loading
from .anatomy import require_supported
from .hidden_states import TextBatch
from .language_head import head_alone, head_logits

OTHER_HEAD = re.compile(r"For(?!CausalLM)\w+$")
"""Names of classes with a head of another task, such as `GPT2ForSequenceClassification`."""
WORST_ERROR = 1e-3
"""Difference from the model's own logits, relative to their size, above which it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalModel:
    """A causal language model in evaluation mode: without head, as transformers runs it, and the
    same with a backbone that returns the states that it is given; they share their weights."""

    network: model_loading.Network
    whole: nn.Module
    head: nn.Module

    def logits(
        self, states: Float[torch.Tensor, "tokens dim"]
    ) -> Float[torch.Tensor, "tokens vocabulary"]:
        """Final norm and head over states of any layer: the model's own code caps and scales."""
        norm = self.network.stacks[0].final_norm
        return head_logits(self.head, states if norm is None else norm(states))

    def check(self, batch: TextBatch, last: Float[torch.Tensor, "texts tokens dim"]) -> None:
        refusal = StudyError(
            f"{self.network.name}: its head is more than a final norm and a matrix "
            f"({type(self.whole).__name__}); the logit lens cannot read its layers"
        )
        own = self.whole(**batch.inputs(self.network)).logits.float()
        if not own.isfinite().all():  # of a broken model, which is another refusal
            return
        read = batch.mask.bool()
        try:
            found = self.logits(last[read])
        except RuntimeError as err:  # of another width, where the model projects it first
            raise refusal from err
        if found.shape != own[read].shape:
            raise refusal
        if not (found - own[read]).norm() / own[read].norm() <= WORST_ERROR:
            raise refusal


def load_causal(
    source: str, *, name: str | None = None, base: str | None = None, device: str = "cpu"
) -> CausalModel:
    """The model at a folder or Hub id with its head, in float32; an adapter is merged.

    Raises:
        StudyError: it is not causal, was saved without its head, or cannot be loaded.
    """
    name = name or source
    with model_loading.refusing(name), model_loading.quiet():
        adapter, base = model_loading.adapter_of(source, base)
        if adapter:
            task = adapter.get("task_type")
            if task not in (None, "CAUSAL_LM"):
                raise StudyError(f"{name}: an adapter for {task} has no language-model head")
            with model_loading.refusing(
                f"{name}: its base {base} (--base FOLDER says where it is)"
            ):
                whole = model_loading.merge_adapter(_with_head(base or "", name), source)
        else:
            whole = _with_head(source, name)
        tokenizer = model_loading.first_tokenizer(source, base)
    return as_causal(name, whole.to(device), tokenizer)


def as_causal(name: str, whole: nn.Module, tokenizer: Any) -> CausalModel:
    whole = whole.eval().requires_grad_(False)
    network = model_loading.as_network(
        name, whole.get_submodule(str(whole.base_model_prefix)), tokenizer
    )
    return CausalModel(network=network, whole=whole, head=head_alone(whole))


def _with_head(source: str, name: str) -> nn.Module:
    config = transformers.AutoConfig.from_pretrained(source)
    # encoders are in the causal mapping as well
    reads_both_ways = type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING or getattr(
        config, "is_encoder_decoder", False
    )
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or reads_both_ways:
        raise StudyError(
            f"{name}: {config.model_type} is no causal language model; "
            "the logit lens reads models that predict the next token"
        )
    require_supported(config, name)
    other = [kind for kind in config.architectures or () if OTHER_HEAD.search(kind)]
    if other:
        raise StudyError(f"{name}: saved as {other[0]}, without a language-model head")
    whole, missing = model_loading.load_as(transformers.AutoModelForCausalLM, source)
    if missing:
        heads = [key for key in missing if not key.startswith(f"{whole.base_model_prefix}.")]
        what = "its head: it was saved without" if heads else missing[0]
        raise StudyError(f"{name}: no weights for {what} ({count(len(missing), 'tensor')} missing)")
    with_head: nn.Module = whole
    return with_head
