"""The scores of a family's pairs: cosines of sketches, normalised against its strangers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...records import Recipe
from ...store import FamilyView, true_cosines
from .cohort import sample_by_kind
from .evidence import COPY_COSINE, Calibration, calibrate
from .normalisation import (
    PART_WEIGHTS,
    Scale,
    Traits,
    measure_traits,
    normalised,
    plain,
    profile_correlations,
    weights_by_kinds,
)

FEWEST_PAIRS = 10
"""Pairs of strangers from which two kinds have a scale of their own; else all pairs together."""

COPY_MARGIN = 0.05
"""Below `COPY_COSINE`: where a model turns from a stranger into a copy."""


@runtime_checkable
class Comparable(Protocol):
    """Some models' features, row by row."""

    def take(self, rows: Int64[np.ndarray, " rows"]) -> Comparable:
        """Some of the rows, in that order."""

    def cosines(self, other: Any) -> Float64[np.ndarray, "blocks models others"]:
        """Of every pair, block by block."""


class VectorMatrix:
    """Pooled vectors of unit length, compared as one block, where a recipe keeps no sketches."""

    def __init__(self, vectors: Float32[np.ndarray, "models dim"]) -> None:
        self.vectors = vectors

    def take(self, rows: Int64[np.ndarray, " rows"]) -> VectorMatrix:
        return VectorMatrix(self.vectors[rows])

    def cosines(self, other: VectorMatrix) -> Float64[np.ndarray, "blocks models others"]:
        """Of every pair, rounded: equal vectors have equal cosines wherever they are."""
        cosines: Float64[np.ndarray, "blocks models others"] = np.round(
            (self.vectors.astype(np.float64) @ other.vectors.astype(np.float64).T)[None], 12
        )
        return cosines


def has_sketches(recipe: Recipe) -> bool:
    """Whether models keep per-slot sketches under this recipe."""
    return "slot_blocks" in dict(recipe.params)


def blocks_of(recipe: Recipe) -> tuple[str, ...]:
    """The blocks that models are compared by."""
    listed = dict(recipe.params).get("slot_blocks", "vector:0")
    return tuple(part.split(":")[0] for part in listed.split(","))


def features(view: FamilyView, rows: Int64[np.ndarray, " rows"]) -> Comparable:
    """Some models' sketches, or their vectors where the recipe keeps none."""
    keys = view.keys[rows]
    return view.sketches(keys) if has_sketches(view.recipe) else VectorMatrix(view.vectors(keys))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairScores:
    """Scores of some models with some others.

    Attributes:
        cosines: Plain, over blocks and slots, −1…1.
        z: Normalised, in standard deviations above the family's strangers of these kinds.
    """

    cosines: Float64[np.ndarray, "models others"] = field(compare=False)
    z: Float64[np.ndarray, "models others"] = field(compare=False)


HALF_SCORE = 4.0
"""z that has the score 0.71; strangers are at 0, copies near 1."""

LARGEST_SCORE = 1 - 1e-9
"""Scores are compared to as many decimals."""


