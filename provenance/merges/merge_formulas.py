"""mergekit's formulas, over the updates of the parents.

Formulas: `linear.py`, `slerp.py`, `generalized_task_arithmetic.py` and `sparsify.py` of mergekit
0.1.5. Weights are those of its config files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

Method = Literal["linear", "slerp", "task_arithmetic", "ties", "dare_linear", "dare_ties"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One of mergekit's generalised task arithmetic. `elects`: entries against the majority's sign
    are left out; `normalises`: divides by the weights that count."""

    elects: bool = False
    normalises: bool = False


TASK_ARITHMETIC, TIES = Formula(), Formula(elects=True, normalises=True)

SLERP_LINEAR = 0.9995
"""Cosine of two tensors beyond which mergekit interpolates linearly."""


def combine(parts: torch.Tensor, weights: torch.Tensor, formula: Formula) -> torch.Tensor:
    """ΔW of a merge: parts (parents, …), trimmed or dropped already, weights (parents, …)."""
    weighted = parts * weights
    if not formula.elects:
        merged = weighted.sum(0)
        divisor = weights.sum(0)
        divisor = torch.where(divisor.abs() < 1e-8, 1.0, divisor)
    else:
        majority = (weighted.sum(0) >= 0) * 2.0 - 1.0
        counts = weighted.sign() == majority
        merged = (weighted * counts).sum(0)
        divisor = (weights * counts).sum(0)
        divisor = torch.where(divisor == 0, 1.0, divisor)
    return merged / divisor if formula.normalises else merged


def slerp_weights(t: float, cosine: float) -> tuple[float, float]:
    """What mergekit's SLERP multiplies both models by, whose weights have this cosine."""
    if abs(cosine) > SLERP_LINEAR:
        return 1 - t, t
    theta = float(np.arccos(cosine))
    return float(np.sin((1 - t) * theta) / np.sin(theta)), float(np.sin(t * theta) / np.sin(theta))
