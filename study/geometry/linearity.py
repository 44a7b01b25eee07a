"""How linear the step from one layer to the next is, with the residual stream and without it.

Razzhigaev et al. 2024 (arXiv 2405.12250, eq. 1): with X̃ and Ỹ the token matrices of two
consecutive layers, column-centred and divided by their Frobenius norm, the score is
1 − min_A ‖X̃A − Ỹ‖². It is the share of Y's variance that a linear map of X gives (R²).
Without the residual stream Y is the layer's own contribution, Y − X.

Both come from one least squares fit: with Â the best map to Y, Â − I is the best to Y − X, and
the residuals are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from ...arrays import Float64
from ..report_json import JsonRecord
from .moments import CrossMoments, Moments, pooled, pooled_cross

MANY_TOKENS = 10
"""Tokens for each dimension above which the score in the sample is near the held-out one."""

NO_DIRECTION = 1e-9
"""Share of the largest eigenvalue below which a direction counts as none: rounding of float32
states leaves 1e-13 or less."""

NEARLY_DEPENDENT = 1e-7
"""Share of a column's squares, beyond what columns before it give, below which the eigenvalues
decide which directions there are."""

SPREAD_ROUNDING = 1e-24
"""Share of the squares that rounding may leave of equal rows less their mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLinearity(JsonRecord):
    """The linearity of the step into one layer, from the layer before.

    Attributes:
        tokens: Tokens that the maps are fitted to.
        stream: Of the output of the layer, 0…1, as published: on the tokens of the fit.
        contribution: Of the layer's own contribution, output − input; 0…1, on the same tokens.
        held_out_stream, held_out_contribution: The same fitted to half of the texts and scored
            on the other half, both ways; below 0 where the map is worse than the mean. None
            where a half has no more tokens than dimensions.
        optimistic: There are fewer than ten tokens for each dimension: read the held-out scores.
        reason: Why there is no number; empty where there is one.
    """

    tokens: int
    stream: float | None = None
    contribution: float | None = None
    held_out_stream: float | None = None
    held_out_contribution: float | None = None
    optimistic: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LayerStep:
    """The moments of a layer's input and output, and between them, of some texts."""

    before: Moments
    after: Moments
    cross: CrossMoments


def layer_linearity(halves: Sequence[LayerStep]) -> LayerLinearity:
    """The scores of all tokens, and held-out ones where there are two halves of the texts."""
    whole = LayerStep(
        pooled([half.before for half in halves]),
        pooled([half.after for half in halves]),
        pooled_cross([half.cross for half in halves]),
    )
    n, dim = whole.before.n, whole.before.dim
    if n <= dim + 1:
        return LayerLinearity(
            tokens=n, reason=f"too few: any {n} tokens in {dim} dimensions fit a linear map"
        )
    if not (_varies(whole.before) and _varies(whole.after)):
        return LayerLinearity(tokens=n, reason="all tokens are equal")
    stream, contribution = _scores(_map(whole), whole, whole)
    outside: list[tuple[float | None, float | None]] = []
    if len(halves) == 2 and min(half.before.n for half in halves) > dim + 1:
        for fitted, scored in (halves, (halves[1], halves[0])):
            if all(map(_varies, (fitted.before, scored.after))):
                outside.append(_scores(_map(fitted), fitted, scored))
    held_out = [_mean([scores[i] for scores in outside]) for i in (0, 1)]
    return LayerLinearity(
        tokens=n,
        stream=stream,
        contribution=contribution,
        held_out_stream=held_out[0],
        held_out_contribution=held_out[1],
        optimistic=n < MANY_TOKENS * dim,
    )


def _map(step: LayerStep) -> Float64[np.ndarray, "dim dim"]:
    """A with the least ‖XA − Y‖² of the centred rows.

    Columns are scaled to length 1 first, so that one large coordinate costs the others no
    digits. Of columns that depend on each other, the smallest A: normalised states have one such
    direction, embeddings of few words many, and held-out words are not to be mapped by rounding.
    """
    gram, cross = step.before.scatter, step.cross.scatter
    lengths = np.sqrt(np.diag(gram))
    usable = lengths > 0
    scale = np.where(usable, 1.0 / np.where(usable, lengths, 1.0), 0.0)
    scaled = gram * scale * scale[:, None]
    target = cross * scale[:, None]
    factor = _factor(scaled)
    if factor is None:
        values, vectors = eigh(scaled, driver="evd")
        kept = values > NO_DIRECTION * values[-1]
        inverse = np.divide(1.0, values, out=np.zeros(len(values)), where=kept)
        solved = (vectors * inverse) @ (vectors.T @ target)
    else:
        solved = cho_solve((factor, False), target)
    answer: Float64[np.ndarray, "dim dim"] = solved * scale[:, None]
    return answer


def _factor(scaled: Float64[np.ndarray, "dim dim"]) -> Float64[np.ndarray, "dim dim"] | None:
    """The upper Cholesky factor; None where some column nearly depends on the others."""
    try:
        factor: Float64[np.ndarray, "dim dim"] = cho_factor(scaled)[0]
    except LinAlgError:
        return None
    return factor if float(np.diag(factor).min()) ** 2 > NEARLY_DEPENDENT else None


def _scores(
    fit: Float64[np.ndarray, "dim dim"], fitted: LayerStep, scored: LayerStep
) -> tuple[float | None, float | None]:
    """(of the output, of the contribution), 1 − residual/variance, each on the scored tokens.

    ‖Y − XA‖² = tr Syy − 2 tr(AᵀSxy) + tr(AᵀSxxA), and n times the square of what the means miss.
    """
    n = scored.after.n
    before, after, cross = scored.before.scatter, scored.after.scatter, scored.cross.scatter
    missed = (scored.after.mean - fitted.after.mean) - (
        scored.before.mean - fitted.before.mean
    ) @ fit
    residual = float(
        np.trace(after)
        - 2.0 * np.einsum("ij,ij->", fit, cross)
        + np.einsum("ij,ij->", fit, before @ fit)
        + n * float(missed @ missed)
    )
    total = float(np.trace(after))
    own = total - 2.0 * float(np.trace(cross)) + float(np.trace(before))
    # a layer that adds nothing has no contribution that could be linear
    moves = own > len(before) * float(np.finfo(np.float32).eps) ** 2 * total
    return 1.0 - residual / total, 1.0 - residual / own if moves else None


def _varies(moments: Moments) -> bool:
    about_mean = float(np.trace(moments.scatter))
    about_origin = about_mean + moments.n * float(moments.mean @ moments.mean)
    return moments.n > 1 and about_mean > SPREAD_ROUNDING * about_origin


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return float(np.mean(known)) if known else None
