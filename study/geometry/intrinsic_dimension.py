"""Intrinsic dimension of a cloud of rows, from the distances to its two nearest neighbours.

All three estimators are forms of TwoNN (Facco et al. 2017, doi:10.1038/s41598-017-11873-y):
μ = r₂/r₁ of a row follows a Pareto law whose exponent is the dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ...arrays import Float, Float64, Int64
from ..report_json import JsonRecord

BLOCK_BYTES = 16 * 2**20
"""Memory of a block of distances. Ranking them takes about three times as much again."""

ROUNDING = 8.0
"""Rows nearer than this many roundings of their mean length count as equal. The same prefix in
two batches of a causal model differs by one to four roundings in float32."""

PROJECTION_ROUNDING = 64 * float(np.finfo(np.float64).eps)

CANDIDATES = 4
"""Neighbours by ‖x‖² + ‖y‖² − 2x·y whose distance is then taken without cancellation."""

FEWEST_ROWS = 100
"""With fewer distinct rows nothing is estimated: the lowest fifth would be under 20 points."""

TIED = "the two nearest neighbours are equally far: no ratio to go by"

LEAST_GAP = 1e-8
"""Of LLM-Microscope: a distance r₁ below it (in mean lengths), or μ − 1, counts as none."""


def distinct_rows(rows: Float[np.ndarray, "rows dim"]) -> Int64[np.ndarray, " distinct"]:
    """Indices of rows none of which repeats another up to rounding, ascending.

    Rows that are this near have projections that are as near onto any direction, so that only
    neighbours along one seeded direction are compared.
    """
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    tolerance = ROUNDING * float(np.finfo(rows.dtype).eps * lengths.mean())
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    along = rows @ (direction / np.linalg.norm(direction))
    order = np.argsort(along, kind="stable")
    apart = tolerance + PROJECTION_ROUNDING * float(lengths.max())
    breaks = np.flatnonzero(np.diff(along[order]) > apart) + 1
    runs = np.split(order, breaks)
    distinct = [row for run in runs for row in _leaders(rows, np.sort(run), tolerance)]
    return np.sort(np.array(distinct, dtype=np.int64))


def two_nearest(
    rows: Float64[np.ndarray, "rows dim"], subsets: Sequence[Int64[np.ndarray, " _"]]
) -> list[Float64[np.ndarray, "_ 2"]]:
    """(r₁, r₂) of every row of each subset within that subset, exact, in the subset's order.

    Subsets are ascending indices. Products of all rows are taken once, in blocks.
    """
    if any(len(subset) < 3 for subset in subsets):
        raise ValueError("two nearest neighbours need three rows or more")
    squares = np.einsum("ij,ij->i", rows, rows)
    distances = [np.empty((len(subset), 2)) for subset in subsets]
    height = max(1, BLOCK_BYTES // (8 * max(len(rows), CANDIDATES * rows.shape[1])))
    for start in range(0, len(rows), height):
        block = rows[start : start + height]
        gaps = squares[None, :] - 2.0 * (block @ rows.T)  # (block, rows), less ‖block‖²
        gaps[np.arange(len(block)), np.arange(start, start + len(block))] = np.inf
        for subset, nearest in zip(subsets, distances, strict=True):
            low, high = np.searchsorted(subset, [start, start + len(block)])
            members = subset[low:high]
            if len(members):
                nearest[low:high] = _nearest_of(rows, members, subset, gaps[members - start])
    return distances


def _nearest_of(
    rows: Float64[np.ndarray, "rows dim"],
    members: Int64[np.ndarray, " members"],
    subset: Int64[np.ndarray, " subset"],
    gaps: Float64[np.ndarray, "members rows"],
) -> Float64[np.ndarray, "members 2"]:
    """(r₁, r₂) of `members` by the exact distances of the nearest few."""
    n_candidates = min(CANDIDATES, len(subset) - 1)
    among = gaps if len(subset) == gaps.shape[1] else gaps[:, subset]
    few = np.argpartition(among, n_candidates - 1, axis=1)[:, :n_candidates]
    apart = rows[subset[few]] - rows[members][:, None, :]  # (members, few, dim)
    distances: Float64[np.ndarray, "members few"] = np.sqrt(np.einsum("ijk,ijk->ij", apart, apart))
    return np.sort(distances, axis=1)[:, :2]


def _leaders(
    rows: Float[np.ndarray, "rows dim"], run: Int64[np.ndarray, " run"], tolerance: float
) -> list[int]:
    """Of a run, the rows that are not within the tolerance of an earlier one taken."""
    taken: list[int] = []
    for row in run.tolist():
        apart = rows[taken].astype(np.float64) - rows[row]
        if not taken or np.sqrt(np.einsum("ij,ij->i", apart, apart).min()) > tolerance:
            taken.append(row)
    return taken


Estimator = Literal["low-fifth", "facco", "mle"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrinsicDimension(JsonRecord):
    """The estimate of one estimator for one cloud.

    Attributes:
        dimension: Mean over the draws; None where there is a `reason`.
        sd: Over the draws. Draws share rows, so it is smaller than between independent samples.
            None with fewer than two draws.
        rows: Rows of each draw.
        whole: The estimate from all distinct rows; comparable with `dimension` only at the same
            number of rows.
        standard_error: Of `whole`; only the maximum likelihood estimate has it.
        distinct: Rows that could be drawn.
        duplicates: Rows that are equal to another up to rounding, and are left out.
        reason: Why there is no number; empty where there is one.
    """

    estimator: Estimator
    dimension: float | None
    sd: float | None
    rows: int
    draws: int
    whole: float | None
    standard_error: float | None
    distinct: int
    duplicates: int
    reason: str


def intrinsic_dimension(
    rows: Float[np.ndarray, "rows dim"],
    *,
    estimators: Sequence[Estimator] = ESTIMATORS,
    sample: int | None = None,
    draws: int = 5,
    seed: int = 0,
) -> tuple[IntrinsicDimension, ...]:
    """The estimates of the distinct rows. Peak: the rows twice in float64 and 64 MB.

    Estimates depend on the number of rows, so clouds are compared at the same `sample`. Without
    it, or where it is the number of rows, there is one draw of all rows.
    """
    if draws < 5:
        raise ValueError(f"draws must be 5 or more, got {draws}")
    if sample is not None and sample < FEWEST_ROWS:
        raise ValueError(f"sample must be {FEWEST_ROWS} rows or more, got {sample}")
    distinct = distinct_rows(rows)
    n = len(distinct)
    wanted = n if sample is None else sample
    reason = f"{n} distinct rows, but each draw needs {wanted}" if n < wanted else ""
    if n < FEWEST_ROWS:
        reason = f"{n} distinct rows; an estimate needs {FEWEST_ROWS}"
    nearest: list[Float64[np.ndarray, "_ 2"]] = []
    if not reason:
        subsets = [np.arange(n, dtype=np.int64)]
        if wanted < n:
            rngs = (np.random.default_rng([seed, number]) for number in range(draws))
            subsets += [np.sort(rng.choice(n, wanted, replace=False)) for rng in rngs]
        centred = rows[distinct] - rows[distinct].mean(axis=0, dtype=np.float64)
        nearest = two_nearest(centred / np.linalg.norm(centred, axis=1).mean(), subsets)

    def answer(estimator: Estimator) -> IntrinsicDimension:
        estimates = [estimate(distances, estimator) for distances in nearest]
        numbers = [number for number in estimates if number is not None]
        tied = len(numbers) < len(estimates)
        whole, drawn = (None, []) if tied or reason else (numbers[0], numbers[1:] or numbers)
        return IntrinsicDimension(
            estimator=estimator,
            dimension=float(np.mean(drawn)) if drawn else None,
            sd=float(np.std(drawn, ddof=1)) if len(drawn) > 1 else None,
            rows=wanted,
            draws=len(drawn),
            whole=whole,
            standard_error=whole / n**0.5 if whole and estimator == "mle" else None,
            distinct=n,
            duplicates=len(rows) - n,
            reason=TIED if tied else reason,
        )

    return tuple(map(answer, estimators))


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
