"""One slot's weight update ΔW, (out, in), in whichever form costs least."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DenseDelta:
    """ΔW as a float32 matrix of shape (out, in)."""

    matrix: torch.Tensor

    @property
    def norm(self) -> float:
        """|ΔW|, Frobenius."""
        return float(torch.linalg.vector_norm(self.matrix))


@dataclass(frozen=True, slots=True)
class LowRankDelta:
    """ΔW = left @ right: float32, (out, r) and (r, in), every scale included."""

    left: torch.Tensor
    right: torch.Tensor

    @property
    def norm(self) -> float:
        """|ΔW|, Frobenius, from the two r × r Gram matrices in float64."""
        left, right = self.left.double(), self.right.double()
        square = ((left.T @ left) * (right @ right.T)).sum()
        return float(square.clamp(min=0.0).sqrt())


Delta = DenseDelta | LowRankDelta
