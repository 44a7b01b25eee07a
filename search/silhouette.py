"""How well datasets separate as clusters, beside how well they are retrieved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..arrays import Float64
from .labelled import LabelledModels

MOST_MODELS = 4_000
"""Labelled models of a family up to which all their distances are held: 128 MB."""


def mean_silhouette(families: Sequence[LabelledModels]) -> float | None:
    """Mean silhouette (Rousseeuw 1987) of all labelled models, by cosine distance 1 − score.

    Models whose dataset no other model of their base has count 0, as their definition says.
    None where no family has two datasets and a pair of siblings, or one is too large.
    """
    values: list[float] = []
    for family in families:
        rows = np.array([i for i, label in enumerate(family.labels) if label is not None])
        counts = Counter(family.labels[row] for row in rows)
        if len(counts) < 2 or max(counts.values()) < 2:
            continue
        if len(rows) > MOST_MODELS:
            return None
        labels = [str(family.labels[row]) for row in rows]
        values += silhouettes(family.score_block(rows)[:, rows], labels).tolist()
    return float(np.mean(values)) if values else None


def silhouettes(
    scores: Float64[np.ndarray, "models models"], groups: Sequence[str]
) -> Float64[np.ndarray, " models"]:
    """The silhouette of every model by distance 1 − score; 0 for one that is alone.

    Not scikit-learn's, which gives the same: importing it takes five times as long as `eval`.
    """
    names, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    distances = np.clip(1.0 - scores, 0.0, None)
    np.fill_diagonal(distances, 0.0)
    rows = np.arange(len(codes))
    sums = distances @ np.equal.outer(codes, np.arange(len(names))).astype(np.float64)
    others = sizes[codes] - 1
    within = sums[rows, codes] / np.maximum(others, 1)
    means = sums / sizes
    means[rows, codes] = np.inf
    between = means.min(axis=1)
    longest = np.maximum(within, between)
    is_defined = (others > 0) & (longest > 0)
    values = np.zeros(len(codes))
    np.divide(between - within, longest, out=values, where=is_defined)
    return values
