"""One slot's weight update ΔW, (out, in), in whichever form costs least."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DenseDelta:
    """ΔW as a float32 matrix of shape (out, in), and its norm where it was measured already."""

    matrix: torch.Tensor
    measured_norm: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def norm(self) -> float:
        """|ΔW|, Frobenius."""
        if self.measured_norm is not None:
            return self.measured_norm
        return float(torch.linalg.vector_norm(self.matrix))


@dataclass(frozen=True, slots=True)
class LowRankDelta:
    """ΔW = left @ right: float32, (out, r) and (r, in), every scale included."""

    left: torch.Tensor
    right: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.left.shape[0], self.right.shape[1]

    @property
    def norm(self) -> float:
        """|ΔW|, Frobenius, from the two r × r Gram matrices in float64."""
        left, right = self.left.double(), self.right.double()
        square = ((left.T @ left) * (right @ right.T)).sum()
        return float(square.clamp(min=0.0).sqrt())


Delta = DenseDelta | LowRankDelta
