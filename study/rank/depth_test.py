"""Whether rank depends on depth, and whether by a law: two tests of the best of all laws.

Permutations of the layers: where ranks are exchangeable (each layer's is independent of its
neighbours'), every order is equally likely, whatever the ranks' distribution. That the statistic
is the best of many laws, and that few points fit many laws, holds for every permutation alike, so
the error rate is the one named (Fisher 1935; Phipson & Smyth 2010 for the p-value of sampled
permutations).

Random walks: ranks that drift from layer to layer are not exchangeable, and many drifts look like
a law. Under the second hypothesis the differences between neighbours are independent; the
statistic is how much closer the best law is to the ranks than each layer is to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, permutations

import numpy as np

from ...arrays import Float64, Int64
from .law_fit import Curve, LawFit, excess_variance
from .laws import CONSTANT, LAWS

EXACT_UP_TO = 6
"""Points of which every permutation is tried: 720."""
PERMUTATIONS = 999
WALKS = 999
FLAT = 1e-6
"""A law that changes by less than this share of itself over the points is a constant there."""
EPS = float(np.finfo(np.float64).eps)
SAME = 1e-7
"""Statistics closer than this are equal: ties between permutations must not depend on rounding."""


def depth_p_value(curve: Curve, significance: float) -> tuple[float, float]:
    """Share of the layers' permutations that follow some law as well as the curve does, and the
    statistic that a share as small as the significance has."""
    n = len(curve.ranks)
    orders = _orders(n)
    variances = curve.variances + excess_variance(CONSTANT, curve, ())
    weights = 1.0 / variances
    centred = curve.ranks - np.average(curve.ranks, weights=weights)
    statistics = _log_p_values(
        _explained(curve, weights[orders].T, (weights * centred)[orders].T),
        n,
        float(np.sum(weights * centred**2)),
        float(np.sum(weights * curve.variances)),
    )
    as_good = int(np.sum(statistics[1:] <= statistics[0] + SAME))
    critical = float(np.quantile(statistics, significance))
    return (as_good + 1) / len(orders), critical


def walk_p_value(
    curve: Curve,
    laws: Sequence[LawFit],
    excess: float,
    *,
    critical: float,
    least_r_squared: float,
) -> float:
    """Share of random walks over these layers that follow some law as well as the curve does.

    The walks have the curve's steps and its known errors. The statistic is the BIC of the best law
    less that of the walk. Only walks that pass the test by permutations, and with the least R²,
    follow a law at all.

    Args:
        laws: Fitted to the curve.
        excess: The variance beyond the known one under the law that was chosen.
    """
    n, known = len(curve.ranks), curve.variances
    weights = 1.0 / (known + excess)
    gaps, of_pairs = np.diff(curve.layers), known[1:] + known[:-1]
    step = max(0.0, float(np.mean((np.diff(curve.ranks) ** 2 - of_pairs) / gaps)))
    rng = np.random.default_rng(n)
    steps = rng.normal(size=(WALKS, n - 1)) * np.sqrt(step * gaps)
    walks = np.cumsum(np.insert(steps, 0, 0.0, axis=1), axis=1)
    walks += rng.normal(size=walks.shape) * np.sqrt(known)

    def difference(
        left: Float64[np.ndarray, " paths"], paths: Float64[np.ndarray, "paths depth"], size: int
    ) -> Float64[np.ndarray, " paths"]:
        stepped = np.diff(paths, axis=1) ** 2 @ (1.0 / (of_pairs + step * gaps))
        of_law = np.maximum(left, EPS * stepped)
        bic: Float64[np.ndarray, " paths"] = n * np.log(of_law / stepped) + size * np.log(n)
        return bic

    own = curve.ranks[None]
    wanted = min(
        float(difference(weights @ law.residuals[:, None] ** 2, own, len(law.parameters))[0])
        for law in laws
    )
    centred = walks.T - np.average(walks.T, axis=0, weights=weights)  # (depth, paths)
    total = weights @ centred**2
    explained = list(_explained(curve, weights[:, None], weights[:, None] * centred))
    best = np.min([difference(total - gain, walks, size) for size, gain in explained], axis=0)
    depends = _log_p_values(explained, n, total) <= critical + SAME
    follows = depends & (explained[-1][1] >= least_r_squared * total)
    return float(np.sum(follows & (best <= wanted + SAME)) + 1) / (WALKS + 1)


def _log_p_values(
    explained: Iterable[tuple[int, Float64[np.ndarray, " orders"]]],
    n: int,
    total: float | Float64[np.ndarray, " orders"],
    known: float = 0.0,
) -> Float64[np.ndarray, " orders"]:
    """The smallest ln p of an F-test against the constant, over laws by number of parameters.

    Args:
        explained: The part of `total` that laws of so many parameters explain, by their number.
        total: Σ weight · (rank − weighted mean)².
        known: The part of `total` that the known errors make.
    """
    from scipy.special import fdtrc

    best = np.array(0.0)
    for n_parameters, gain in explained:
        gain = np.minimum(gain, total)
        least = np.maximum(known / n, EPS * total)
        left = np.maximum((total - gain) / (n - n_parameters), least)
        p_values = fdtrc(n_parameters - 1, n - n_parameters, gain / (n_parameters - 1) / left)
        best = np.minimum(best, np.log(np.maximum(p_values, np.finfo(np.float64).tiny)))
    return best


def _explained(
    curve: Curve,
    weights: Float64[np.ndarray, "depth weightings"],
    moments: Float64[np.ndarray, "depth orders"],
) -> Iterator[tuple[int, Float64[np.ndarray, " orders"]]]:
    """What the best law of up to so many parameters takes off Σ weight · (rank − mean)².

    Args:
        moments: weight · (rank − weighted mean), in the order of `weights`.
    """
    gain = np.zeros(moments.shape[1])
    laws = [law for law in LAWS[1:] if law.fewest_points <= len(curve.ranks)]
    for n_parameters, same_size in groupby(laws, key=lambda law: len(law.parameters)):
        for law in same_size:
            columns = _varied(law.columns(curve.layers, curve.n_layers))
            spread = columns**2 @ weights - (columns @ weights) ** 2 / weights.sum(axis=0)
            explained = (columns @ moments) ** 2 / spread
            gain = np.maximum(gain, explained.max(axis=0, initial=0.0))
        yield n_parameters, gain


def _varied(
    columns: Float64[np.ndarray, "shapes depth"],
) -> Float64[np.ndarray, "some_shapes depth"]:
    """The columns that change over these points, centred, of size 1."""
    largest = np.abs(columns).max(axis=1, keepdims=True)
    relative = columns / np.where(largest > 0, largest, 1.0)
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
