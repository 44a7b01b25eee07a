"""Cosines of what two models have in common beyond what the family explains of either.

A family's cosines have a few large directions that all models share. With the feature vectors of a
cohort as the columns of Φ, they are whitened by (ΦΦᵀ + cI)^-½, in its kernel form the covariance of
two models given the cohort,

    k(x, y | X) = k(x, y) − k(x, X) (C + cI)⁻¹ k(X, y),

which is scaled to a unit diagonal. (Whitening before length normalisation: Garcia-Romero,
Espy-Wilson, Interspeech 2011; the posterior covariance: Rasmussen, Williams 2006, eq. 2.24; the
sums are those of ridge-shrunken partial correlations.) A model of the cohort is taken out of X for
its own pairs, by the inverse's blocks, as is the copy of a model that is no member: whether a model
is in the cohort changes none of its scores, and a copy has those of its original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import TypeVar

import numpy as np

from ..arrays import Float64, Int64

Terms = Float64[np.ndarray, "blocks #models #others"]

RIDGE = 0.5
"""c, in squared lengths of a model: what 0.1 to 1 give differs by less than draws of a family."""

LEAST_VARIANCE = 0.02
"""Of a model given the cohort, in squared lengths: several copies of it may be in there."""

PAIRS_AT_ONCE = 2**16
"""Over all blocks: what they are computed from stays in the processor's cache."""


