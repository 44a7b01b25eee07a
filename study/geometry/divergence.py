"""Kullback–Leibler divergences of a group's states from a reference group's, in nats.

`softmax-mean` and `softmax-padded` read a vector as the softmax of its coordinates, sentence
by parallel sentence. For small vectors that is ½Var_j(a_j − b_j), a squared distance, which
grows with the square of the scale: vectors are divided by the reference's root mean square
coordinate first. `gauss` compares the clouds themselves and needs no parallel text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax

from ...arrays import Float, Float64
from ..report_json import JsonRecord
from .moments import Moments, pooled, top_eigenpairs

Divergent = Literal["softmax-mean", "softmax-padded", "gauss"]
DIVERGENCES: tuple[Divergent, ...] = get_args(Divergent)

AXES = 16
SHRINKAGE = 0.1

TOKENS_AN_AXIS = 100
"""Tokens of each side for every axis; with fewer, noise is most of the divergence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence(JsonRecord):
    """The divergence of a group from the reference by one estimator.

    Attributes:
        to_reference: KL(group ‖ reference).
        from_reference: KL(reference ‖ group).
        jeffreys: The sum of both; of `gauss` only.
        floor: Jeffreys between two halves of the reference's texts; of `gauss` only. The same
            language at half the tokens differs by this much, so a value near it is no difference.
        sentences: Parallel sentences that were compared; of the softmax estimators only.
        scale: Root mean square coordinate of the reference, by which vectors were divided; of
            the softmax estimators only.
        tokens: Tokens of the group and of the reference; of `gauss` only.
        axes: Main axes of the pooled tokens that were compared; of `gauss` only.
        reason: Why there is no number; empty where there is one.
    """

    estimator: Divergent
    to_reference: float | None = None
    from_reference: float | None = None
    jeffreys: float | None = None
    floor: float | None = None
    sentences: int | None = None
    scale: float | None = None
    tokens: tuple[int, int] | None = None
    axes: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BothWays:
    """KL(group ‖ reference) and KL(reference ‖ group), sentence by sentence."""

    forward: Float64[np.ndarray, " sentences"]
    backward: Float64[np.ndarray, " sentences"]


def softmax_mean(
    group: Float[np.ndarray, "sentences dim"],
    reference: Float[np.ndarray, "sentences dim"],
    *,
    scale: float,
) -> BothWays:
    """Between the softmaxes of parallel sentences' mean vectors."""
    if not scale > 0.0:
        raise ValueError(f"scale must be above 0, got {scale}")
    ours, theirs = (
        log_softmax((rows / scale).astype(np.float64), axis=1) for rows in (group, reference)
    )
    gap = ours - theirs
    return BothWays((np.exp(ours) * gap).sum(axis=1), -(np.exp(theirs) * gap).sum(axis=1))


def softmax_padded(
    group: Sequence[Float[np.ndarray, "_ dim"]],
    reference: Sequence[Float[np.ndarray, "_ dim"]],
    *,
    scale: float,
) -> BothWays:
    """Between the softmaxes of the tokens at one place of parallel sentences, a mean a sentence.

    The shorter sentence is padded with zero vectors, whose softmax is uniform, so that the
    estimator measures length as well.
    """
    means = np.empty((2, len(group)))
    for number, pair in enumerate(zip(group, reference, strict=True)):
        length = max(map(len, pair))
        ours, theirs = (np.pad(rows, ((0, length - len(rows)), (0, 0))) for rows in pair)
        both = softmax_mean(ours, theirs, scale=scale)
        means[:, number] = both.forward.mean(), both.backward.mean()
    return BothWays(*means)


def softmax_divergence(estimator: Divergent, sentences: BothWays, *, scale: float) -> Divergence:
    """The mean over sentences; a reason in its place where there are none."""
    n = len(sentences.forward)
    if not n:
        return Divergence(
            estimator=estimator, sentences=0, reason="no text shares its id with the reference"
        )
    return Divergence(
        estimator=estimator,
        to_reference=float(sentences.forward.mean()),
        from_reference=float(sentences.backward.mean()),
        sentences=n,
        scale=scale,
    )


def gaussian_divergence(
    group: Moments,
    reference: Moments,
    *,
    floor: float | None = None,
    axes: int = AXES,
    shrinkage: float = SHRINKAGE,
) -> Divergence:
    """Between Gaussians of the two clouds, in the main axes of both pooled.

    ½[tr(Σ_B⁻¹Σ_A) + δᵀΣ_B⁻¹δ − k + ln|Σ_B|/|Σ_A|] with
    Σ ← (1 − shrinkage)·Σ + shrinkage·(tr Σ/k)·I.
    """
    axes = min(axes, group.dim)
    tokens = (group.n, reference.n)
    empty = Divergence(estimator="gauss", tokens=tokens, axes=axes)
    if min(tokens) < TOKENS_AN_AXIS * axes:
        few = f"{group.n} and {reference.n} tokens; {axes} axes need {TOKENS_AN_AXIS * axes} a side"
        return replace(empty, reason=few)
    both = _gaussian_both_ways(group, reference, axes, shrinkage)
    if both is None:
        return replace(empty, reason=f"the tokens fill fewer than {axes} axes")
    to, back = both
    return replace(empty, to_reference=to, from_reference=back, jeffreys=to + back, floor=floor)


def gaussian_floor(halves: Sequence[Moments], *, axes: int = AXES) -> float | None:
    """Jeffreys divergence between two halves of one group's texts.

    None where there are no two halves, or too few tokens for a comparison of the whole.
    """
    axes = min(axes, halves[0].dim)
    enough = sum(half.n for half in halves) >= TOKENS_AN_AXIS * axes
    if len(halves) != 2 or not enough or min(half.n for half in halves) <= axes:
        return None
    both = _gaussian_both_ways(halves[0], halves[1], axes)
    return None if both is None else sum(both)


def _gaussian_both_ways(
    a: Moments, b: Moments, axes: int, shrinkage: float = SHRINKAGE
) -> tuple[float, float] | None:
    """KL(a ‖ b), KL(b ‖ a) in the pooled main axes; None where a covariance has no volume."""
    both = pooled([a, b])
    values, vectors = top_eigenpairs(both.covariance(), axes)
    if values[0] <= values[-1] * np.finfo(np.float64).eps * both.dim:
        return None
    step = vectors.T @ (a.mean - b.mean)
    spread_a, spread_b = (vectors.T @ moments.covariance() @ vectors for moments in (a, b))
    for spread in (spread_a, spread_b):
        # towards a sphere of the same trace (Ledoit & Wolf 2004), by a fixed share
        sphere = float(np.trace(spread)) / axes * np.eye(axes)
        spread[:] = (1 - shrinkage) * spread + shrinkage * sphere
    if min(np.trace(spread_a), np.trace(spread_b)) <= 0.0:
        return None
    return _gaussian(spread_a, spread_b, step), _gaussian(spread_b, spread_a, step)


def _gaussian(
    spread_a: Float64[np.ndarray, "axes axes"],
    spread_b: Float64[np.ndarray, "axes axes"],
    step: Float64[np.ndarray, " axes"],
) -> float:
    factor = cho_factor(spread_b)
    trace = float(np.trace(cho_solve(factor, spread_a)))
    distance = float(step @ cho_solve(factor, step))
    volumes = float(np.linalg.slogdet(spread_b)[1] - np.linalg.slogdet(spread_a)[1])
    return 0.5 * (trace + distance - len(step) + volumes)
