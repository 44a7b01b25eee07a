"""The scores of a family's pairs: cosines of sketches, normalised against its strangers."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Bool, Float64, Int64
from ...records import Recipe
from ...store import FamilyView, SketchMatrix, TraitFile, block_dims, true_cosines
from .cohort import Cohort
from .evidence import COPY_COSINE, LabelledCohort
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

KEPT_TRAITS = 4_000
"""Models whose comparison with the cohort is kept for later searches; 6 KB each."""

TRAIT_FILE_MIN_MODELS = 1_000
"""Models of a family whose traits are kept in a file for other processes."""

TRAITS_VERSION = "2"
"""Raised whenever the traits of the same sketches would change."""

Z_DECIMALS = 9
"""Of z: what is beyond depends on the order of the models in the catalog."""

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
        evidence: Of every pair of the cohort, with its labels.
        has_sketches: Whether any model of the cohort has a sketch.
    """

    def __init__(
        self,
        cohort: Cohort,
        recipe: Recipe,
        read: Callable[[Int64[np.ndarray, " rows"]], SketchMatrix],
    ) -> None:
        """Of the models that a cohort stands for; `read` gives the sketches of some rows.

        Peak: the sketches of the cohort, and its cosines.
        """
        self.cohort, self.kinds = cohort.rows, cohort.kinds
        self._place = {row: place for place, row in enumerate(self.cohort.tolist())}
        self._weights = weights_by_kinds(list(block_dims(recipe)), self.kinds)
        self._cohort_kinds = cohort.codes
        self._known: dict[int, Traits] = {}
        self._file: TraitFile | None = None
        self._recipe = recipe
        self._features = read(self.cohort)
        self._cohort_blocks = _blocks_of(self._features)
        self.has_sketches = bool(self._features.has_sketches.any())
        self._measure(self._features.cosines(self._features))

    @classmethod
    def of(cls, view: FamilyView) -> FamilyScores | None:
        """Of a family at one moment; computed once for as long as its models stay the same.

        None where its models have no sketches.
        """
        if not block_dims(view.recipe):
            return None
        family = view.derived(cls, cls._of)
        return family if family.has_sketches else None

    @property
    def strangers(self) -> Scored:
        """The models of the cohort."""
        return Scored(self._features, self._traits)

    @classmethod
    def _of(cls, view: FamilyView) -> FamilyScores:
        cohort = Cohort.of(view)
        family = cls(cohort, view.recipe, lambda rows: view.sketches(view.keys[rows]))
        if family.has_sketches and len(view) >= TRAIT_FILE_MIN_MODELS:
            n_blocks, n_kinds = len(block_dims(view.recipe)), len(cohort.kinds)
            n_numbers = Traits.n_numbers(n_blocks, n_kinds, len(cohort.rows))
            family._file = view.trait_file(family._digest(view), n_numbers)
        return family

    def _digest(self, view: FamilyView) -> bytes:
        """Of everything that decides a model's traits but its own sketches."""
        ids = [view.ids[row] for row in self.cohort.tolist()]
        known = TRAITS_VERSION, self._recipe.id, self.kinds, ids, self._cohort_kinds.tolist()
        digest = hashlib.sha256(repr(known).encode("utf-8", "surrogatepass"))
        digest.update(view.keys[self.cohort].tobytes())
        digest.update(_checksums(self._features).tobytes())
        return digest.digest()

    def prepare(self, features: SketchMatrix, kinds: Sequence[str], rows: Sequence[int]) -> Scored:
        """Some models, compared with the cohort.

        Args:
            rows: Of the models in the family; −1 for one that is not stored.
        """
        cosines = features.cosines(self._features)
        codes, counts = codes_of(kinds, self.kinds), self._counts(rows)
        traits = self._traits_of(cosines, codes, _blocks_of(features), counts)
        first = normalised(cosines, traits, self._traits, self._weights)
        return Scored(features, traits.with_profile(first))

    def stored(self, view: FamilyView, rows: Int64[np.ndarray, " rows"]) -> Scored:
        """Some stored models; what is known of the latest of them is kept."""
        sketches, listed = view.sketches(view.keys[rows]), rows.tolist()
        places = self._places(listed)
        if (places >= 0).all():
            return Scored(sketches, self._traits.take(places))
        if len(listed) > KEPT_TRAITS:
            return self.prepare(sketches, [view.kinds[row] for row in listed], listed)
        known = self._known
        new = np.array([i for i, row in enumerate(listed) if row not in known], dtype=np.int64)
        if not len(new):
            return Scored(sketches, Traits.joined([known[row] for row in listed]))
        traits = self._fresh(view, rows[new], sketches.take(new))
        if len(new) < len(listed):
            of_new = dict(zip(new.tolist(), traits.singles(), strict=True))
            parts = [of_new[i] if i in of_new else known[row] for i, row in enumerate(listed)]
            self._keep(rows[new].tolist(), traits)
            return Scored(sketches, Traits.joined(parts))
        self._keep(listed, traits)
        return Scored(sketches, traits)

    def _fresh(
        self, view: FamilyView, rows: Int64[np.ndarray, " rows"], sketches: SketchMatrix
    ) -> Traits:
        """The traits of some models that are not in memory: read, or computed and written."""
        listed = rows.tolist()
        if self._file is None:
            return self.prepare(sketches, [view.kinds[row] for row in listed], listed).traits
        keys, checksums = view.keys[rows], _checksums(sketches)
        is_known, numbers = self._file.read(keys, checksums)
        n_blocks, n_cohort = len(sketches.dims), len(self.cohort)
        if is_known.all():
            return Traits.of_numbers(numbers, n_blocks, n_cohort)
        new = np.flatnonzero(~is_known)
        added = rows[new].tolist()
        kinds = [view.kinds[row] for row in added]
        computed = self.prepare(sketches.take(new), kinds, added).traits.numbers
        self._file.append(keys[new], checksums[new], computed)
        every = np.empty((len(rows), computed.shape[1]))
        every[is_known], every[new] = numbers, computed
        return Traits.of_numbers(every, n_blocks, n_cohort)

    def _keep(self, rows: Sequence[int], traits: Traits) -> None:
        """Keep the traits of some models, and forget the earliest beyond `KEPT_TRAITS`."""
        if len(rows) <= KEPT_TRAITS:
            # a new dictionary: other threads read the one there is
            known = {**self._known, **dict(zip(rows, traits.singles(), strict=True))}
            self._known = dict(list(known.items())[-KEPT_TRAITS:])

    def compare(self, left: Scored, right: Scored) -> PairScores:
        """The scores of every pair. Peak: as of their cosines."""
        cosines = left.features.cosines(right.features)
        kinds = left.traits.kinds, right.traits.kinds
        plain_cosines = plain(
            cosines,
            (left.traits.kinds, left.traits.blocks),
            (right.traits.kinds, right.traits.blocks),
            self._weights,
        )
        parts = (
            normalised(cosines, left.traits, right.traits, self._weights),
            profile_correlations(left.traits, right.traits),
            plain_cosines,
        )
        z = self._null.of(self._sum(parts, *kinds), *kinds)
        return PairScores(cosines=true_cosines(plain_cosines), z=np.round(z, Z_DECIMALS))

    def _measure(self, cosines: Float64[np.ndarray, "blocks cohort cohort"]) -> None:
        """Traits of the cohort, and the scales of all that a score is a sum of."""
        kinds, counts = self._cohort_kinds, self._counts(self.cohort.tolist())
        traits = self._traits_of(cosines, kinds, self._cohort_blocks, counts)
        first = normalised(cosines, traits, traits, self._weights)
        self._traits = traits.with_profile(first)
        own = kinds, self._cohort_blocks
        plain_cosines = plain(cosines, own, own, self._weights)
        are_strangers = counts & (true_cosines(plain_cosines) < COPY_COSINE)
        parts = first, profile_correlations(self._traits, self._traits), plain_cosines
        self._scales = [measure_scale(part, are_strangers, kinds, deviation) for part in parts]
        total = self._sum(parts, kinds, kinds)
        self._null = measure_scale(total, are_strangers, kinds, lower_spread)
        z = self._null.of(total, kinds, kinds)
        self.evidence = LabelledCohort(self.cohort, z, are_strangers)

    def _counts(self, rows: Sequence[int]) -> Bool[np.ndarray, "models cohort"]:
        """Which models of the cohort are another than the model itself."""
        others: Bool[np.ndarray, "models cohort"] = (
            np.arange(len(self.cohort))[None, :] != self._places(rows)[:, None]
        )
        return others

    def _places(self, rows: Sequence[int]) -> Int64[np.ndarray, " models"]:
        """Where models are in the cohort; −1 for one that is not."""
        return np.array([self._place.get(row, -1) for row in rows], dtype=np.int64)

    def _traits_of(
        self,
        cosines: Float64[np.ndarray, "blocks models cohort"],
        kinds: Int64[np.ndarray, " models"],
        blocks: Float64[np.ndarray, "models blocks"],
        counts: Bool[np.ndarray, "models cohort"],
    ) -> Traits:
        """Traits without a profile; a copy does not count, and one that is nearly a copy is less
        of a stranger."""
        cohort = self._cohort_kinds, self._cohort_blocks
        whole = true_cosines(plain(cosines, (kinds, blocks), cohort, self._weights))
        counts = counts & (whole < COPY_COSINE)
        weights = counts * np.clip((COPY_COSINE - whole) / COPY_MARGIN, 0.0, 1.0)
        return measure_traits(
            cosines, kinds, blocks, self._cohort_kinds, weights, counts, len(self.kinds)
        )

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


def _checksums(sketches: SketchMatrix) -> Int64[np.ndarray, " models"]:
    """Of each model's sketches: of the slots that it has, whatever others the matrix has."""
    sums = []
    for codes, weights in zip(sketches.codes, sketches.weights, strict=True):
        has = weights.any(axis=1)
        slots = "".join(
            str(slot) for slot, is_there in zip(sketches.slots, has, strict=True) if is_there
        )
        value = zlib.crc32(weights[has].tobytes(), zlib.crc32(slots.encode()))
        sums.append(zlib.crc32(codes[has].tobytes(), value))
    return np.array(sums, dtype=np.int64)


def _blocks_of(sketches: SketchMatrix) -> Float64[np.ndarray, "models blocks"]:
    """Which blocks each model has in any slot: 0 or 1."""
    return np.asarray(sketches.weights.any(axis=1), dtype=np.float64)
