"""Models with the head that their checkpoint ships, for losses and gradients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import nn

from ...errors import StudyError
from . import model_loading
from .language_head import tokens_predicted

OwnHead = Literal["next", "masked", "translated"]
"""What a head was trained to predict: the next token, masked tokens, or another text."""

KINDS: dict[OwnHead, str] = {
    "next": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "translated": "AutoModelForSeq2SeqLM",
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


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
    with model_loading.refusing(source), model_loading.quiet():
        config = transformers.AutoConfig.from_pretrained(source)
        kind = kind_of_head(config, tokenizer)
        if labelled and kind == "masked":
            kind = None
        model, has_head, has_pooler = _load(source, kind, DTYPES[dtype])
    return TaskModel(
        name=source,
        whole=model.to(device),
        tokenizer=tokenizer,
        head=kind if has_head else None,
        missing_head=None if has_head else kind,
        has_pooler=has_pooler,
    )


def load_tokenizer(source: str) -> Any:
    """The tokenizer of a model at a folder or Hub id; a `StudyError` for an adapter, or where no
    tokenizer knows a word."""
    if Path(source).is_absolute() and not Path(source).is_dir():
        raise StudyError(f"{source}: no such folder, and a data set needs the weights of the base")
    with model_loading.refusing(source), model_loading.quiet():
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
    with model_loading.refusing(source), model_loading.quiet():
        config = transformers.AutoConfig.from_pretrained(source)
    return kind_of_head(config, tokenizer) == "next"


def kind_of_head(config: Any, tokenizer: Any) -> OwnHead | None:
    """What models of this architecture predict; None where no language head is known."""
    if getattr(config, "is_encoder_decoder", False):
        known = type(config) in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
        return "translated" if known else None
    return tokens_predicted(config, tokenizer)


def _load(source: str, kind: OwnHead | None, dtype: torch.dtype) -> tuple[nn.Module, bool, bool]:
    """(model, whether it has its head, a pooler); the head where its weights are all there."""
    if kind is not None:
        model, missing = model_loading.load_as(getattr(transformers, KINDS[kind]), source, dtype)
        prefix = f"{model.base_model_prefix}."
        if all(key.startswith(prefix) for key in missing):
            model_loading.require_whole(source, missing)
            return model, True, False
    model, missing = model_loading.load_as(transformers.AutoModel, source, dtype)
    model_loading.require_whole(source, missing)
    pooler = getattr(model, "pooler", None) is not None
    return model, False, pooler and not any("pooler" in key for key in missing)
