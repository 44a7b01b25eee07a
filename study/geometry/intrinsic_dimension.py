"""Intrinsic dimension of a cloud of rows, from the distances to its two nearest neighbours.

All three estimators are forms of TwoNN (Facco et al. 2017, doi:10.1038/s41598-017-11873-y):
μ = r₂/r₁ of a row follows a Pareto law whose exponent is the dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

import numpy as np

from ...arrays import Float, Float64, Int64
from ..report_json import JsonRecord
from .nearest_neighbours import distinct_rows, two_nearest
from .text_blocks import block_subsets, interval, standard_error

Estimator = Literal["facco", "mle", "low-fifth"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

FEWEST_ROWS = 100
"""With fewer distinct rows nothing is estimated: the lowest fifth would be under 20 points."""

FEWEST_BLOCK_ROWS = 10
"""With fewer rows in a block of texts there is no standard error."""

MOST_SPREAD, MOST_BIAS = 0.10, 0.20
"""What `rows_needed` holds: the relative standard deviation, and how far below the truth."""

SPREAD_AT_ONE_ROW: dict[Estimator, float] = {"facco": 1.22, "mle": 1.10, "low-fifth": 2.50}
"""The relative standard deviation is this over √N, at every dimension from 2 to 50 (measured on
balls, Gaussians, spheres and tori, benchmarks/studies/geometry.py)."""

BIAS_ROWS, BIAS_DIMENSION, BIAS_DOUBLING = 150, 12.0, 1.7
"""Balls of dimension d are estimated at 0.8·d or more from 150 rows up to an estimate of 12, and
from twice as many for every 1.7 above (the same benchmark)."""

MOST_NEEDED = 1_000_000
"""What `rows_needed` returns for anything above."""

TIED = "the two nearest neighbours are equally far: no ratio to go by"

LEAST_GAP = 1e-8
"""Of LLM-Microscope: a distance r₁ below it (in mean lengths), or μ − 1, counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrinsicDimension(JsonRecord):
    """The estimate of one estimator for one cloud.

    Attributes:
        dimension: None where there is a `reason`.
        standard_error: Of `dimension`, from blocks of texts that share no row; None where the
            blocks have too few rows, or the rows' texts are not known.
        low, high: 95 % by Student's t with nine degrees of freedom.
        rows: Distinct rows that were used, drawn at random.
        distinct: Distinct rows that there are.
        duplicates: Rows that are equal to another up to rounding, and are left out.
        needed: Rows that an estimate of this size needs, see `rows_needed`.
        blocks: The estimate of each block of texts; empty where there is no error.
        reason: Why there is no number; empty where there is one.
    """

    estimator: Estimator
    dimension: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    rows: int
    distinct: int
    duplicates: int
    needed: int | None
    blocks: tuple[float, ...]
    reason: str


