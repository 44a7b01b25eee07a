"""Families in memory: models as vectors or as coded sketches, and their scores."""

import numpy as np

from deltadex.records import Recipe, Slot
from deltadex.search.family_scores import Cohort, FamilyScores
from deltadex.store import SketchMatrix
from deltadex.store.sketch_codes import encode_sketch

VECTORS = Recipe(name="sketch", rank=1, dim=64, params=(("slot_blocks", "vector:64"),))
SKETCHES = Recipe(
    name="sketch", rank=1, dim=64, params=(("slot_blocks", "update:64,output:64,input:64"),)
)
SLOTS = tuple(Slot("encoder", layer, role) for layer in (0, 1) for role in ("q", "down"))


class VectorMatrix(SketchMatrix):
    """Vectors in the place of sketches: one block, whose cosines are exact."""

    def __init__(self, vectors):
        shape = (len(vectors), 1, 1)
        super().__init__(
            {"vector": 64}, SLOTS[:1], np.ones(shape, np.float32), np.zeros(shape, np.uint8)
        )
        self.vectors = vectors

    def take(self, rows):
        return VectorMatrix(self.vectors[rows])

    def cosines(self, other):
        left, right = self.vectors.astype(np.float64), other.vectors.astype(np.float64)
        return np.round((left @ right.T)[None], 12)


def make_scores(ids, kinds, recipe, read):
    """What a family's scores are normalised with."""
    return FamilyScores(Cohort.sample(ids, kinds), recipe, read)


def unit_rows(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300)


def make_vectors(seed, n, *, datasets=0, strength=1.0, common=0.5):
    """Models that share a direction, and one with those of their dataset: i % datasets."""
    rng = np.random.default_rng(seed)
    shared = unit_rows(rng.normal(size=(1, 64)))
    centres = unit_rows(rng.normal(size=(max(datasets, 1), 64)))
    vectors = common * shared + unit_rows(rng.normal(size=(n, 64)))
    if datasets:
        vectors = vectors + strength * centres[np.arange(n) % datasets]
    return unit_rows(vectors)


def sketch(numbers):
    """One model's sketches: a dict of bytes, from numbers by slot and block."""
    return {
        slot: encode_sketch(list(blocks), [1.0] * len(blocks))
        for slot, blocks in zip(SLOTS, numbers, strict=True)
    }


def names(n):
    return [f"m{i:04}" for i in range(n)]


def score(matrix, kinds=None, *, recipe=VECTORS, ids=None):
    """The scores of a family, and those of all its pairs."""
    n = len(matrix)
    kinds = kinds or ["full"] * n
    family = make_scores(ids or names(n), kinds, recipe, matrix.take)
    models = family.prepare(matrix, kinds, list(range(n)))
    return family, family.compare(models, models)


def score_vectors(vectors, kinds=None, **options):
    return score(VectorMatrix(np.asarray(vectors, np.float32)), kinds, **options)
