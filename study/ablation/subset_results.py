"""What a measure finds for one subset of terms, and who keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ...arrays import Int64
from .term_subsets import Subset


@dataclass(frozen=True, slots=True)
class SubsetResult:
    """The predictions of one subset of terms.

    Attributes:
        predicted: Class codes; `NONE` where there is none.
        learning_rate: That was chosen; None for a measure without training.
    """

    predicted: Int64[np.ndarray, "runs items"] = field(compare=False)
    learning_rate: float | None = None


Make: TypeAlias = Callable[[], SubsetResult]

Keep: TypeAlias = Callable[[str, str, Make], SubsetResult]
"""Gives the result of (a measure's key, a subset's label): what it kept, or else what it makes."""


def keep_nothing(measure: str, subset: str, make: Make) -> SubsetResult:
    """The result, made now."""
    return make()


def chosen_rates(
    subsets: Sequence[Subset], results: Sequence[SubsetResult]
) -> dict[str, dict[str, float]]:
    """The learning rate of each subset that was trained, for JSON; nothing without training."""
    rates = {
        subset.label: result.learning_rate
        for subset, result in zip(subsets, results, strict=True)
        if result.learning_rate is not None
    }
    return {"chosen_learning_rates": rates} if rates else {}
