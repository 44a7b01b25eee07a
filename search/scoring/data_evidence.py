"""What the score of a data set with a model proves.

Labels of models do not calibrate it as they do pairs of models: how near models of two data sets
are says little of gradients. But the labels of the models that stand out must agree: a neighbour's
false discovery rate is at least the share of labelled models, as near as it or nearer, that have
another label. docs/find-trained-on.md has what this changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...arrays import Float64
from .evidence import RATE, SMALL_FAMILY, Calibration


def null_calibration(n_models: int) -> Calibration:
    """The tail of a family's strangers alone; few models widen it."""
    return Calibration(RATE * (1.0 + SMALL_FAMILY / max(1, n_models)), "the null alone", 0, 0)


def with_labels(
    rates: Float64[np.ndarray, " neighbours"], labels: Sequence[str | None]
) -> Float64[np.ndarray, " neighbours"]:
    """The rates of neighbours, nearest first, raised where their labels disagree.

    Args:
        labels: Of the same neighbours, or of more; None without.
    """
    raised: Float64[np.ndarray, " neighbours"] = rates.copy()
    nearer: Counter[str] = Counter()
    for place, label in enumerate(labels[: len(rates)]):
        if label is not None:
            nearer[label] += 1
            raised[place] = max(raised[place], 1.0 - nearer[label] / nearer.total())
    return raised
