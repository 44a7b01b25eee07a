"""Intrinsic dimension of a cloud of rows, from the distances to its two nearest neighbours."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

import numpy as np
from scipy.stats import t as student
from sklearn.neighbors import NearestNeighbors

from ...arrays import Float, Float64, Int64
from ...results import JsonRecord, count

Rows = Float[np.ndarray, "rows dim"]
Exact = Float64[np.ndarray, "rows dim"]
Nearest = Float64[np.ndarray, "rows 2"]


BLOCKS = 10

CONFIDENCE = 0.95


def assign_blocks(ids: Sequence[str], seed: int = 0) -> Int64[np.ndarray, " texts"]:
    """The block, 0…9, of each text of a group.

    Texts are in blocks by the order of a digest of their id: groups with the same ids, as
    translations have, get the same blocks.
    """
    digests = [hashlib.sha256(f"{seed}:{i}".encode("utf-8", "replace")).digest() for i in ids]
    order = sorted(range(len(ids)), key=digests.__getitem__)
    blocks = np.empty(len(ids), dtype=np.int64)
    blocks[order] = np.arange(len(ids)) * BLOCKS // max(1, len(ids))
    return blocks


def block_subsets(blocks: Int64[np.ndarray, " rows"], fewest: int) -> list[Int64[np.ndarray, " _"]]:
    """The rows of each block, ascending; nothing where a block has fewer rows than `fewest`."""
    subsets = [np.flatnonzero(blocks == block) for block in range(BLOCKS)]
    return subsets if min(map(len, subsets)) >= fewest else []


def standard_error(values: Sequence[float]) -> float | None:
    """Of the estimate from all blocks' rows; None for fewer than two blocks."""
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None


def interval(centre: float, values: Sequence[float]) -> tuple[float, float] | None:
    """95 % by Student's t around an estimate; None for fewer than two blocks."""
    error = standard_error(values)
    if error is None:
        return None
    reach = float(student.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)) * error
    return centre - reach, centre + reach


ROUNDING = 8.0
"""Rows nearer than this many roundings of their mean length count as equal. The same prefix in
two batches of a causal model differs by one to four roundings in float32."""


def distinct_rows(rows: Rows) -> Int64[np.ndarray, " distinct"]:
    """Indices of rows none of which repeats an earlier one up to rounding, ascending.

    Rows that are this near have projections that are as near onto any direction, so that only
    neighbours along one seeded direction are compared.
    """
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    exact = rows.astype(np.float64)
    tolerance = ROUNDING * float(np.finfo(rows.dtype).eps * np.linalg.norm(exact, axis=1).mean())
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    along = exact @ (direction / np.linalg.norm(direction))
    order = np.argsort(along, kind="stable")
    # float64's rounding of a projection is far below float32's of a row
    breaks = np.flatnonzero(np.diff(along[order]) > 2 * tolerance) + 1
    distinct: list[int] = []
    for run in np.split(order, breaks):
        taken: list[int] = []
        for row in np.sort(run).tolist():
            apart = np.linalg.norm(exact[taken] - exact[row], axis=1)
            if apart.min(initial=np.inf) > tolerance:
                taken.append(row)
        distinct += taken
    return np.sort(np.array(distinct, dtype=np.int64))


CANDIDATES = 5
"""Neighbours by ‖x‖² + ‖y‖² − 2x·y whose distance is then taken without cancellation."""


def two_nearest(rows: Exact) -> Nearest:
    """(r₁, r₂) of every row, taken again without cancellation once the neighbours are known."""
    found = NearestNeighbors(n_neighbors=min(CANDIDATES, len(rows) - 1)).fit(rows)
    apart = rows[found.kneighbors(return_distance=False)] - rows[:, None]
    nearest: Nearest = np.sort(np.linalg.norm(apart, axis=2), axis=1)[:, :2]
    return nearest


