"""Scores from the per-slot sketches: the same kernel as the pooled vector's, estimated from
ten times as many features, for a family or for the best candidates of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float16, Float64

from ..records import Recipe, Slot
from ..store import Catalog

CANDIDATES = 200
"""How many of a search's best are scored again."""

WHOLE_FAMILY = 4_000
"""Models up to which every pair is scored from sketches; their scores take 128 MB."""


def has_sketches(recipe: Recipe) -> bool:
    """Whether models keep per-slot sketches under this recipe."""
    return "slot_blocks" in dict(recipe.params)


def family_scores(
    catalog: Catalog, base: str, recipe: Recipe, ids: Sequence[str]
) -> Float64[np.ndarray, "models models"]:
    """Every pair's cosine over all slots; a slot that one model lacks counts as zero.

    Peak: the scores, and one slot's sketches in float64: float32 would part exact twins.
    """
    scores = np.zeros((len(ids), len(ids)))
    for _, places, sketches in catalog.sketches(base, recipe, ids):
        block = sketches.astype(np.float64)
        scores[np.ix_(places, places)] += block @ block.T
    lengths = np.sqrt(np.diag(scores))
    lengths[lengths == 0] = 1.0
    return scores / lengths[:, None] / lengths[None, :]


def candidate_scores(
    catalog: Catalog,
    base: str,
    recipe: Recipe,
    query: Mapping[Slot, Float16[np.ndarray, " features"]],
    ids: Sequence[str],
) -> tuple[Float64[np.ndarray, " models"], Float64[np.ndarray, " models"]]:
    """Cosine of the query with each candidate over all slots, and its standard error.

    For unit features a, b the cosine c has the error of Σ z_j, z_j = a_j b_j − c(a_j² + b_j²)/2
    (delta method, see `standard_error`); Σ z_j² from running sums of powers, slot by slot.
    """
    sums = {power: np.zeros(len(ids)) for power in ((1, 1), (0, 2), (2, 2), (3, 1), (1, 3), (0, 4))}
    own = {power: 0.0 for power in (2, 4)}
    for sketch in query.values():
        for power in own:
            own[power] += float((sketch.astype(np.float64) ** power).sum())
    for slot, places, sketches in catalog.sketches(base, recipe, ids):
        b = sketches.astype(np.float64)
        a = query[slot].astype(np.float64) if slot in query else np.zeros(b.shape[1])
        for (i, j), total in sums.items():
            total[places] += (a**i * b**j).sum(axis=1)
    length_a, length_b = np.sqrt(own[2]) or 1.0, np.sqrt(sums[0, 2])
    length_b[length_b == 0] = 1.0
    cosine = sums[1, 1] / (length_a * length_b)
    squares = sums[2, 2] / (length_a * length_b) ** 2
    mixed = sums[3, 1] / (length_a**3 * length_b) + sums[1, 3] / (length_a * length_b**3)
    fourth = own[4] / length_a**4 + sums[0, 4] / length_b**4
    variance = squares - cosine * mixed + cosine**2 / 4 * (fourth + 2 * squares)
    return cosine, np.sqrt(np.maximum(variance, 0.0))
