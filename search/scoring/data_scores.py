"""Scores of a data set's gradient with a family's models, normalised on both sides.

The gradient of a base's loss over a data set, negated, is treated as a full fine-tune's ΔW. On the
data set's side its cosines are normalised by those with the family's strangers, as a model's are.
On a model's side they are normalised by its cosines with the gradients of *other* data (data sets
that were kept, and the same texts with their labels permuted) where there are enough of these:
models lie nearer to some gradients than to others whatever the data. Else by the model's cosines
with other models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Float64
from ...store import SketchMatrix, true_cosines
from .family_scores import FamilyScores, Scored
from .normalisation import (
    LEAST_SPREAD,
    PairScores,
    Traits,
    lower_spread,
    normalised,
    plain,
    weights_by_kinds,
)

FEWEST_REFERENCES = 10
"""Gradients of other data from which models are normalised by them: of the 12 sets of
docs/find-trained-on.md eleven others are better than the family's models, eight are as good."""

PRIOR_REFERENCES = 4.0
"""Weight of all models' spread in that of one model, in references: few know it badly."""

KIND = "full"
"""A gradient changes every weight, as full fine-tunes do."""


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Gradients of data, ready to be compared with models.

    Attributes:
        features: A row each.
        traits: Normalised by the family's cohort.
    """

    features: SketchMatrix
    traits: Traits


class DataScores:
    """Scores of gradients with the models of a family."""

    def __init__(self, family: FamilyScores, references: SketchMatrix | None) -> None:
        """Of a family, with gradients of other data, if there are some."""
        self.family = family
        many = references is not None and len(references) >= FEWEST_REFERENCES
        self._references = references if many else None
        self.n_references = len(references) if many and references is not None else 0
        blocks = list(family.strangers.features.dims)
        self._weights = weights_by_kinds(blocks, [KIND] * len(family.kinds))

    def prepare(self, sketches: SketchMatrix) -> Gradients:
        """Gradients, compared with the cohort."""
        n = len(sketches)
        scored = self.family.prepare(sketches, [KIND] * n, [-1] * n)
        return Gradients(sketches, scored.traits)

    def compare(self, gradients: Gradients, models: Scored) -> PairScores:
        """Cosines and z of every gradient with every model.

        z is in deviations of the same gradient's scores with the cohort, above their median.
        """
        cosines, raw = self._raw(gradients, models)
        _, among_cohort = self._raw(gradients, self.family.strangers)
        z = np.empty_like(raw)
        for row, strangers in enumerate(among_cohort):
            centre, spread = lower_spread(strangers)
            z[row] = (raw[row] - centre) / spread
        return PairScores(cosines=cosines, z=z)

    def _raw(
        self, gradients: Gradients, models: Scored
    ) -> tuple[Float64[np.ndarray, "gradients models"], Float64[np.ndarray, "gradients models"]]:
        """Plain cosines, and normalised ones that are on no scale yet."""
        cosines, traits = gradients.features.cosines(models.features), self._seen_from_data(models)
        whole = plain(
            cosines,
            (gradients.traits.kinds, gradients.traits.blocks),
            (traits.kinds, traits.blocks),
            self._weights,
        )
        return true_cosines(whole), normalised(cosines, gradients.traits, traits, self._weights)

    def _seen_from_data(self, models: Scored) -> Traits:
        """The models' traits, with centres and spreads of their cosines with other data."""
        if self._references is None:
            return models.traits
        cosines = self._references.cosines(models.features)
        n = cosines.shape[1]
        centre, variance = np.median(cosines, axis=1), cosines.var(axis=1)
        typical = np.median(variance, axis=1, keepdims=True)
        spread = np.sqrt((n * variance + PRIOR_REFERENCES * typical) / (n + PRIOR_REFERENCES))
        traits, kind = models.traits, self._kind
        centres, spreads = traits.centres.copy(), traits.spreads.copy()
        centres[:, :, kind], spreads[:, :, kind] = centre, np.maximum(spread, LEAST_SPREAD)
        return replace(traits, centres=centres, spreads=spreads)

    @property
    def _kind(self) -> int:
        """Which of a model's traits a gradient meets: those of its kind, else of the first."""
        kinds = self.family.kinds
        return kinds.index(KIND) if KIND in kinds else 0
