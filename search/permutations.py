"""A permutation test of the difference of two means, for many rows of numbers at once."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from ..arrays import Float64

MOST_SPLITS = 20_000
"""Splits that are enumerated; 8 and 8 values have 12,870. Of more, `DRAWN_SPLITS` are drawn."""

DRAWN_SPLITS = 9_999

ROUNDING = 1e-9
"""Of the largest value: sums that are equal but for rounding count as equal."""


def permutation_p(
    first: Float64[np.ndarray, "first columns"],
    second: Float64[np.ndarray, "second columns"],
    *,
    seed: int = 0,
) -> Float64[np.ndarray, " columns"]:
    """Two-sided p of the difference of means in each column, rows of both exchanged.

    Of all splits, or of a sample in which the one that was found counts (Phipson, Smyth 2010).
    """
    values = np.concatenate([first, second])
    chosen = _splits(len(values), len(first), seed)
    scores = values - values.mean(axis=0)
    # sums of the first part alone order splits as differences of the means do
    sums = np.abs(chosen @ scores)
    found = np.abs(scores[: len(first)].sum(axis=0))
    tolerance = ROUNDING * np.abs(scores).max(axis=0) * len(values)
    extreme = (sums >= found - tolerance).sum(axis=0)
    is_drawn = comb(len(values), len(first)) > MOST_SPLITS
    p: Float64[np.ndarray, " columns"] = (extreme + is_drawn) / (len(chosen) + is_drawn)
    return p


@lru_cache(maxsize=4)
def _splits(n: int, n_chosen: int, seed: int) -> Float64[np.ndarray, "splits n"]:
    """Which rows are in the first part, a row a split: all of them, or a sample."""
    if comb(n, n_chosen) <= MOST_SPLITS:
        places = np.array(list(combinations(range(n), n_chosen)))
    else:
        rng = np.random.default_rng(seed)
        places = rng.permuted(np.tile(np.arange(n), (DRAWN_SPLITS, 1)), axis=1)[:, :n_chosen]
    chosen = np.zeros((len(places), n))
    np.put_along_axis(chosen, places, 1.0, axis=1)
    chosen.flags.writeable = False
    return chosen
