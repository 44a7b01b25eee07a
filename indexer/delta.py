"""One slot's weight update ΔW, (out, in), in whichever form costs least."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class DenseDelta:
    """ΔW as a float32 matrix of shape (out, in)."""

    matrix: torch.Tensor


@dataclass(frozen=True, slots=True)
class LowRankDelta:
    """ΔW = left @ right: float32, (out, r) and (r, in), every scale included."""

    left: torch.Tensor
    right: torch.Tensor


Delta = DenseDelta | LowRankDelta
