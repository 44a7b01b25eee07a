"""Mean removal: the mean of all fine-tunes of a kind is subtracted before they are compared.

Two fine-tunes of one base are alike because both were fine-tuned, whatever the data, and two
adapters because adapters leave most of a model alone: their fingerprints share their kind's
mean μ. With x and y of unit length the centred cosine is that of x − aμ(x) and y − aμ(y);
a = n / (n + SHRINKAGE) keeps the mean of a few models from deciding, and is 0 for none.
(Mean removal against hubs: Suzuki et al. 2013; all-but-the-mean: Mu, Viswanath 2018.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Float64, Int64, Shaped
from ..records import Recipe

SHRINKAGE = 2.0
"""Weight of "nothing in common" in a mean, in models."""

REFERENCE = 256
"""Models of a kind that stand for all of them when the mean is taken."""


def is_centred(recipe: Recipe) -> bool:
    """Whether similarities under this recipe are centred by kind."""
    return dict(recipe.params).get("centring") == "kind"


def id_digest(id: str) -> bytes:
    """What a sample of models is sorted by: it depends neither on names nor on order."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()


def references(
    ids: Sequence[str], kinds: Sequence[str]
) -> dict[str, Int64[np.ndarray, " reference"]]:
    """Rows by kind that a mean is taken over, in order of id: all, or `REFERENCE` of them, picked
    by their ids."""
    chosen = {}
    for kind in sorted(set(kinds)):
        rows = [row for row, other in enumerate(kinds) if other == kind]
        if len(rows) > REFERENCE:
            rows.sort(key=lambda row: id_digest(ids[row]))
        rows = sorted(rows[:REFERENCE], key=ids.__getitem__)
        chosen[kind] = np.array(rows, dtype=np.int64)
    return chosen


def shrinkage(n_models: int) -> float:
    """a: how much of a mean over that many models is taken out, 0…1."""
    return n_models / (n_models + SHRINKAGE)


@dataclass(frozen=True, slots=True)
class PooledMeans:
    """aμ of every kind, for pooled vectors."""

    by_kind: Mapping[str, Float64[np.ndarray, " dim"]]

    @classmethod
    def of(
        cls, ids: Sequence[str], kinds: Sequence[str], vectors: Shaped[np.ndarray, "models dim"]
    ) -> PooledMeans:
        """Over models whose rows in `vectors` are unit vectors."""
        return cls(
            {
                kind: shrinkage(len(rows)) * vectors[rows].astype(np.float64).mean(axis=0)
                for kind, rows in references(ids, kinds).items()
            }
        )

    def centred(
        self, kinds: Sequence[str], vectors: Shaped[np.ndarray, "models dim"]
    ) -> Float64[np.ndarray, "models dim"]:
        """The vectors without their kind's mean, of unit length again."""
        centred = vectors.astype(np.float64)
        for row, kind in enumerate(kinds):
            centred[row] -= self.by_kind.get(kind, 0.0)
        lengths = np.linalg.norm(centred, axis=1, keepdims=True)
        unit: Float64[np.ndarray, "models dim"] = centred / np.where(lengths > 0, lengths, 1.0)
        return unit


def centre_scores(
    cosines: Float64[np.ndarray, "models models"], ids: Sequence[str], kinds: Sequence[str]
) -> Float64[np.ndarray, "models models"]:
    """Centred cosines of all pairs, from their cosines alone."""
    by_kind = references(ids, kinds)
    place = {kind: i for i, kind in enumerate(by_kind)}
    own = np.array([place[kind] for kind in kinds])
    with_means = np.stack(
        [shrinkage(len(rows)) * cosines[:, rows].mean(axis=1) for rows in by_kind.values()], axis=1
    )  # (models, kinds): ⟨x, aμ⟩
    of_means = np.stack(
        [shrinkage(len(rows)) * with_means[rows].mean(axis=0) for rows in by_kind.values()]
    )  # (kinds, kinds)
    crossed = with_means[:, own]
    inner = cosines - crossed - crossed.T + of_means[np.ix_(own, own)]
    lengths = np.sqrt(np.maximum(np.diag(inner), 0.0))
    lengths[lengths == 0] = 1.0
    scores: Float64[np.ndarray, "models models"] = inner / lengths[:, None] / lengths[None, :]
    return scores
