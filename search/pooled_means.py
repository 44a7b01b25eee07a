"""Mean removal from pooled vectors, for what works on vectors alone: candidates, axes, maps.

Two fine-tunes of one base are alike because both were fine-tuned, whatever the data, and two
adapters because adapters leave most of a model alone: their fingerprints share their kind's
mean μ. With x and y of unit length the centred cosine is that of x − aμ(x) and y − aμ(y);
a = n / (n + SHRINKAGE) keeps the mean of a few models from deciding, and is 0 for none.
(Mean removal against hubs: Suzuki et al. 2013; all-but-the-mean: Mu, Viswanath 2018.)
Scores are not centred but normalised: `scoring/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Float64, Shaped
from ..store import FamilyView, block_dims
from .scoring.cohort import Cohort

SHRINKAGE = 2.0
"""Weight of "nothing in common" in a mean, in models."""


def shrinkage(n_models: int) -> float:
    """a: how much of a mean over that many models is taken out, 0…1."""
    return n_models / (n_models + SHRINKAGE)


@dataclass(frozen=True, slots=True)
class PooledMeans:
    """aμ of every kind, for pooled vectors."""

    by_kind: Mapping[str, Float64[np.ndarray, " dim"]]

    @classmethod
    def of(cls, view: FamilyView) -> PooledMeans:
        """Of a family's kinds, over its cohort; computed once for as long as its models stay."""

        def make(view: FamilyView) -> PooledMeans:
            by_kind = Cohort.of(view).by_kind
            return cls.over({kind: view.vectors(view.keys[rows]) for kind, rows in by_kind.items()})

        return view.derived(cls, make) if block_dims(view.recipe) else cls({})

    @classmethod
    def over(cls, vectors: Mapping[str, Shaped[np.ndarray, "models dim"]]) -> PooledMeans:
        """Over the unit vectors of each kind."""
        return cls(
            {
                kind: shrinkage(len(rows)) * rows.astype(np.float64).mean(axis=0)
                for kind, rows in vectors.items()
            }
        )

    def centred(
        self, kinds: Sequence[str], vectors: Shaped[np.ndarray, "models dim"]
    ) -> Float64[np.ndarray, "models dim"]:
        """The vectors without their kind's mean, of unit length again."""
        centred: Float64[np.ndarray, "models dim"] = vectors.astype(np.float64)
        for kind in set(kinds) & set(self.by_kind):
            of_kind = [other == kind for other in kinds]
            if all(of_kind):
                centred -= self.by_kind[kind]
            else:
                centred[of_kind] -= self.by_kind[kind]
        lengths = np.sqrt(np.vecdot(centred, centred))[:, None]
        centred /= np.where(lengths > 0, lengths, 1.0)
        return centred