def intrinsic_dimension(
    rows: Float[np.ndarray, "rows dim"],
    *,
    estimators: Sequence[Estimator] = ESTIMATORS,
    blocks: Int64[np.ndarray, " rows"] | None = None,
    distinct: Int64[np.ndarray, " distinct"] | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> tuple[IntrinsicDimension, ...]:
    """The estimates of the distinct rows. Peak: the rows twice in float64 and 64 MB.

    Estimates depend on the number of rows, so clouds are compared at the same `sample`, which is
    drawn once; without it all distinct rows are used.

    Args:
        blocks: The block of texts of each row (`assign_blocks`), for standard errors.
        distinct: `distinct_rows` of the rows, where they are known already.
    """
    if sample is not None and sample < FEWEST_ROWS:
        raise ValueError(f"sample must be {FEWEST_ROWS} rows or more, got {sample}")
    kept = distinct_rows(rows) if distinct is None else distinct
    n_distinct = len(kept)
    wanted = n_distinct if sample is None else sample
    reason = f"too few: {n_distinct} distinct rows of {wanted}" if n_distinct < wanted else ""
    if n_distinct < FEWEST_ROWS:
        reason = f"too few: {n_distinct} distinct rows; an estimate needs {FEWEST_ROWS}"
    whole, parts = np.empty((0, 2)), list[Float64[np.ndarray, "_ 2"]]()
    if not reason:
        if wanted < n_distinct:
            kept = np.sort(np.random.default_rng(seed).choice(kept, wanted, replace=False))
        centred = rows[kept] - rows[kept].mean(axis=0, dtype=np.float64)
        subsets = [] if blocks is None else block_subsets(blocks[kept], FEWEST_BLOCK_ROWS)
        whole, *parts = two_nearest(
            centred / np.linalg.norm(centred, axis=1).mean(),
            [np.arange(len(kept), dtype=np.int64), *subsets],
        )

    def answer(estimator: Estimator) -> IntrinsicDimension:
        value, why = (None if reason else estimate(whole, estimator)), reason
        by_block = [estimate(part, estimator) for part in parts]
        values = tuple(number for number in by_block if number is not None)
        values = values if len(values) == len(by_block) else ()
        needed = None if value is None else rows_needed(value, estimator)
        if not why and value is None:
            why = TIED
        if value is not None and needed is not None and wanted < needed:
            more = f"over {MOST_NEEDED}" if needed == MOST_NEEDED else str(needed)
            why = f"too few: {wanted} rows; an estimate of {value:.1f} needs {more}"
        bounds = None if why or value is None else interval(value, values)
        return IntrinsicDimension(
            estimator=estimator,
            dimension=None if why else value,
            standard_error=None if why else standard_error(values),
            low=bounds[0] if bounds else None,
            high=bounds[1] if bounds else None,
            rows=wanted,
            distinct=n_distinct,
            duplicates=len(rows) - n_distinct,
            needed=needed,
            blocks=() if why else values,
            reason=why,
        )

    return tuple(map(answer, estimators))


def rows_needed(dimension: float, estimator: Estimator) -> int:
    """Rows that an estimate of this size needs.

    With so many, its relative standard deviation is 10 % or less, and a ball that gives this
    estimate has a dimension at most a quarter above it (0.8·d or more is found of d). At most
    a million.
    """
    for_spread = (SPREAD_AT_ONE_ROW[estimator] / MOST_SPREAD) ** 2
    doublings = min(60.0, (dimension - BIAS_DIMENSION) / BIAS_DOUBLING)
    for_bias = float(BIAS_ROWS * 2.0**doublings)
    return min(MOST_NEEDED, ceil(max(for_spread, for_bias)))


def estimate(nearest: Float64[np.ndarray, "rows 2"], estimator: Estimator) -> float | None:
    """The dimension by the (r₁, r₂) of each row; None where they do not determine it."""
    formulas = {"low-fifth": low_fifth, "facco": facco, "mle": maximum_likelihood}
    if estimator not in formulas:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")
    return formulas[estimator](nearest)


def low_fifth(nearest: Float64[np.ndarray, "rows 2"]) -> float | None:
    """TwoNN by regression through the lowest fifth of μ, as LLM-Microscope computes it.

    d = Σ ln μᵢ·(−ln(1 − Fᵢ)) / Σ (ln μᵢ)² with Fᵢ = (m + i)/(m + n), where the m rows without
    a usable μ still count in F: each exact duplicate among the rows raises d. Distances are
    in units of the centred rows' mean length.
    """
    first, second = nearest.T
    usable = first >= LEAST_GAP
    ratios = np.sort(second[usable] / first[usable])
    ratios = ratios[ratios > 1.0 + LEAST_GAP]
    n, dropped = len(ratios), len(nearest) - len(ratios)
    lowest = np.log(ratios[: n // 5])
    shares = (dropped + np.arange(1, n // 5 + 1)) / max(1, dropped + n)
    return _slope(lowest, shares)


def facco(nearest: Float64[np.ndarray, "rows 2"]) -> float | None:
    """TwoNN by regression without the highest tenth of μ (Facco et al. 2017)."""
    logs = _log_ratios(nearest)
    n_kept = len(logs) * 9 // 10
    return _slope(logs[:n_kept], np.arange(1, n_kept + 1) / max(1, len(logs)))


def maximum_likelihood(nearest: Float64[np.ndarray, "rows 2"]) -> float | None:
    """(N − 1)/Σ ln μ, the unbiased estimate of a Pareto exponent; its s.e. is d/√N."""
    logs = _log_ratios(nearest)
    total = float(logs.sum())
    return (len(logs) - 1) / total if total > 0 and len(logs) > 1 else None


def _log_ratios(nearest: Float64[np.ndarray, "rows 2"]) -> Float64[np.ndarray, " positive"]:
    """ln μ, ascending, of the rows with a neighbour at some distance."""
    first, second = nearest[nearest[:, 0] > 0].T
    logs: Float64[np.ndarray, " positive"] = np.log(np.sort(second / first))
    return logs


def _slope(
    logs: Float64[np.ndarray, " points"], shares: Float64[np.ndarray, " points"]
) -> float | None:
    """Of −ln(1 − F) against ln μ, through the origin."""
    below = float(logs @ logs)
    return float(logs @ -np.log1p(-shares)) / below if below > 0 else None
