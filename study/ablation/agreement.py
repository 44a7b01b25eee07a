"""How often two subsets of terms predict the same."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64, Int64
from .predictions import NONE


def agreement_matrix(
    predicted: Int64[np.ndarray, "runs subsets items"],
) -> Float64[np.ndarray, "subsets subsets"]:
    """Share of items for which two subsets predict the same class, 0…1, mean over runs.

    With one class an item this share is the micro-averaged F1 of one's predictions against the
    other's, which is what Mickus et al. 2022 print, and also their accuracy. Only items for
    which both predict something count; NaN where there are none.
    """
    n_subsets = predicted.shape[1]
    shares = np.ones((n_subsets, n_subsets))
    for a in range(n_subsets):
        for b in range(a, n_subsets):
            shares[a, b] = shares[b, a] = agreement(predicted[:, a], predicted[:, b])
    return shares


def agreement(
    first: Int64[np.ndarray, "runs items"], second: Int64[np.ndarray, "runs items"]
) -> float:
    """Share of equal predictions among items with two, of the same run; NaN without any."""
    both = (first != NONE) & (second != NONE)
    if not both.any():
        return float("nan")
    return float(np.count_nonzero((first == second) & both) / np.count_nonzero(both))
