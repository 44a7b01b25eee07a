"""Kept data sets as names for unlabelled models, beside the datasets of labelled models.

A model is named after the kept data set that it is nearest to, where that set stands out among
the kept sets, by a false discovery rate over these. These answers are a list of their own: over it,
the models' p-values give a false discovery rate (Benjamini, Hochberg 1995). A model takes the
answer of the list with the smaller rate, and twice that rate: of the union of two lists that are
each wrong at most α/2 of the time, at most α is wrong (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...arrays import Bool, Float64
from ..kept_data import KeptData
from ..scoring.evidence import PERHAPS, tail

Source = Literal["labelled models", "kept data"]

LISTS = 2
"""Lists of answers whose rates add up where data sets are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """A name for each unlabelled model.

    Attributes:
        rates: Of false discoveries, among all answers with at least this evidence.
        of_labels: The same for the answers of labelled models alone, as they count here.
        from_data: Whether a kept data set gave the name.
    """

    names: tuple[str, ...]
    rates: Float64[np.ndarray, " models"] = field(compare=False)
    of_labels: Float64[np.ndarray, " models"] = field(compare=False)
    from_data: Bool[np.ndarray, " models"] = field(compare=False)

    def source(self, row: int) -> Source:
        return "kept data" if self.from_data[row] else "labelled models"


def combine_answers(
    names: Sequence[str], rates: Float64[np.ndarray, " models"], kept: KeptData | None
) -> Offers:
    """The better of two answers for each model; of equal ones, that of labelled models.

    Args:
        names, rates: What labelled models answer.
        kept: The same models beside the kept data sets; None where none is kept.
    """
    if kept is None:
        nothing = np.zeros(len(names), dtype=np.bool_)
        return Offers(names=tuple(names), rates=rates, of_labels=rates, from_data=nothing)
    of_data = kept_rates(kept)
    nearest = [kept.sets[place].name for place in kept.z.argmax(axis=0).tolist()]
    is_data = of_data < rates
    return Offers(
        names=tuple(np.where(is_data, np.array(nearest, object), np.array(names, object))),
        rates=np.minimum(LISTS * np.minimum(rates, of_data), 1.0),
        of_labels=np.minimum(LISTS * rates, 1.0),
        from_data=is_data,
    )


def kept_rates(kept: KeptData) -> Float64[np.ndarray, " models"]:
    """The false discovery rate of each model's nearest kept data set, in the list of all models.

    1 where no set stands out. p of a model combines the sets (Simes 1986); the rate is no smaller
    than the share of wrong answers that the family's labelled pairs show at this z.
    """
    n_sets, n_models = kept.z.shape
    falling = -np.sort(-kept.z, axis=0)
    ranks = np.arange(1, n_sets + 1)[:, None]
    expected = n_sets * tail(falling, kept.calibration.rate) / ranks
    p = np.minimum(expected.min(axis=0), 1.0)
    measured = kept.calibration.measured(falling[0])
    found = np.flatnonzero(np.maximum(p, measured) <= PERHAPS)
    order = found[np.argsort(p[found], kind="stable")]
    wrong = n_models * p[order] / np.arange(1, len(order) + 1)
    rates = np.ones(n_models)
    rates[order] = np.minimum(np.minimum.accumulate(wrong[::-1])[::-1], 1.0)
    floored: Float64[np.ndarray, " models"] = np.maximum(rates, measured)
    return floored
