"""Whether rank depends on depth at all: a test by permutations of the layers.

Under the hypothesis of no dependence every order of the layers is equally likely, whatever the
ranks' distribution. The statistic is the best of all laws; that it is the best of many, and that
few points fit many laws, holds for every permutation alike, so the error rate is the one named
(Fisher 1935; Phipson & Smyth 2010 for the p-value of sampled permutations).
"""

from __future__ import annotations

from functools import cache
from itertools import groupby, permutations

import numpy as np

from ...arrays import Float64, Int64
from .law_fit import Curve, excess_variance
from .laws import CONSTANT, LAWS

EXACT_UP_TO = 6
"""Points of which every permutation is tried: 720."""
PERMUTATIONS = 999
FLAT = 1e-6
"""A law that changes by less than this share of itself over the points is a constant there."""
SAME = 1e-7
"""Statistics closer than this are equal: ties between permutations must not depend on rounding."""


def depth_p_value(curve: Curve) -> float:
    """Share of the layers' permutations that follow some law as well as the curve does."""
    n = len(curve.ranks)
    orders = _orders(n)
    variances = curve.variances + excess_variance(CONSTANT, curve, ())
    weights = 1.0 / variances
    centred = curve.ranks - np.average(curve.ranks, weights=weights)
    statistics = _log_p_values(
        curve,
        weights[orders].T,
        (weights * centred)[orders].T,
        float(np.sum(weights * centred**2)),
        float(np.sum(weights * curve.variances)),
    )
    as_good = int(np.sum(statistics[1:] <= statistics[0] + SAME))
    return (as_good + 1) / len(orders)


def _log_p_values(
    curve: Curve,
    weights: Float64[np.ndarray, "depth orders"],
    moments: Float64[np.ndarray, "depth orders"],
    total: float,
    known: float,
) -> Float64[np.ndarray, " orders"]:
    """The smallest ln p of an F-test against the constant, over laws by number of parameters.

    Args:
        moments: weight · (rank − weighted mean), in the order of `weights`.
        total: Σ weight · (rank − weighted mean)².
        known: The part of `total` that the known errors make.
    """
    from scipy.special import fdtrc

    n = len(curve.ranks)
    best = np.zeros(weights.shape[1])
    gain = np.zeros(weights.shape[1])
    sum_of_weights = weights.sum(axis=0)
    laws = [law for law in LAWS[1:] if law.fewest_points <= n]
    for n_parameters, same_size in groupby(laws, key=lambda law: len(law.parameters)):
        for law in same_size:
            columns = _varied(law.columns(curve.layers, curve.n_layers))
            spread = columns**2 @ weights - (columns @ weights) ** 2 / sum_of_weights
            explained = (columns @ moments) ** 2 / spread
            gain = np.maximum(gain, explained.max(axis=0, initial=0.0))
        gain = np.minimum(gain, total)
        left = np.maximum((total - gain) / (n - n_parameters), known / n)
        p_values = fdtrc(n_parameters - 1, n - n_parameters, gain / (n_parameters - 1) / left)
        best = np.minimum(best, np.log(np.maximum(p_values, np.finfo(np.float64).tiny)))
    return best


def _varied(
    columns: Float64[np.ndarray, "shapes depth"],
) -> Float64[np.ndarray, "some_shapes depth"]:
    """The columns that change over these points, centred, of size 1."""
    relative = columns / np.abs(columns).max(axis=1, keepdims=True)
    relative -= relative.mean(axis=1, keepdims=True)
    size = np.abs(relative).max(axis=1, keepdims=True)
    varied = size[:, 0] > FLAT
    chosen: Float64[np.ndarray, "some_shapes depth"] = relative[varied] / size[varied]
    return chosen


@cache
def _orders(n: int) -> Int64[np.ndarray, "orders depth"]:
    """Permutations of n layers, the identity first; all of them where they are few."""
    if n <= EXACT_UP_TO:
        return np.array(list(permutations(range(n))), dtype=np.int64)
    rng = np.random.default_rng(n)
    drawn = [rng.permutation(n) for _ in range(PERMUTATIONS)]
    return np.stack([np.arange(n), *drawn]).astype(np.int64)
