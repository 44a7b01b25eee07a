"""What every loss has, and how its examples become batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from ...arrays import Int64
from ...records import LossName
from ...study.network import TaskModel
from ..examples.example import Example

IGNORED = -100
"""Target of a token that does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedExample:
    """One example as token ids.

    Attributes:
        ids: What the model reads.
        types: Of each token, the text of a pair that it belongs to; empty where models do not ask.
        targets: What is predicted: of each token, or the other text's tokens.
        value: The place of its class, or a number of a regression.
    """

    ids: Sequence[int]
    types: Sequence[int] = ()
    targets: Sequence[int] = ()
    value: float = 0.0


@runtime_checkable
class Loss(Protocol):
    """A loss over examples of a model."""

    @property
    def name(self) -> LossName:
        """What users call it."""

    @property
    def needs_dropout(self) -> bool:
        """Whether the model runs with dropout, as in training."""

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """The examples as token ids; without those that have nothing to predict."""

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int) -> None:
        """Fit what the loss needs and the checkpoint lacks, on the frozen base."""

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        """The sum of the loss over all that is predicted in a batch, and how many these are."""


def padded(
    rows: Sequence[Sequence[int]], padding: int, device: torch.device
) -> Int64[torch.Tensor, "texts tokens"]:
    """Rows of unequal length, padded on the right."""
    width = max(len(row) for row in rows)
    numbers = [[*row, *[padding] * (width - len(row))] for row in rows]
    return torch.tensor(numbers, dtype=torch.int64, device=device)


def inputs_of(model: TaskModel, batch: Sequence[EncodedExample]) -> dict[str, Any]:
    """The arguments of the model for a batch."""
    rows = [example.ids for example in batch]
    inputs: dict[str, Any] = {
        "input_ids": padded(rows, padding_of(model), model.device),
        "attention_mask": padded([[1] * len(row) for row in rows], 0, model.device),
    }
    if any(example.types for example in batch):
        inputs["token_type_ids"] = padded([example.types for example in batch], 0, model.device)
    if hasattr(model.config, "use_cache"):
        inputs["use_cache"] = False
    return inputs


def padding_of(model: TaskModel) -> int:
    """The id that fills rows; its tokens are masked, so that any will do where none is set."""
    for owner in (model.tokenizer, model.config):
        padding = getattr(owner, "pad_token_id", None)
        if isinstance(padding, int) and padding >= 0:
            return padding
    return 0


def tokens_of(
    model: TaskModel, example: Example, max_tokens: int
) -> tuple[list[int], list[int], list[int]]:
    """(ids, types, 1 for special tokens) of an example's text, or pair of texts."""
    encoding = model.tokenizer(
        example.text,
        example.pair or None,
        truncation=True,
        max_length=limit_of(model, max_tokens),
        return_special_tokens_mask=True,
    )
    types = encoding.get("token_type_ids") or [] if example.pair else []
    return list(encoding["input_ids"]), list(types), list(encoding["special_tokens_mask"])


def limit_of(model: TaskModel, max_tokens: int) -> int:
    """The most tokens of a text that are read."""
    return min(max_tokens, model.window or max_tokens)
