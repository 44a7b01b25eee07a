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

Terms = Float64[np.ndarray, "#models #others"]

RIDGE = 0.5
"""c, in squared lengths of a model: what 0.1 to 1 give differs by less than draws of a family."""

LEAST_VARIANCE = 0.02
"""Of a model given the cohort, in squared lengths: several copies of it may be in there."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Some models as the cohort sees them, a row of numbers each, which a file can hold: the place
    of the model itself, or of its nearest, in the cohort; how much of a copy that is, 0…1; its
    cosines with the cohort, block by block."""

    numbers: Float64[np.ndarray, "models numbers"]

    @classmethod
    def of(
        cls,
        cosines: Float64[np.ndarray, "blocks models cohort"],
        whole: Float64[np.ndarray, "models cohort"],
        strangers: Float64[np.ndarray, "models cohort"],
        places: Int64[np.ndarray, " models"],
    ) -> Seen:
        """Of models at some `places` of the cohort, −1 for others, with their plain cosines, and
        how much of a stranger each model of the cohort is, 0…1."""
        n_models, n_cohort = whole.shape
        own = np.where(places >= 0, places, whole.argmax(axis=1) if n_cohort else 0)
        share = np.ones(n_models)
        if n_cohort:
            share -= strangers[np.arange(n_models), own]
        flat = cosines.transpose(1, 0, 2).reshape(n_models, len(cosines) * n_cohort)
        return cls(np.concatenate([own[:, None], share[:, None], flat], axis=1))

    def take(self, rows: Int64[np.ndarray, " rows"]) -> Seen:
        return Seen(self.numbers[rows])

    @property
    def own(self) -> Int64[np.ndarray, " models"]:
        return self.numbers[:, 0].astype(np.int64)

    @property
    def share(self) -> Float64[np.ndarray, " models"]:
        return self.numbers[:, 1]

    def cosines(self, block: int, n_cohort: int) -> Float64[np.ndarray, "models cohort"]:
        start = 2 + block * n_cohort
        return self.numbers[:, start : start + n_cohort]


class Whitening:
    """The inverses (C + cI)⁻¹ of a cohort's blocks."""

    def __init__(self, cosines: Float64[np.ndarray, "blocks cohort cohort"]) -> None:
        ridge = RIDGE * np.eye(cosines.shape[1])
        inverses = [np.linalg.inv((block + block.T) / 2 + ridge) for block in cosines]
        self._inverses = [(inverse + inverse.T) / 2 for inverse in inverses]

    def __call__(
        self,
        cosines: Float64[np.ndarray, "blocks models others"],
        left: Seen,
        right: Seen,
    ) -> Float64[np.ndarray, "blocks models others"]:
        """The whitened cosines of every pair, −1…1. Peak: five times those of one block."""
        if not self._inverses or not len(self._inverses[0]):
            return cosines
        return np.stack(
            [
                _correlations(
                    block,
                    _Side.of(left, place, inverse),
                    _Side.of(right, place, inverse),
                    inverse,
                )
                for place, (block, inverse) in enumerate(zip(cosines, self._inverses, strict=True))
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One side of the pairs, of one block.

    known: cosines with the cohort; explained: these times (C + cI)⁻¹; variance: of a model given
    the whole cohort; place, share: what of the cohort is left out for it.
    """

    known: Float64[np.ndarray, "models cohort"]
    explained: Float64[np.ndarray, "models cohort"]
    variance: Float64[np.ndarray, " models"]
    place: Int64[np.ndarray, " models"]
    share: Float64[np.ndarray, " models"]

    @classmethod
    def of(cls, seen: Seen, block: int, inverse: Float64[np.ndarray, "cohort cohort"]) -> _Side:
        known = seen.cosines(block, len(inverse))
        explained = known @ inverse
        # a model without the block has no cosines at all, and its variance is left at 0
        variance = known.any(axis=1) - np.vecdot(known, explained)
        return cls(known, explained, variance, seen.own, seen.share)


def _correlations(
    cosines: Float64[np.ndarray, "models others"],
    left: _Side,
    right: _Side,
    inverse: Float64[np.ndarray, "cohort cohort"],
) -> Float64[np.ndarray, "models others"]:
    """Covariances given the cohort without E, over the roots of both variances.

    With E the places left out and M the inverse, leaving them out adds u_Eᵀ (M_EE)⁻¹ v_E to
    k(x, y | X), u = M k(X, x), v = M k(X, y); a place that is left out in part, by a share s, has
    M_ii / s on the diagonal of M_EE.
    """
    rows, columns = np.arange(len(left.place)), np.arange(len(right.place))
    diagonal = np.diag(inverse)
    one, other = diagonal[left.place][:, None], diagonal[right.place][None, :]
    is_same = left.place[:, None] == right.place[None, :]
    # one place that both leave out counts once, on the side with the larger share
    first = np.where(is_same, np.maximum(left.share[:, None], right.share), left.share[:, None])
    second = np.where(is_same, 0.0, right.share[None, :])
    between = np.where(is_same, 0.0, inverse[np.ix_(left.place, right.place)])
    determinant = one * other - first * second * np.square(between)
    weights = (
        first * other / determinant,
        second * one / determinant,
        first * second * between / determinant,
    )
    # of x and y, what each of the two places explains
    x_own = left.explained[rows, left.place][:, None]
    x_other = left.explained[:, right.place]
    y_own = right.explained[:, left.place].T
    y_other = right.explained[columns, right.place][None, :]

    def added(own: Terms, others: Terms, own_too: Terms, others_too: Terms) -> Terms:
        crossed = own * others_too + others * own_too
        return np.asarray(
            weights[0] * own * own_too + weights[1] * others * others_too - weights[2] * crossed
        )

    covariances = cosines - left.explained @ right.known.T + added(x_own, x_other, y_own, y_other)
    of_left = left.variance[:, None] + added(x_own, x_other, x_own, x_other)
    of_right = right.variance[None, :] + added(y_own, y_other, y_own, y_other)
    lengths = np.sqrt(np.maximum(of_left, LEAST_VARIANCE) * np.maximum(of_right, LEAST_VARIANCE))
    return np.clip(covariances / lengths, -1.0, 1.0)