Estimator = Literal["facco", "mle", "low-fifth"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

FEWEST_ROWS = 100
"""With fewer distinct rows nothing is estimated: the lowest fifth would be under 20 points."""

FEWEST_BLOCK_ROWS = 10
"""With fewer rows in a block of texts there is no standard error."""

MOST_SPREAD = 0.10
"""The relative standard deviation that `rows_needed` holds."""

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
    rows: Rows,
    *,
    blocks: Int64[np.ndarray, " rows"] | None = None,
    distinct: Int64[np.ndarray, " distinct"] | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> tuple[IntrinsicDimension, ...]:
    """The estimates of the distinct rows. Peak: the rows three times in float64.

    Estimates depend on the number of rows, so clouds are compared at the same `sample`, which is
    drawn once; without it all distinct rows are used.

    Args:
        blocks: The block of texts of each row (`assign_blocks`), for standard errors.
        distinct: `distinct_rows` of the rows, where they are known already.
    """
    kept = distinct_rows(rows) if distinct is None else distinct
    n_distinct = len(kept)
    wanted = n_distinct if sample is None else sample
    reason = (
        f"too few: {count(n_distinct, 'distinct row')} of {wanted}" if n_distinct < wanted else ""
    )
    if n_distinct < FEWEST_ROWS:
        reason = f"too few: {count(n_distinct, 'distinct row')}; an estimate needs {FEWEST_ROWS}"
    whole, parts = np.empty((0, 2)), list[Float64[np.ndarray, "_ 2"]]()
    if not reason:
        if wanted < n_distinct:
            kept = np.sort(np.random.default_rng(seed).choice(kept, wanted, replace=False))
        centred = rows[kept] - rows[kept].mean(axis=0, dtype=np.float64)
        centred /= np.linalg.norm(centred, axis=1).mean()
        subsets = [] if blocks is None else block_subsets(blocks[kept], FEWEST_BLOCK_ROWS)
        whole, *parts = (two_nearest(centred[some]) for some in (slice(None), *subsets))

    def answer(estimator: Estimator) -> IntrinsicDimension:
        value = None if reason else estimate(whole, estimator)
        needed = None
        why = reason or TIED
        if value is not None:
            needed, why = rows_needed(value, estimator), ""
            if wanted < needed:
                more = f"over {MOST_NEEDED}" if needed == MOST_NEEDED else str(needed)
                why = f"too few: {wanted} rows; an estimate of {value:.1f} needs {more}"
        by_block = [estimate(part, estimator) for part in parts]
        values = tuple(number for number in by_block if number is not None)
        values = values if len(values) == len(by_block) else ()
        low, high = (None if why or value is None else interval(value, values)) or (None, None)
        return IntrinsicDimension(
            estimator=estimator,
            dimension=None if why else value,
            standard_error=None if why else standard_error(values),
            low=low,
            high=high,
            rows=wanted,
            distinct=n_distinct,
            duplicates=len(rows) - n_distinct,
            needed=needed,
            blocks=() if why else values,
            reason=why,
        )

    return tuple(map(answer, ESTIMATORS))


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


def estimate(nearest: Nearest, estimator: Estimator) -> float | None:
    """The dimension by the (r₁, r₂) of each row; None where they do not determine it."""
    formulas = {"low-fifth": low_fifth, "facco": facco, "mle": maximum_likelihood}
    return formulas[estimator](nearest)


def low_fifth(nearest: Nearest) -> float | None:
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


def facco(nearest: Nearest) -> float | None:
    """TwoNN by regression without the highest tenth of μ (Facco et al. 2017)."""
    logs = _log_ratios(nearest)
    n_kept = len(logs) * 9 // 10
    return _slope(logs[:n_kept], np.arange(1, n_kept + 1) / max(1, len(logs)))


def maximum_likelihood(nearest: Nearest) -> float | None:
    """(N − 1)/Σ ln μ, the unbiased estimate of a Pareto exponent; its s.e. is d/√N."""
    logs = _log_ratios(nearest)
    total = float(logs.sum())
    return (len(logs) - 1) / total if total > 0 and len(logs) > 1 else None


def _log_ratios(nearest: Nearest) -> Float64[np.ndarray, " positive"]:
    first, second = nearest[nearest[:, 0] > 0].T
    logs: Float64[np.ndarray, " positive"] = np.log(np.sort(second / first))
    return logs


def _slope(
    logs: Float64[np.ndarray, " points"], shares: Float64[np.ndarray, " points"]
) -> float | None:
    """Of −ln(1 − F) against ln μ, through the origin."""
    below = float(logs @ logs)
    return float(logs @ -np.log1p(-shares)) / below if below > 0 else None
