"""Adapters of PEFT, merged into the class of model that they were trained around.

PEFT names an adapter's tensors by the modules of the model that it wrapped, the backbone's prefix
included, and only warns of tensors that it finds no module for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from ...errors import StudyError

MODEL_CLASSES = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}
"""By the task type of an adapter, the class with the modules that it names."""

CLASSES_WITH_HEAD = (
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
)
"""PEFT has no task type for masked language models; whose head it is changes no hidden state."""

WRAPPED = "base_model.model."
IN_A_BLOCK = re.compile(r"\.\d+\.")


def class_of_adapter(source: str, base: str, task: str) -> Any:
    """The class of transformers whose modules have the names of the adapter's tensors."""
    if task in MODEL_CLASSES:
        return getattr(transformers, MODEL_CLASSES[task])
    config = transformers.AutoConfig.from_pretrained(base)
    headed: Any = (getattr(transformers, name) for name in CLASSES_WITH_HEAD)
    tensors = tensors_of_adapter(source)
    for kind in headed:
        if type(config) in kind._model_mapping:
            prefix = kind._model_mapping[type(config)].base_model_prefix
            if any(name.startswith(f"{WRAPPED}{prefix}.") for name in tensors):
                return kind
    return transformers.AutoModel


def tensors_of_adapter(source: str) -> dict[str, torch.Tensor]:
    """An adapter's tensors, by the names that PEFT saved them under."""
    tensors: dict[str, torch.Tensor] = _peft(source).load_peft_weights(source, device="cpu")
    return tensors


def merge_adapter(plain: nn.Module, source: str) -> nn.Module:
    """A base's model with an adapter added to its weights.

    Raises:
        StudyError: no PEFT, or tensors for the blocks of another class of model.
    """
    adapted = _peft(source).PeftModel.from_pretrained(plain, source)
    placed = adapted.load_adapter(source, adapted.active_adapter)
    # a head's may be missing: the hidden states do not depend on it
    lost = [
        key for key in (*placed.missing_keys, *placed.unexpected_keys) if IN_A_BLOCK.search(key)
    ]
    if lost:
        raise StudyError(
            f"{Path(source).name}: the adapter does not fit {type(plain).__name__} "
            f"({len(lost)} tensors without their place, such as {lost[0]})"
        )
    merged: nn.Module = adapted.merge_and_unload()
    return merged


def _peft(source: str) -> Any:
    try:
        import peft
    except ModuleNotFoundError as err:
        raise StudyError(
            f"{source} is an adapter: its study needs peft, pip install 'deltadex[studies]'"
        ) from err
    return peft
