"""Intrinsic dimension of a cloud of rows, from the distances to its two nearest neighbours.

All three estimators are forms of TwoNN (Facco et al. 2017, doi:10.1038/s41598-017-11873-y):
μ = r₂/r₁ of a row follows a Pareto law whose exponent is the dimension. On real activations
they differ by a factor of two, so no number goes without its estimator's name. All of them
saturate: what they put above about 20 is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ...arrays import Float, Float64, Int64
from .neighbours import distinct_rows, two_nearest

Estimator = Literal["low-fifth", "facco", "mle"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

FEWEST_ROWS = 100
"""Distinct rows below which nothing is estimated: the lowest fifth would be under 20 points."""

LEAST_GAP = 1e-8
"""Of LLM-Microscope: a distance r₁ below it (in mean lengths), or μ − 1, counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrinsicDimension:
    """One estimator's answer for one cloud.

    Attributes:
        dimension: Mean over the draws; None where there is a `reason`.
        sd: Over the draws, which share rows: less than between independent samples. None with
            fewer than two draws.
        rows: Of each draw.
        whole: Of all distinct rows at once; as large as `dimension` only by the same `rows`.
        standard_error: Of `whole`; only the maximum likelihood form has one.
        distinct: Rows that could be drawn.
        duplicates: Rows left out before: equal to another up to rounding.
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
    """What each estimator says of the distinct rows. Peak: the rows twice in float64 + 64 MB.

    Estimates depend on the number of rows: clouds are compared at one `sample`. Without it, or
    where it is every row there is, the one draw is all of them.
    """
    if draws < 5:
        raise ValueError(f"draws must be 5 or more, got {draws}")
    if sample is not None and sample < FEWEST_ROWS:
        raise ValueError(f"sample must be {FEWEST_ROWS} rows or more, got {sample}")
    kept = distinct_rows(rows)
    n = len(kept)
    wanted = n if sample is None else sample
    reason = _too_few(n, wanted)
    nearest: list[Float64[np.ndarray, "_ 2"]] = []
    if not reason:
        subsets = [np.arange(n, dtype=np.int64)]
        if wanted < n:
            subsets += [_draw(n, wanted, seed, number) for number in range(draws)]
        nearest = two_nearest(_scaled(rows[kept]), subsets)
    duplicates = len(rows) - n
    return tuple(_answer(name, nearest, n, wanted, duplicates, reason) for name in estimators)


def estimate(nearest: Float64[np.ndarray, "rows 2"], estimator: Estimator) -> float | None:
    """The dimension by the (r₁, r₂) of each row; None where they do not determine it."""
    if estimator == "low-fifth":
        return low_fifth(nearest)
    if estimator == "facco":
        return facco(nearest)
    if estimator == "mle":
        return maximum_likelihood(nearest)
    raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")


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


def _log_ratios(nearest: Float64[np.ndarray, "rows 2"]) -> Float64[np.ndarray, " kept"]:
    """ln μ, ascending, of the rows with a neighbour at some distance."""
    first, second = nearest[nearest[:, 0] > 0].T
    logs: Float64[np.ndarray, " kept"] = np.log(np.sort(second / first))
    return logs


def _slope(
    logs: Float64[np.ndarray, " points"], shares: Float64[np.ndarray, " points"]
) -> float | None:
    """Of −ln(1 − F) against ln μ, through the origin."""
    below = float(logs @ logs)
    return float(logs @ -np.log1p(-shares)) / below if below > 0 else None


def _scaled(rows: Float[np.ndarray, "rows dim"]) -> Float64[np.ndarray, "rows dim"]:
    """Centred, and of mean length 1."""
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    scaled: Float64[np.ndarray, "rows dim"] = centred / np.linalg.norm(centred, axis=1).mean()
    return scaled


def _draw(n: int, size: int, seed: int, number: int) -> Int64[np.ndarray, " sample"]:
    drawn = np.random.default_rng([seed, number]).choice(n, size, replace=False)
    return np.sort(drawn).astype(np.int64)


def _too_few(distinct: int, wanted: int) -> str:
    if distinct < FEWEST_ROWS:
        return f"{distinct} distinct rows; {FEWEST_ROWS} are the fewest that mean something"
    return f"{distinct} distinct rows, {wanted} wanted in each draw" if distinct < wanted else ""


def _answer(
    estimator: Estimator,
    nearest: Sequence[Float64[np.ndarray, "_ 2"]],
    distinct: int,
    wanted: int,
    duplicates: int,
    reason: str,
) -> IntrinsicDimension:
    found = [estimate(each, estimator) for each in nearest]
    numbers = [each for each in found if each is not None]
    if not reason and len(numbers) < len(found):
        reason = "the two nearest neighbours are equally far: no ratio to go by"
    if reason:
        numbers = []
    whole, drawn = (numbers[0], numbers[1:] or numbers) if numbers else (None, [])
    return IntrinsicDimension(
        estimator=estimator,
        dimension=float(np.mean(drawn)) if drawn else None,
        sd=float(np.std(drawn, ddof=1)) if len(drawn) > 1 else None,
        rows=wanted,
        draws=len(drawn),
        whole=whole,
        standard_error=whole / distinct**0.5 if whole and estimator == "mle" else None,
        distinct=distinct,
        duplicates=duplicates,
        reason=reason,
    )
