"""Where a stored tensor belongs: which slot, which part of it, which rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...records import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One slot's matrix, or one part of it, inside a stored tensor.

    Attributes:
        slot: The position it fills.
        part: "" for the usual single matrix; else names the piece ("expert.3",
            "shared", "q_a", …): parts of one slot are blocks of one update.
        module: Canonical name without prefix, as in the base's own file.
        tensor: The stored tensor's full name in the checkpoint at hand.
        index: Leading index where experts are stacked in one tensor.
        transposed: Stored in × out (GPT-2's Conv1D, gpt_oss experts).
        rows: Output rows (after transposing) that belong here; None = all.
        shape: (out, in) of the resulting matrix.
    """

    slot: Slot
    part: str
    module: str
    tensor: str
    index: int | None = None
    transposed: bool = False
    rows: slice | tuple[int, ...] | None = None
    shape: tuple[int, int]

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """This placement's (out, in) matrix as a view where possible, dtype kept."""
        matrix = tensor if self.index is None else tensor[self.index]
        if self.transposed:
            matrix = matrix.T
        return self.cut_rows(matrix)

    def cut_rows(self, matrix: torch.Tensor) -> torch.Tensor:
        """The rows of an (out, …) matrix that belong here: a fused ΔW, or its left factor."""
        if self.rows is None:
            return matrix
        if isinstance(self.rows, slice):
            return matrix[self.rows]
        return matrix[torch.tensor(self.rows)]
