"""What a score proves: false discovery rates, verdicts, and what they are calibrated on.

Strangers' tail is taken as exponential, P(z or more) = ½ exp(−z / `RATE`); from these
probabilities the false discovery rate of a list of neighbours follows by Benjamini, Hochberg 1995.
Labels can only make an answer more careful: of that rate, the share of labelled pairs with at least
this z that are of different data sets, and the share of models whose nearest of another data set
has it, the largest counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..store import FamilyView

Numbers = Float64[np.ndarray, " models"]
Square = Float64[np.ndarray, "models models"]

Verdict = Literal["copy", "likely the same data", "perhaps", "no model stands out"]

COPY_COSINE = 0.95
"""Plain cosine from which a model is a copy: rounded, mirrored, or trained a few steps on."""

LIKELY, PERHAPS = 0.01, 0.05
"""False discovery rates up to which a neighbour is likely of the same data, or perhaps."""

RATE = 1.1
"""Of the exponential tail of strangers, in z."""

SMALL_FAMILY = 2.0
"""Models by which the rate is widened: few models know the scale of strangers badly."""

UNSEEN = 1.0
"""Data sets beside the labelled ones whose nearest stranger is as near as any that was seen."""

BEYOND = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
FEWEST_QUERIES = 8
"""Labelled models with a labelled stranger from which labels are used."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What false discovery rates are computed from: the rate of the tail of strangers and, where
    `queries` labelled models know more, the measured share of wrong answers from each level of z
    on."""

    rate: float
    source: Literal["labelled pairs", "the null alone"]
    datasets: int
    queries: int
    levels: Float64[np.ndarray, " levels"] = field(default_factory=lambda: np.zeros(0))
    shares: Float64[np.ndarray, " levels"] = field(default_factory=lambda: np.zeros(0))

    def fdr(self, z: Numbers, n_candidates: int, cosines: Numbers | None = None) -> Numbers:
        """The false discovery rate of each neighbour, 0…1, of `n_candidates` that were compared, by
        falling z.

        Copies of the query, of which their cosines tell, are no discoveries and count in no other's
        rate: a stored query has the rates of the same model that is read from its files.
        """
        is_copy = np.zeros(len(z), np.bool_) if cosines is None else cosines >= COPY_COSINE
        ranks = np.maximum(np.cumsum(~is_copy), 1)
        expected = (n_candidates - is_copy.sum()) * tail(z, self.rate) / ranks
        from_null = np.minimum.accumulate(expected[::-1])[::-1]
        rates: Numbers = np.maximum(from_null, self.measured(z))
        np.minimum(rates, 1.0, out=rates)
        return rates

    def measured(self, z: Numbers) -> Numbers:
        """The measured share of wrong answers with at least this z; 0 above all strangers."""
        places = np.searchsorted(self.levels, z, side="right") - 1
        shares = np.append(self.shares, self.shares[0] if len(self.shares) else 0.0)
        return np.asarray(shares[places])

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("rate", "source", "datasets", "queries")}


def tail(z: Float64[np.ndarray, "*shape"], rate: float) -> Float64[np.ndarray, "*shape"]:
    """Probability that a stranger has at least this z."""
    above = 0.5 * np.exp(-np.abs(z) / rate)
    return np.asarray(np.where(z >= 0, above, 1.0 - above))


def calibrate(
    z: Square,
    labels: Sequence[str | None],
    may_answer: Bool[np.ndarray, "models models"],
    n_family: int,
) -> Calibration:
    """What the labels of some of a family's `n_family` models say about its strangers; `may_answer`
    are the pairs that count: not a model with itself or its copies."""
    rate = RATE * (1.0 + SMALL_FAMILY / max(1, n_family))
    names = np.array([label or "" for label in labels], dtype=object)
    sizes = Counter(name for name in names.tolist() if name)
    datasets = sum(size > 1 for size in sizes.values())
    among = may_answer & (names != "")[:, None] & (names != "")[None, :]
    same = names[:, None] == names[None, :]
    strangers, siblings = among & ~same, among & same
    queries = np.flatnonzero(strangers.any(axis=1))
    if len(queries) < FEWEST_QUERIES:
        return Calibration(rate, "the null alone", datasets, len(queries))
    weights = np.array([1.0 / sizes[name] if name else 0.0 for name in names.tolist()])
    nearest = np.array([z[row, strangers[row]].max() for row in queries.tolist()])
    levels = np.append(np.sort(nearest), nearest.max() + BEYOND)
    unseen = UNSEEN * np.exp(-np.maximum(levels - nearest.max(), 0.0) / rate)
    above = _weight_above(nearest, weights[queries], levels)
    by_query = (above + unseen) / (weights[queries].sum() + UNSEEN)
    answerable = strangers & siblings.any(axis=1)[:, None]
    wrong = _weight_above(z[answerable], _of_pairs(weights, answerable), levels)
    right = _weight_above(z[siblings], _of_pairs(weights, siblings), levels)
    by_pair = np.divide(wrong, wrong + right, out=np.zeros(len(levels)), where=wrong > 0)
    shares = np.minimum.accumulate(np.maximum(by_query, by_pair))
    return Calibration(rate, "labelled pairs", datasets, len(queries), levels, shares)


def _of_pairs(
    weights: Numbers, pairs: Bool[np.ndarray, "models models"]
) -> Float64[np.ndarray, " pairs"]:
    return np.asarray(np.broadcast_to(weights[:, None], pairs.shape)[pairs])


def _weight_above(
    values: Float64[np.ndarray, " values"],
    weights: Float64[np.ndarray, " values"],
    levels: Float64[np.ndarray, " levels"],
) -> Float64[np.ndarray, " levels"]:
    """The weight of the values that reach each level."""
    order = np.argsort(values, kind="stable")
    sums = np.append(0.0, weights[order].cumsum())
    return np.asarray(sums[-1] - sums[np.searchsorted(values[order], levels)])


def verdict(cosine: float, fdr: float) -> Verdict:
    if cosine >= COPY_COSINE:
        return "copy"
    if fdr <= LIKELY:
        return "likely the same data"
    return "perhaps" if fdr <= PERHAPS else "no model stands out"


class LabelledCohort:
    def __init__(
        self,
        rows: Int64[np.ndarray, " cohort"],
        z: Float64[np.ndarray, "cohort cohort"],
        are_strangers: Bool[np.ndarray, "cohort cohort"],
    ) -> None:
        self.rows, self.z, self.are_strangers = rows, z, are_strangers
        self._last: tuple[str, tuple[str | None, ...], Calibration] | None = None

    def calibration(self, view: FamilyView) -> Calibration:
        """By the labels as of now; computed again where one of them changed."""
        last = self._last
        if last is not None and last[0] == view.changes and view.is_current:
            return last[2]
        listed = self.rows.tolist()
        labels = view.labels_at(listed)
        names = tuple(labels[row].dataset if row in labels else None for row in listed)
        if last is not None and last[1] == names:
            calibration = last[2]
        else:
            calibration = calibrate(self.z, names, self.are_strangers, len(view))
        if view.is_current:
            self._last = view.changes, names, calibration
        return calibration
