"""Scores of a data set's gradient with a family's models, normalised on both sides.

The gradient of a base's loss over a data set, negated, is treated as a full fine-tune's ΔW, and its
cosines are normalised as a model's are: by those of both sides with the family's strangers. Where
enough gradients of *other* data are kept, a model's side is also normalised by its cosines with
these, and the lower of the two z counts: an answer must stand out among models and among data.
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
"""Gradients of other data from which models are normalised by them too; eight are noise."""

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
        cohort = self.family.strangers
        cosines = gradients.features.cosines(models.features)
        among_cohort = gradients.features.cosines(cohort.features)
        whole = plain(
            cosines,
            (gradients.traits.kinds, gradients.traits.blocks),
            (models.traits.kinds, models.traits.blocks),
            self._weights,
        )
        z = self._on_scale(gradients, cosines, models.traits, among_cohort, cohort.traits)
        if self._references is not None:
            seen, cohort_seen = (
                self._seen_from_data(some, self._references) for some in (models, cohort)
            )
            among_data = self._on_scale(gradients, cosines, seen, among_cohort, cohort_seen)
            z = np.minimum(z, among_data)
        return PairScores(cosines=true_cosines(whole), z=z)

    def _on_scale(
        self,
        gradients: Gradients,
        cosines: Float64[np.ndarray, "blocks gradients models"],
        traits: Traits,
        among_cohort: Float64[np.ndarray, "blocks gradients cohort"],
        cohort_traits: Traits,
    ) -> Float64[np.ndarray, "gradients models"]:
        """Normalised cosines, in deviations of those with the cohort."""
        raw = normalised(cosines, gradients.traits, traits, self._weights)
        strangers = normalised(among_cohort, gradients.traits, cohort_traits, self._weights)
        z = np.empty_like(raw)
        for row, values in enumerate(strangers):
            centre, spread = lower_spread(values)
            z[row] = (raw[row] - centre) / spread
        return z

    def _seen_from_data(self, models: Scored, references: SketchMatrix) -> Traits:
        """The models' traits, with centres and spreads of their cosines with other data."""
        cosines = references.cosines(models.features)
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
