"""How heavy the tail of a family's strangers is: measured on labelled models, for suggestions.

A suggestion is tested against models of known data sets, so that labels may lower the rate of the
tail as well as raise it; whatever is wrong then shows in the held-out models.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from ...arrays import Bool, Float64
from ..scoring.evidence import SMALL_FAMILY

UNCALIBRATED = 1.0
"""Rate without labels: in z."""

LEAST_RATE = 0.75
"""Rate that no labels lower: models without a sibling, which labelled ones are not, have a smaller
spread and a larger z. At 0.5 up to 32 % of them stood out in made families, at 0.75 up to 2 %."""

FEWEST_DATASETS = 5
"""Data sets with siblings from which labelled pairs decide."""

FEWEST_QUERIES = 20
"""Labelled models, likewise."""

CONTROLLED = 0.05
"""Share of queries whose nearest stranger may stand out; the rate is measured there."""


@dataclass(frozen=True, slots=True)
class StrangerTail:
    """P(z or more) = ½ exp(−z / rate).

    Attributes:
        source: What the rate was measured on.
        datasets: With siblings, among the labelled models.
        queries: Labelled models that were used.
    """

    rate: float
    source: Literal["labelled pairs", "the null alone"]
    datasets: int
    queries: int

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def measure_tail(
    z: Float64[np.ndarray, "models models"],
    labels: Sequence[str],
    may_answer: Bool[np.ndarray, "models models"],
    n_family: int,
) -> StrangerTail:
    """The tail at which `CONTROLLED` of the labelled models' nearest strangers would stand out.

    Every data set counts alike.

    Args:
        may_answer: Pairs that count: not a model with itself or its copies.
        n_family: Models of the family; few widen the rate.
    """
    widening = 1.0 + SMALL_FAMILY / max(1, n_family)
    sizes, names = Counter(labels), np.array(labels)
    datasets = sum(size > 1 for size in sizes.values())
    rates, weights = [], []
    for row, name in enumerate(labels):
        strangers = may_answer[row] & (names != name)
        if strangers.any():
            nearest = float(z[row, strangers].max())
            rates.append(nearest / math.log(strangers.sum() / (2 * CONTROLLED)))
            weights.append(1.0 / sizes[name])
    if datasets < FEWEST_DATASETS or len(rates) < FEWEST_QUERIES:
        return StrangerTail(UNCALIBRATED * widening, "the null alone", datasets, len(rates))
    rate = _weighted_quantile(np.array(rates), np.array(weights), 1 - CONTROLLED)
    return StrangerTail(max(rate, LEAST_RATE) * widening, "labelled pairs", datasets, len(rates))


def _weighted_quantile(
    values: Float64[np.ndarray, " values"], weights: Float64[np.ndarray, " values"], share: float
) -> float:
    """The value below which a share of the weight is, between two by interpolation."""
    order = np.argsort(values, kind="stable")
    middles = (weights[order].cumsum() - weights[order] / 2) / weights.sum()
    return float(np.interp(share, middles, values[order]))
