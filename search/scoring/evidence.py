"""What a score proves: the share of such answers that are expected to be wrong, and a verdict.

z counts standard deviations above a family's strangers, but strangers are no normal sample: data
sets are alike. Their tail is taken as exponential, P(z or more) = ½ exp(−z / rate). The rate is
measured on labelled pairs of different data sets where there are enough; else it is
`UNCALIBRATED`, which holds in the families of docs/scores.md without having been fitted to any one
of them. From these p-values the false discovery rate of a list of neighbours follows by Benjamini,
Hochberg 1995: a query whose data no model saw gets an answer below 5 % in 5 % of cases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...arrays import Bool, Float64

Verdict = Literal["copy", "likely the same data", "perhaps", "no model stands out"]

COPY_COSINE = 0.95
"""Plain cosine from which a model is a copy: rounded, mirrored, or trained a few steps on."""

LIKELY, PERHAPS = 0.01, 0.05
"""False discovery rates up to which a neighbour is likely of the same data, or perhaps."""

UNCALIBRATED = 1.0
"""Rate without labels: in z."""

LEAST_RATE = 0.75
"""Rate that no labels lower: models without a sibling, which labelled ones are not, have a smaller
spread and a larger z. At 0.5 up to 32 % of them stood out in made families, at 0.75 up to 2 %."""

FEWEST_DATASETS = 5
"""Data sets with siblings from which labelled pairs calibrate."""

FEWEST_QUERIES = 20
"""Labelled models, likewise."""

CONTROLLED = 0.05
"""Share of queries whose nearest stranger may stand out; the rate is measured there."""

SMALL_FAMILY = 2.0
"""Models by which the scale of strangers is widened: few models know it badly."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How heavy the tail of a family's strangers is.

    Attributes:
        rate: In z.
        source: What it was measured on.
        datasets: With siblings, among the labelled models.
        queries: Labelled models that were used.
    """

    rate: float
    source: Literal["labelled pairs", "the null alone"]
    datasets: int
    queries: int

    def fdr(
        self, z: Float64[np.ndarray, " neighbours"], n_candidates: int
    ) -> Float64[np.ndarray, " neighbours"]:
        """The false discovery rate of each neighbour, nearest first, 0…1.

        Args:
            z: Of the nearest, falling.
            n_candidates: All that were compared, these among them.
        """
        ranks = np.arange(1, len(z) + 1)
        expected = n_candidates * tail(z, self.rate) / ranks
        smallest: Float64[np.ndarray, " neighbours"] = np.minimum.accumulate(expected[::-1])[::-1]
        return np.asarray(np.minimum(smallest, 1.0))


def tail(z: Float64[np.ndarray, "*shape"], rate: float) -> Float64[np.ndarray, "*shape"]:
    """Probability that a stranger has at least this z."""
    above = 0.5 * np.exp(-np.abs(z) / rate)
    probabilities: Float64[np.ndarray, "*shape"] = np.where(z >= 0, above, 1.0 - above)
    return probabilities


def calibrate(
    z: Float64[np.ndarray, "models models"],
    labels: Sequence[str | None],
    may_answer: Bool[np.ndarray, "models models"],
    n_family: int,
) -> Calibration:
    """The tail of a family, from the labelled ones of some of its models.

    Each labelled model is asked for its nearest of another data set; every data set counts
    alike. The rate is the one at which `CONTROLLED` of these would stand out.

    Args:
        may_answer: Pairs that count: not a model with itself or its copies.
        n_family: Models of the family; few widen the rate.
    """
    widening = 1.0 + SMALL_FAMILY / max(1, n_family)
    sizes = Counter(label for label in labels if label is not None)
    datasets = sum(size > 1 for size in sizes.values())
    is_labelled = np.array([label is not None for label in labels], dtype=np.bool_)
    names = np.array([label or "" for label in labels])
    rates, weights = [], []
    for row in np.flatnonzero(is_labelled):
        strangers = may_answer[row] & is_labelled & (names != names[row])
        if strangers.any():
            nearest = float(z[row, strangers].max())
            rates.append(nearest / math.log(strangers.sum() / (2 * CONTROLLED)))
            weights.append(1.0 / sizes[str(names[row])])
    if datasets < FEWEST_DATASETS or len(rates) < FEWEST_QUERIES:
        return Calibration(UNCALIBRATED * widening, "the null alone", datasets, len(rates))
    rate = _weighted_quantile(np.array(rates), np.array(weights), 1 - CONTROLLED)
    return Calibration(max(rate, LEAST_RATE) * widening, "labelled pairs", datasets, len(rates))


def verdict(cosine: float, fdr: float) -> Verdict:
    """The evidence in words."""
    if cosine >= COPY_COSINE:
        return "copy"
    if fdr <= LIKELY:
        return "likely the same data"
    return "perhaps" if fdr <= PERHAPS else "no model stands out"


def _weighted_quantile(
    values: Float64[np.ndarray, " values"], weights: Float64[np.ndarray, " values"], share: float
) -> float:
    """The value below which a share of the weight is, between two by interpolation."""
    order = np.argsort(values, kind="stable")
    middles = (weights[order].cumsum() - weights[order] / 2) / weights.sum()
    return float(np.interp(share, middles, values[order]))
