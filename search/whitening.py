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

from dataclasses import dataclass

import numpy as np

from ..arrays import Float64, Int64

Terms = Float64[np.ndarray, "blocks #models #others"]

RIDGE = 0.5
"""c, in squared lengths of a model: what 0.1 to 1 give differs by less than draws of a family."""

LEAST_VARIANCE = 0.02
"""Of a model given the cohort, in squared lengths: several copies of it may be in there."""

PAIRS_AT_ONCE = 2**16
"""Over all blocks: what they are computed from stays in the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Some models as the cohort sees them, a row of numbers each, which a file can hold: the place
    of the model itself, or of its nearest, in the cohort; how much of a copy that is, 0…1; block by
    block its variance given the cohort and what that place explains of it; block by block its
    cosines with the cohort."""

    numbers: Float64[np.ndarray, "models numbers"]
    n_cohort: int

    def take(self, rows: Int64[np.ndarray, " rows"]) -> Seen:
        return Seen(self.numbers[rows], self.n_cohort)

    @property
    def place(self) -> Int64[np.ndarray, " models"]:
        return self.numbers[:, 0].astype(np.int64)

    @property
    def share(self) -> Float64[np.ndarray, " models"]:
        return self.numbers[:, 1]

    @property
    def variance(self) -> Float64[np.ndarray, "blocks models"]:
        return self.numbers[:, 2 : 2 + 2 * self._n_blocks : 2].T

    @property
    def explained(self) -> Float64[np.ndarray, "blocks models"]:
        return self.numbers[:, 3 : 3 + 2 * self._n_blocks : 2].T

    @property
    def cosines(self) -> Float64[np.ndarray, "blocks models cohort"]:
        flat = self.numbers[:, 2 + 2 * self._n_blocks :]
        return flat.reshape(len(flat), self._n_blocks, self.n_cohort).transpose(1, 0, 2)

    @property
    def _n_blocks(self) -> int:
        return int((self.numbers.shape[1] - 2) // (self.n_cohort + 2))


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
        rows, share = np.arange(n_models), np.ones(n_models)
        columns = [own.astype(np.float64), share]
        for known, inverse in zip(cosines, self._inverses, strict=True):
            explained = known @ inverse
            # a model without the block has no cosines at all, and its variance is left at 0
            columns.append(known.any(axis=1) - np.vecdot(known, explained))
            columns.append(explained[rows, own] if n_cohort else share)
        if n_cohort:
            share -= strangers[rows, own]
        flat = cosines.transpose(1, 0, 2).reshape(n_models, len(cosines) * n_cohort)
        return Seen(np.concatenate([np.column_stack(columns), flat], axis=1), n_cohort)

    def __call__(
        self, cosines: Float64[np.ndarray, "blocks models others"], left: Seen, right: Seen
    ) -> Float64[np.ndarray, "blocks models others"]:
        """The whitened cosines of every pair, −1…1."""
        if not left.n_cohort:
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
    of_left, others_known = left.cosines @ inverses, right.cosines.transpose(0, 2, 1)
    x_own, x_other = left.explained[:, :, None], of_left[:, :, others_place]
    y_own, y_other = inverses[:, place] @ others_known, right.explained[:, None, :]

    def added(own: Terms, others: Terms, own_too: Terms, others_too: Terms) -> Terms:
        crossed = own * others_too + others * own_too
        return np.asarray(
            weights[0] * own * own_too + weights[1] * others * others_too - weights[2] * crossed
        )

    covariances = cosines - of_left @ others_known + added(x_own, x_other, y_own, y_other)
    variances = (
        left.variance[:, :, None] + added(x_own, x_other, x_own, x_other),
        right.variance[:, None, :] + added(y_own, y_other, y_own, y_other),
    )
    lengths = np.sqrt(np.maximum(variances, LEAST_VARIANCE).prod(axis=0))
    return np.asarray(np.clip(covariances / lengths, -1.0, 1.0))
