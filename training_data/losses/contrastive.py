"""A loss without labels, for encoders without a head: each text against the others of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...records import LossName
from ...study.network import TaskModel
from ..examples.example import Example
from .loss import EncodedExample, tokens_of
from .pooled_states import pooled_states

TEMPERATURE = 0.05
"""Of the cosines, as in SimCSE (Gao, Yao, Chen 2021)."""


@dataclass(frozen=True, slots=True)
class ContrastiveLoss:
    """Cross-entropy of finding a text's second reading, under other dropout, in its batch.

    Unsupervised SimCSE (Gao, Yao, Chen 2021, section 3).
    """

    model: TaskModel
    max_tokens: int
    name: LossName = "contrastive"
    needs_dropout: bool = True

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Every text."""
        encoded = []
        for example in examples:
            ids, types, _ = tokens_of(self.model, example, self.max_tokens)
            encoded.append(EncodedExample(ids=ids, types=types))
        return encoded

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int) -> None:
        """Nothing is fitted."""

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        """The sum over texts, and how many."""
        states = pooled_states(self.model, [*batch, *batch]).float()
        unit = torch.nn.functional.normalize(states, dim=1)
        cosines = unit[: len(batch)] @ unit[len(batch) :].T / TEMPERATURE
        own = torch.arange(len(batch), device=cosines.device)
        return torch.nn.functional.cross_entropy(cosines, own, reduction="sum"), len(batch)
