"""The power law of a tail: exponent, where the tail begins, and whether it is one at all.

Clauset, Shalizi & Newman 2009: the density above x_min is (α − 1)/x_min · (x/x_min)^−α, α is its
maximum-likelihood estimate (eq. 3.1), x_min the value whose tail has the smallest
Kolmogorov-Smirnov distance to its own power law (3.3), and a power law is implausible where few
draws from it are as far from their own fits (4.1). Martin & Mahoney 2021 fit it to the
eigenvalues of WᵀW.
"""

from __future__ import annotations

import numpy as np

from ...arrays import Float64, Int64
from .spectrum_report import PowerLaw

Values = Float64[np.ndarray, " values"]

CELLS_AT_ONCE = 1 << 16
"""Distances that are in memory at once."""
TRIED_IN_DRAWS = 200
"""Beginnings of a tail that are tried for a p-value, in the data and in draws alike."""


def fit_power_law(values: Values, *, draws: int = 0, seed: int = 0) -> PowerLaw | None:
    """The power law of the values' tail; None where fewer than three of them differ.

    Args:
        values: Positive.
        draws: Of the test whether a power law is plausible; without any, no p-value.
    """
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError("values must be finite and positive")
    ascending = np.sort(values)
    starts = _starts(ascending)
    if len(starts) < 2:
        return None
    start, alpha, distance = _nearest(ascending, starts)
    n_tail = len(ascending) - start
    return PowerLaw(
        alpha=alpha,
        standard_error=(alpha - 1.0) / n_tail**0.5,
        x_min=float(ascending[start]),
        distance=distance,
        n_tail=n_tail,
        p_value=_p_value(ascending, start, alpha, draws, seed) if draws else None,
    )


def _starts(ascending: Values) -> Int64[np.ndarray, " starts"]:
    """Where tails may begin: at each value once, but not at the largest."""
    return np.unique(ascending, return_index=True)[1][:-1].astype(np.int64)


def _nearest(ascending: Values, starts: Int64[np.ndarray, " starts"]) -> tuple[int, float, float]:
    """(start, α, distance) of the tail that is nearest to its power law.

    The empirical distribution is counted below each value, i/n, as in the authors' programs.
    """
    n = len(ascending)
    logs = np.log(ascending / ascending[0])
    sizes = n - starts
    sums = np.cumsum(logs[::-1])[::-1][starts] - sizes * logs[starts]
    exponents = sizes / sums  # α − 1
    distances = np.empty(len(starts))
    at_once = max(1, CELLS_AT_ONCE // n)
    for first in range(0, len(starts), at_once):
        some = slice(first, first + at_once)
        begin = int(starts[some][0])
        above = np.maximum(logs[begin:] - logs[starts[some], None], 0.0)  # (starts, values)
        below = np.arange(begin, n) - starts[some, None]
        gap = np.abs(below / sizes[some, None] + np.expm1(-exponents[some, None] * above))
        distances[some] = np.where(below >= 0, gap, 0.0).max(axis=1)
    best = int(np.argmin(distances))
    return int(starts[best]), 1.0 + float(exponents[best]), float(distances[best])


def _p_value(ascending: Values, start: int, alpha: float, draws: int, seed: int) -> float:
    """Share of draws that are at least as far from their own power law.

    A draw has as many values: each is from the fitted tail with the tail's share as probability,
    otherwise one of the values below the tail.
    """
    n = len(ascending)
    observed = _nearest(ascending, _thinned(_starts(ascending)))[2]
    rng = np.random.default_rng(seed)
    body, x_min = ascending[:start], ascending[start]
    as_far = 0
    for _ in range(draws):
        in_tail = n if start == 0 else int(rng.binomial(n, (n - start) / n))
        tail = x_min * (1.0 - rng.random(in_tail)) ** (-1.0 / (alpha - 1.0))
        drawn = np.sort(np.concatenate([tail, rng.choice(body, n - in_tail)]) if start else tail)
        starts = _thinned(_starts(drawn))
        as_far += len(starts) < 1 or _nearest(drawn, starts)[2] >= observed
    return as_far / draws


def _thinned(starts: Int64[np.ndarray, " starts"]) -> Int64[np.ndarray, " some_starts"]:
    """Evenly many of them, so that a draw costs the same whatever the matrix's size."""
    if len(starts) <= TRIED_IN_DRAWS:
        return starts
    chosen = np.linspace(0, len(starts) - 1, TRIED_IN_DRAWS).round().astype(np.int64)
    return starts[chosen]