AnyColumns = TypeVar("AnyColumns", bound="Columns")


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Arrays with a row for each of some models."""

    def take(self: AnyColumns, rows: Int64[np.ndarray, " rows"]) -> AnyColumns:
        return replace(self, **{one.name: getattr(self, one.name)[rows] for one in fields(self)})

    @classmethod
    def joined(cls: type[AnyColumns], parts: Sequence[AnyColumns]) -> AnyColumns:
        names = [one.name for one in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def numbers(self) -> Float64[np.ndarray, "models numbers"]:
        """All of them, for a file."""
        parts = [getattr(self, one.name) for one in fields(self)]
        return np.concatenate([part.reshape(len(part), _width(part)) for part in parts], axis=1)

    def of_numbers(self: AnyColumns, numbers: Float64[np.ndarray, "others numbers"]) -> AnyColumns:
        """The same columns of other models."""
        columns, start = {}, 0
        for one in fields(self):
            own = getattr(self, one.name)
            part = numbers[:, start : start + _width(own)].reshape(len(numbers), *own.shape[1:])
            columns[one.name] = part.astype(own.dtype, copy=False)
            start += _width(own)
        return replace(self, **columns)


def _width(column: np.ndarray) -> int:
    return prod(column.shape[1:])


@dataclass(frozen=True, slots=True, eq=False)
class Seen(Columns):
    """Some models as the cohort sees them: the place of the model itself, or of its nearest, in the
    cohort; how much of a copy that is, 0…1; block by block its variance given the cohort and what
    that place explains of it; block by block its cosines with the cohort."""

    place: Int64[np.ndarray, " models"]
    share: Float64[np.ndarray, " models"]
    given: Float64[np.ndarray, "models blocks 2"]
    cosines: Float64[np.ndarray, "models blocks cohort"]


class Whitening:
    """The inverses (C + cI)⁻¹ of a cohort's blocks."""

    def __init__(self, cosines: Float64[np.ndarray, "blocks cohort cohort"]) -> None:
        ridge = RIDGE * np.eye(cosines.shape[1])
        inverses = np.linalg.inv((cosines + cosines.transpose(0, 2, 1)) / 2 + ridge)
        self._inverses = (inverses + inverses.transpose(0, 2, 1)) / 2

    def see(
        self,
        cosines: Float64[np.ndarray, "blocks models cohort"],
        whole: Float64[np.ndarray, "models cohort"],
        strangers: Float64[np.ndarray, "models cohort"],
        places: Int64[np.ndarray, " models"],
    ) -> Seen:
        """Models at some `places` of the cohort, −1 for others, with their plain cosines, and how
        much of a stranger each model of the cohort is, 0…1."""
        n_models, n_cohort = whole.shape
        own = np.where(places >= 0, places, whole.argmax(axis=1) if n_cohort else 0)
        rows, given = np.arange(n_models), np.ones((n_models, len(cosines), 2))
        for block, (known, inverse) in enumerate(zip(cosines, self._inverses, strict=True)):
            explained = known @ inverse
            # a model without the block has no cosines at all, and its variance is left at 0
            given[:, block, 0] = known.any(axis=1) - np.vecdot(known, explained)
            if n_cohort:
                given[:, block, 1] = explained[rows, own]
        share = 1.0 - strangers[rows, own] if n_cohort else np.ones(n_models)
        return Seen(own, share, given, cosines.transpose(1, 0, 2))

    def __call__(
        self, cosines: Float64[np.ndarray, "blocks models others"], left: Seen, right: Seen
    ) -> Float64[np.ndarray, "blocks models others"]:
        """The whitened cosines of every pair, −1…1."""
        if not left.cosines.shape[2]:
            return cosines
        if cosines.shape[1] > cosines.shape[2]:
            return self(cosines.transpose(0, 2, 1), right, left).transpose(0, 2, 1)
        whitened = np.empty(cosines.shape)
        step = max(1, PAIRS_AT_ONCE // max(1, cosines.shape[0] * cosines.shape[2]))
        for start in range(0, cosines.shape[1], step):
            rows = np.arange(start, min(start + step, cosines.shape[1]))
            some = left.take(rows)
            whitened[:, rows] = _correlations(cosines[:, rows], some, right, self._inverses)
        return whitened


def _correlations(
    cosines: Float64[np.ndarray, "blocks models others"],
    left: Seen,
    right: Seen,
    inverses: Float64[np.ndarray, "blocks cohort cohort"],
) -> Float64[np.ndarray, "blocks models others"]:
    """Covariances given the cohort without E, over the roots of both variances.

    With E the places left out and M the inverse, leaving them out adds u_Eᵀ (M_EE)⁻¹ v_E to
    k(x, y | X), u = M k(X, x), v = M k(X, y); a place that is left out in part, by a share s, has
    M_ii / s on the diagonal of M_EE.
    """
    place, others_place = left.place, right.place
    diagonal = np.diagonal(inverses, axis1=1, axis2=2)
    one, other = diagonal[:, place, None], diagonal[:, None, others_place]
    is_same = place[:, None] == others_place
    # one place that both leave out counts once, on the side with the larger share
    first = np.where(is_same, np.maximum(left.share[:, None], right.share), left.share[:, None])
    second = np.where(is_same, 0.0, right.share)
    between = np.where(is_same, 0.0, inverses[:, place[:, None], others_place])
    determinant = one * other - first * second * np.square(between)
    weights = (
        first * other / determinant,
        second * one / determinant,
        first * second * between / determinant,
    )
    # of x and y, what each of the two places explains
    of_left = left.cosines.transpose(1, 0, 2) @ inverses
    others_known = right.cosines.transpose(1, 2, 0)
    x_variance, x_own = left.given.T[..., None]
    y_variance, y_other = right.given.T[:, :, None]
    x_other, y_own = of_left[:, :, others_place], inverses[:, place] @ others_known

    def added(own: Terms, others: Terms, own_too: Terms, others_too: Terms) -> Terms:
        crossed = own * others_too + others * own_too
        return np.asarray(
            weights[0] * own * own_too + weights[1] * others * others_too - weights[2] * crossed
        )

    covariances = cosines - of_left @ others_known + added(x_own, x_other, y_own, y_other)
    variances = (
        x_variance + added(x_own, x_other, x_own, x_other),
        y_variance + added(y_own, y_other, y_own, y_other),
    )
    lengths = np.sqrt(np.maximum(variances, LEAST_VARIANCE).prod(axis=0))
    return np.asarray(np.clip(covariances / lengths, -1.0, 1.0))
