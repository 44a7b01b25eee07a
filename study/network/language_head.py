"""Models with the head that their checkpoint ships: for the logit lens, ablations and losses."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import nn
from transformers.utils.generic import ModelOutput

from ...arrays import Float, Float32
from ...errors import StudyError
from ...results import count
from . import model_loading
from .anatomy import require_supported
from .hidden_states import TextBatch
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

OwnHead = Literal["next", "masked", "translated"]
"""What a head was trained to predict: the next token, masked tokens, or another text."""

KINDS: dict[OwnHead, str] = {
    "next": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "translated": "AutoModelForSeq2SeqLM",
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

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
        # by its tensors: `dense` is also a matrix of BERT's head, and a target may be a pattern
        parts = {part for tensor in tensors_of_adapter(source) for part in tensor.split(".")}
        parts |= set(adapter.get("modules_to_save") or ())
        changed = [part for part in OWN_HEADS if part in parts]
        if changed:
            raise StudyError(f"{network.name}: the adapter changes its base's head ({changed[0]})")
        source = base or ""
    with refusing(network.name), quiet():
        model, _, lost = _load_whole(source, predicts)
    if lost:
        raise StudyError(f"{network.name}: ships no language head ({lost[0]} is missing)")
    return head_alone(model).to(network.device).eval()


def _load_whole(
    source: str, kind: OwnHead, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, list[str], list[str]]:
    """A model with a head, and the names of all weights, and of the head's, that its files lack."""
    model, missing = load_as(getattr(transformers, KINDS[kind]), source, dtype)
    lost = [key for key in missing if not key.startswith(f"{model.base_model_prefix}.")]
    return model, missing, lost


def _has_mask(tokenizer: Any) -> bool:
    return getattr(tokenizer, "mask_token_id", None) is not None


OTHER_HEAD = re.compile(r"For(?!CausalLM)\w+$")
"""Names of classes with a head of another task, such as `GPT2ForSequenceClassification`."""
WORST_ERROR = 1e-3
"""Difference from the model's own logits, relative to their size, above which it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalModel:
    """A causal language model in evaluation mode: without head, as transformers runs it, and the
    same with a backbone that returns the states that it is given; they share their weights."""

    network: Network
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
        fits = found.shape == own[read].shape
        if not (fits and (found - own[read]).norm() / own[read].norm() <= WORST_ERROR):
            raise refusal


def load_causal(
    source: str, *, name: str | None = None, base: str | None = None, device: str = "cpu"
) -> CausalModel:
    """The model at a folder or Hub id with its head, in float32; an adapter is merged.

    Raises:
        StudyError: it is not causal, was saved without its head, or cannot be loaded.
    """
    name = name or source
    with refusing(name), quiet():
        adapter, base = adapter_of(source, base)
        if adapter:
            task = adapter.get("task_type")
            if task not in (None, "CAUSAL_LM"):
                raise StudyError(f"{name}: an adapter for {task} has no language-model head")
            with refusing(f"{name}: its base {base} (--base FOLDER says where it is)"):
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
    whole, missing, lost = _load_whole(source, "next")
    if missing:
        what = "its head: it was saved without" if lost else missing[0]
        raise StudyError(f"{name}: no weights for {what} ({count(len(missing), 'tensor')} missing)")
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskModel:
    """A model in evaluation mode, none of whose weights collects a gradient.

    Attributes:
        whole: With its own head where the checkpoint ships one.
        head: What the checkpoint's head predicts; None without one.
        missing_head: The kind of head that the architecture has and the checkpoint lacks.
        has_pooler: Whether a pooler was loaded: a matrix over the first token's state, which heads
            of classes read.
    """

    name: str
    whole: nn.Module
    tokenizer: Any
    head: OwnHead | None
    missing_head: OwnHead | None = None
    has_pooler: bool = False

    def __post_init__(self) -> None:
        self.whole.eval().requires_grad_(False)

    @property
    def backbone(self) -> nn.Module:
        inner = getattr(self.whole, str(getattr(self.whole, "base_model_prefix", "")), None)
        return inner if isinstance(inner, nn.Module) else self.whole

    @property
    def config(self) -> Any:
        return self.whole.config

    @property
    def device(self) -> torch.device:
        return next(self.whole.parameters()).device

    @property
    def window(self) -> int | None:
        return model_loading.window_of(self.whole, self.tokenizer)


def load_task_model(
    source: str, *, device: str = "cpu", dtype: str = "float32", labelled: bool = False
) -> TaskModel:
    """The model at a folder or Hub id, with its own head where the checkpoint has it.

    Args:
        dtype: `float32` or `bfloat16`, of the weights in memory.
        labelled: Of an encoder the part that heads of classes are put on, and not its own head.

    Raises:
        StudyError: it is an adapter, has no tokenizer, or cannot be loaded.
    """
    tokenizer = load_tokenizer(source)
    with refusing(source), quiet():
        config = transformers.AutoConfig.from_pretrained(source)
        kind = kind_of_head(config, tokenizer)
        if labelled and kind == "masked":
            kind = None
        head, missing = None, list[str]()
        if kind is not None:
            model, missing, lost = _load_whole(source, kind, DTYPES[dtype])
            head = None if lost else kind
        if head is None:
            model, missing = load_as(transformers.AutoModel, source, DTYPES[dtype])
        model_loading.require_whole(source, missing)
        pooler = None if head else getattr(model, "pooler", None)
    return TaskModel(
        name=source,
        whole=model.to(device),
        tokenizer=tokenizer,
        head=head,
        missing_head=None if head else kind,
        has_pooler=pooler is not None and not any("pooler" in key for key in missing),
    )


def load_tokenizer(source: str) -> Any:
    """The tokenizer of a model at a folder or Hub id; a `StudyError` for an adapter, or where no
    tokenizer knows a word."""
    if Path(source).is_absolute() and not Path(source).is_dir():
        raise StudyError(f"{source}: no such folder, and a data set needs the weights of the base")
    with refusing(source), quiet():
        if model_loading.file_of(source, "adapter_config.json"):
            raise StudyError(f"{source} is an adapter: name the base that it was trained on")
        config_file = model_loading.file_of(source, "config.json")
        if config_file is None and Path(source).is_dir():
            raise StudyError(f"{source}: no config.json: it is no folder of transformers")
        if config_file is None:
            raise StudyError(
                f"{source}: a data set needs the weights of the base; they are neither in a folder "
                "nor in the Hub's cache, and the Hub does not give them: download them first"
            )
        json.loads(config_file.read_text("utf-8"))
        tokenizer = model_loading.first_tokenizer(source)
    if tokenizer is None:
        raise StudyError(f"{source}: has no tokenizer, so that it cannot read texts")
    return tokenizer


def predicts_next_token(source: str, tokenizer: Any) -> bool:
    """Whether a model's architecture is one of causal language models, by its configuration."""
    with refusing(source), quiet():
        config = transformers.AutoConfig.from_pretrained(source)
    return kind_of_head(config, tokenizer) == "next"


def kind_of_head(config: Any, tokenizer: Any) -> OwnHead | None:
    """What models of this architecture predict; None where no language head is known."""
    if getattr(config, "is_encoder_decoder", False):
        known = type(config) in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
        return "translated" if known else None
    return tokens_predicted(config, tokenizer)
