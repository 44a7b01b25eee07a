"""The scores of a family's pairs: cosines of sketches, normalised against its strangers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Bool, Float64, Int64
from ...records import Recipe
from ...store import FamilyView, SketchMatrix, block_dims, true_cosines
from .cohort import sample_by_kind
from .evidence import COPY_COSINE, Calibration, calibrate
from .normalisation import (
    PART_WEIGHTS,
    PairScores,
    Traits,
    codes_of,
    deviation,
    lower_spread,
    measure_scale,
    measure_traits,
    normalised,
    plain,
    profile_correlations,
    weights_by_kinds,
)

COPY_MARGIN = 0.05
"""Below `COPY_COSINE`: where a model turns from a stranger into a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Some models, ready to be compared: their features, and what normalises their scores."""

    features: SketchMatrix
    traits: Traits

    def take(self, rows: Int64[np.ndarray, " rows"]) -> Scored:
        """Some of the rows, in that order."""
        return Scored(self.features.take(rows), self.traits.take(rows))


class FamilyScores:
    """What the scores of a family's pairs are normalised with.

    Attributes:
        cohort: Rows of the models that stand for its strangers.
        kinds: Of models, in order.
        cohort_z: Of every pair of the cohort.
        are_strangers: Which of these pairs are not a model with itself or a copy.
        has_sketches: Whether any model of the cohort has a sketch.
    """

    def __init__(
        self,
        ids: Sequence[str],
        kinds: Sequence[str],
        recipe: Recipe,
        read: Callable[[Int64[np.ndarray, " rows"]], SketchMatrix],
    ) -> None:
        """Of the models with these ids and kinds; `read` gives the features of some rows.

        Peak: the features of the cohort, and its cosines.
        """
        sample = sample_by_kind(ids, kinds)
        self.kinds = tuple(sample)
        self.cohort = np.concatenate([np.zeros(0, dtype=np.int64), *sample.values()])
        self._place = {row: place for place, row in enumerate(self.cohort.tolist())}
        self._weights = weights_by_kinds(list(block_dims(recipe)), self.kinds)
        self._cohort_kinds = codes_of([kinds[row] for row in self.cohort.tolist()], self.kinds)
        self._features = read(self.cohort)
        self.has_sketches = bool(self._features.has_sketches.any())
        self._measure(self._features.cosines(self._features))

    @classmethod
    def of(cls, view: FamilyView) -> FamilyScores | None:
        """Of a family at one moment; computed once for as long as its models stay the same.

        None where its models have no sketches.
        """
        if not block_dims(view.recipe):
            return None
        family = view.derived(
            cls, lambda v: cls(v.ids, v.kinds, v.recipe, lambda rows: v.sketches(v.keys[rows]))
        )
        return family if family.has_sketches else None

    def prepare(self, features: SketchMatrix, kinds: Sequence[str], rows: Sequence[int]) -> Scored:
        """Some models, compared with the cohort.

        Args:
            rows: Of the models in the family; −1 for one that is not stored.
        """
        cosines = features.cosines(self._features)
        codes, counts = codes_of(kinds, self.kinds), self._counts(rows)
        traits = self._traits_of(cosines, codes, counts)
        first = normalised(cosines, traits, self._traits, self._weights)
        return Scored(features, traits.with_profile(first))

    def stored(self, view: FamilyView, rows: Int64[np.ndarray, " rows"]) -> Scored:
        """Some stored models, compared with the cohort."""
        listed = rows.tolist()
        return self.prepare(
            view.sketches(view.keys[rows]), [view.kinds[row] for row in listed], listed
        )

    def compare(self, left: Scored, right: Scored) -> PairScores:
        """The scores of every pair. Peak: as of their cosines."""
        cosines = left.features.cosines(right.features)
        kinds = left.traits.kinds, right.traits.kinds
        plain_cosines = plain(cosines, *kinds, self._weights)
        parts = (
            normalised(cosines, left.traits, right.traits, self._weights),
            profile_correlations(left.traits, right.traits),
            plain_cosines,
        )
        z = self._null.of(self._sum(parts, *kinds), *kinds)
        return PairScores(cosines=true_cosines(plain_cosines), z=z)

    def calibration(self, view: FamilyView) -> Calibration:
        """How the tail of the family's strangers is known, by its labels as of now."""
        labels = view.labels_at(self.cohort.tolist())
        names = [labels[row].dataset if row in labels else None for row in self.cohort.tolist()]
        return calibrate(self.cohort_z, names, self.are_strangers, len(view))

    def _measure(self, cosines: Float64[np.ndarray, "blocks cohort cohort"]) -> None:
        """Traits of the cohort, and the scales of all that a score is a sum of."""
        kinds, counts = self._cohort_kinds, self._counts(self.cohort.tolist())
        traits = self._traits_of(cosines, kinds, counts)
        first = normalised(cosines, traits, traits, self._weights)
        self._traits = traits.with_profile(first)
        plain_cosines = plain(cosines, kinds, kinds, self._weights)
        self.are_strangers = counts & (true_cosines(plain_cosines) < COPY_COSINE)
        parts = first, profile_correlations(self._traits, self._traits), plain_cosines
        self._scales = [measure_scale(part, self.are_strangers, kinds, deviation) for part in parts]
        total = self._sum(parts, kinds, kinds)
        self._null = measure_scale(total, self.are_strangers, kinds, lower_spread)
        self.cohort_z = self._null.of(total, kinds, kinds)

    def _counts(self, rows: Sequence[int]) -> Bool[np.ndarray, "models cohort"]:
        """Which models of the cohort are another than the model itself."""
        places = np.array([self._place.get(row, -1) for row in rows], dtype=np.int64)
        others: Bool[np.ndarray, "models cohort"] = (
            np.arange(len(self.cohort))[None, :] != places[:, None]
        )
        return others

    def _traits_of(
        self,
        cosines: Float64[np.ndarray, "blocks models cohort"],
        kinds: Int64[np.ndarray, " models"],
        counts: Bool[np.ndarray, "models cohort"],
    ) -> Traits:
        """Traits without a profile; a copy is no stranger, and a near one is less of one."""
        whole = true_cosines(plain(cosines, kinds, self._cohort_kinds, self._weights))
        weights = counts * np.clip((COPY_COSINE - whole) / COPY_MARGIN, 0.0, 1.0)
        return measure_traits(cosines, kinds, self._cohort_kinds, weights, counts, len(self.kinds))

    def _sum(
        self,
        parts: Sequence[Float64[np.ndarray, "models others"]],
        left: Int64[np.ndarray, " models"],
        right: Int64[np.ndarray, " others"],
    ) -> Float64[np.ndarray, "models others"]:
        """All that a score is a sum of, each on its own scale."""
        total = np.zeros(parts[0].shape)
        for part, scale, weight in zip(parts, self._scales, PART_WEIGHTS, strict=True):
            total += weight * scale.of(part, left, right)
        return total
