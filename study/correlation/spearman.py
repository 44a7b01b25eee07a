"""Spearman's rank correlation with an interval and a permutation test, for several columns."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...arrays import Float64
from ..report_json import JsonRecord

FEWEST = 5
"""With fewer pairs no order is surprising: of 4, one in 12 has |ρ| = 1 by chance."""

LONGEST_EXACT = 7
"""Up to so many pairs every permutation is tried: 5,040."""

PERMUTATIONS = 9_999
NORMAL_QUANTILE = 1.959963984540054
"""Of a 95 % interval."""

SIGNIFICANT = 0.05
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation(JsonRecord):
    """Spearman's ρ of a measure and a column.

    Attributes:
        n: Pairs.
        rho: −1…1, with mean ranks for ties; None where one side is constant, or with fewer than
            two pairs.
        low, high: A 95 % interval: Fisher's z with the standard error of Bonett & Wright 2000.
            None with fewer than five pairs.
        p_value: Two-sided, by permutation: all of them up to seven pairs, else 9,999 at random.
        p_holm: The same for as many columns (Holm 1979).
        verdict: One line.
    """

    column: str
    n: int
    rho: float | None
    low: float | None
    high: float | None
    p_value: float | None
    p_holm: float | None
    verdict: str


def correlate_columns(
    values: Mapping[str, float], columns: Mapping[str, Mapping[str, float]], *, seed: int = 0
) -> tuple[Correlation, ...]:
    """ρ of the values with each column, over the names that have both."""
    names = [[name for name in values if name in column] for column in columns.values()]
    pairs = [
        (
            np.array([values[name] for name in own], dtype=np.float64),
            np.array([column[name] for name in own], dtype=np.float64),
        )
        for own, column in zip(names, columns.values(), strict=True)
    ]
    rhos = [spearman(x, y) for x, y in pairs]
    p_values = [
        None if rho is None or len(x) < FEWEST else permutation_p(x, y, seed=seed)
        for rho, (x, y) in zip(rhos, pairs, strict=True)
    ]
    adjusted = holm(p_values)
    return tuple(
        _correlation(column, len(x), rho, p, p_holm)
        for column, (x, _), rho, p, p_holm in zip(
            columns, pairs, rhos, p_values, adjusted, strict=True
        )
    )


def spearman(x: Float64[np.ndarray, " n"], y: Float64[np.ndarray, " n"]) -> float | None:
    """Pearson's correlation of the ranks; None where one side has no two different values."""
    a, b = (_centred_ranks(values) for values in (x, y))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else None


def interval(rho: float, n: int) -> tuple[float, float]:
    """Of ρ from n > 3 pairs, at 95 %: tanh(artanh ρ ± 1.96 √((1 + ρ²/2) / (n − 3))).

    Bonett & Wright 2000, Psychometrika 65, eq. 3. A perfect order is taken for half of an exchange
    of two neighbours less, since artanh 1 is infinite.
    """
    most = 1 - 6 / (n * (n * n - 1))
    rho = min(max(rho, -most), most)
    z, error = np.arctanh(rho), np.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = np.tanh([z - NORMAL_QUANTILE * error, z + NORMAL_QUANTILE * error])
    return float(low), float(high)


def permutation_p(
    x: Float64[np.ndarray, " n"], y: Float64[np.ndarray, " n"], *, seed: int
) -> float:
    """Share of permutations whose |ρ| is at least as large, two-sided."""
    a, b = _centred_ranks(x), _centred_ranks(y)
    least = abs(float(a @ b)) - ROUNDING * float(np.sqrt((a @ a) * (b @ b)))
    if len(a) <= LONGEST_EXACT:
        orders = np.array(list(itertools.permutations(range(len(a)))))
        return float((np.abs(b[orders] @ a) >= least).mean())
    rng = np.random.default_rng(seed)
    as_large = sum(abs(float(rng.permutation(b) @ a)) >= least for _ in range(PERMUTATIONS))
    return (as_large + 1) / (PERMUTATIONS + 1)


def holm(p_values: list[float | None]) -> list[float | None]:
    """Adjusted for as many tests as there are numbers (Holm 1979)."""
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - rank)))
        adjusted[place] = largest
    return adjusted


def _correlation(
    column: str, n: int, rho: float | None, p: float | None, p_holm: float | None
) -> Correlation:
    low, high = (None, None) if rho is None or n < FEWEST else interval(rho, n)
    return Correlation(
        column=column,
        n=n,
        rho=rho,
        low=low,
        high=high,
        p_value=p,
        p_holm=p_holm,
        verdict=_verdict(n, rho, p_holm),
    )


def _verdict(n: int, rho: float | None, p: float | None) -> str:
    if n < FEWEST:
        return f"too few to tell (n = {n}, {FEWEST} are needed)"
    if rho is None or p is None:
        return "one side is constant"
    if p >= SIGNIFICANT:
        return "no relation shown"
    return "rises with it" if rho > 0 else "falls with it"


def _centred_ranks(values: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Ranks from 1, equal values with their mean rank, minus the mean of all."""
    if not len(values):
        return values
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Float64[np.ndarray, " n"] = (last - (counts - 1) / 2)[place] - (len(values) + 1) / 2
    return ranks