def bounded(z: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Scores from −1 to 1 in the order of z, so that 1 − score is a distance."""
    scores: Float64[np.ndarray, "*shape"] = z / np.sqrt(HALF_SCORE**2 + np.square(z))
    return scores


def unbounded(scores: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """z of scores; large where a score is 1."""
    inside = np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE)
    z: Float64[np.ndarray, "*shape"] = HALF_SCORE * inside / np.sqrt(1 - np.square(inside))
    return z


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Some models, ready to be compared: their features, and what normalises their scores."""

    features: Comparable
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
    """

    def __init__(
        self,
        ids: Sequence[str],
        kinds: Sequence[str],
        recipe: Recipe,
        read: Callable[[Int64[np.ndarray, " rows"]], Comparable],
    ) -> None:
        """Of the models with these ids and kinds; `read` gives the features of some rows.

        Peak: the features of the cohort, and its cosines.
        """
        sample = sample_by_kind(ids, kinds)
        self.kinds = tuple(sample)
        self.cohort = np.concatenate([np.zeros(0, dtype=np.int64), *sample.values()])
        self._place = {row: place for place, row in enumerate(self.cohort.tolist())}
        self._is_coded = has_sketches(recipe)
        self._weights = weights_by_kinds(blocks_of(recipe), self.kinds)
        self._cohort_kinds = self.codes([kinds[row] for row in self.cohort.tolist()])
        self._features = read(self.cohort)
        self._measure(self._features.cosines(self._features))

    @classmethod
    def of(cls, view: FamilyView) -> FamilyScores:
        """Of a family at one moment; computed once for as long as its models stay the same."""
        return view.derived(
            cls, lambda v: cls(v.ids, v.kinds, v.recipe, lambda rows: features(v, rows))
        )

    def codes(self, kinds: Sequence[str]) -> Int64[np.ndarray, " models"]:
        """Kinds as places in `kinds`; a kind that no stored model has counts as the first."""
        place = {kind: code for code, kind in enumerate(self.kinds)}
        return np.array([place.get(kind, 0) for kind in kinds], dtype=np.int64)

    def prepare(self, features: Comparable, kinds: Sequence[str], rows: Sequence[int]) -> Scored:
        """Some models, compared with the cohort.

        Args:
            rows: Of the models in the family; −1 for one that is not stored.
        """
        cosines = features.cosines(self._features)
        codes, counts = self.codes(kinds), self._counts(rows)
        traits = self._traits_of(cosines, codes, counts)
        first = normalised(cosines, traits, self._traits, self._weights)
        return Scored(features, traits.with_profile(first))

    def stored(self, view: FamilyView, rows: Int64[np.ndarray, " rows"]) -> Scored:
        """Some stored models, compared with the cohort."""
        listed = rows.tolist()
        return self.prepare(features(view, rows), [view.kinds[row] for row in listed], listed)

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
        return PairScores(cosines=self._true(plain_cosines), z=z)

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
        self.are_strangers = counts & (self._true(plain_cosines) < COPY_COSINE)
        parts = first, profile_correlations(self._traits, self._traits), plain_cosines
        self._scales = [_scale(part, self.are_strangers, kinds, _deviation) for part in parts]
        total = self._sum(parts, kinds, kinds)
        # the lower half of a few pairs is one of them: a family of four has no tail to leave out
        few = self.are_strangers.sum() < 2 * FEWEST_PAIRS
        measure = _deviation if few else _lower_spread
        self._null = _scale(total, self.are_strangers, kinds, measure)
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
        whole = self._true(plain(cosines, kinds, self._cohort_kinds, self._weights))
        weights = counts * np.clip((COPY_COSINE - whole) / COPY_MARGIN, 0.0, 1.0)
        return measure_traits(cosines, kinds, self._cohort_kinds, weights, counts, len(self.kinds))

    def _true(
        self, cosines: Float64[np.ndarray, "models others"]
    ) -> Float64[np.ndarray, "models others"]:
        return true_cosines(cosines) if self._is_coded else cosines

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


def _scale(
    values: Float64[np.ndarray, "cohort cohort"],
    is_pair: Bool[np.ndarray, "cohort cohort"],
    kinds: Int64[np.ndarray, " cohort"],
    measure: Callable[[Float64[np.ndarray, " pairs"]], tuple[float, float]],
) -> Scale:
    """Centre and spread of the strangers' values by pair of kinds."""
    everything = measure(values[is_pair])
    centre, spread = {}, {}
    codes = np.unique(kinds).tolist()
    for one in codes:
        for other in (code for code in codes if code >= one):
            chosen = is_pair & (kinds == one)[:, None] & (kinds == other)[None, :]
            enough = chosen.sum() >= FEWEST_PAIRS * (2 if one == other else 1)
            pair = measure(values[chosen]) if enough else everything
            centre[one, other], spread[one, other] = pair
    return Scale(centre, spread)


def _deviation(values: Float64[np.ndarray, " pairs"]) -> tuple[float, float]:
    """Median and standard deviation; 0 and 1 where there is nothing to measure."""
    if len(values) < 2:
        return 0.0, 1.0
    return float(np.median(values)), float(values.std()) or 1.0


def _lower_spread(values: Float64[np.ndarray, " pairs"]) -> tuple[float, float]:
    """Median, and its distance from the 16 % quantile: what is below it are strangers.

    Models of one data set are a right tail, so that the lower half alone tells of strangers
    (an empirical null by central matching: Efron 2004).
    """
    if len(values) < 2:
        return 0.0, 1.0
    low, middle = np.quantile(values, [NORMAL_LOWER, 0.5])
    return float(middle), float(middle - low) or 1.0


NORMAL_LOWER = 0.158655
"""Share of a normal distribution below one standard deviation under its centre."""
