"""Accuracy and macro-F1 with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...arrays import Float64, Int64, Shaped
from .predictions import NONE

Score = Literal["accuracy", "macro-F1"]

DRAWS = 1_000
DRAW_BLOCK_CELLS = 2_000_000
"""Resampled texts held at a time: 16 MB."""

Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Counts:
    """What a score is made of, text by text, so that texts can be resampled.

    Attributes:
        cells: For accuracy right answers and items; for macro-F1 true positives of each class,
            then false answers (false positives plus false negatives) of each class.
    """

    score: Score
    cells: Float64[np.ndarray, "runs texts cells"] = field(compare=False)

    def value(
        self, weights: Float64[np.ndarray, "draws texts"]
    ) -> Float64[np.ndarray, "runs draws"]:
        """The score of each run when each text counts as often as its weight says.

        Macro-F1 is over the classes that occur in targets or predictions, as scikit-learn's.
        """
        summed = np.matmul(weights, self.cells)  # (runs, draws, cells)
        left, right = np.split(summed, 2, axis=2)
        values: Float64[np.ndarray, "runs draws"]
        if self.score == "accuracy":
            values = (left / right)[:, :, 0]
        else:
            base = 2 * left + right
            f1 = np.divide(2 * left, base, out=np.zeros_like(base), where=base > 0)
            values = f1.sum(axis=2) / (base > 0).sum(axis=2)
        return values


def count(
    score: Score,
    predicted: Int64[np.ndarray, "runs items"],
    targets: Int64[np.ndarray, " items"],
    text: Int64[np.ndarray, " items"],
) -> Counts:
    """The counts of one subset's predictions."""
    texts, place = np.unique(text, return_inverse=True)
    if score == "accuracy":
        columns = [[p == targets, np.ones(len(targets))] for p in predicted]
    elif score == "macro-F1":
        classes = np.setdiff1d(np.union1d(targets, predicted), [NONE])
        truth = targets[:, None] == classes
        columns = []
        for p in predicted:
            said = p[:, None] == classes
            columns.append([*(truth & said).T, *(truth ^ said).T])
    else:
        raise ValueError(f"score must be 'accuracy' or 'macro-F1', got {score!r}")
    cells = [[_by_text(c, place, len(texts)) for c in run] for run in columns]
    return Counts(score, np.array(cells).transpose(0, 2, 1))


def intervals(counts: list[Counts], *, seed: int) -> list[tuple[float, float]]:
    """95 % percentile intervals over texts of scores averaged over runs, the same draws for all.

    Texts go in or out with all their items. Where every draw gives the same accuracy (all
    right, all wrong), Wilson's interval for as many items as there are texts stands in.
    """
    n_texts = counts[0].cells.shape[1]
    draws = [
        np.concatenate(parts, axis=0)
        for parts in zip(
            *([c.value(w).mean(axis=0) for c in counts] for w in _weights(n_texts, seed)),
            strict=True,
        )
    ]
    found = []
    for one, values in zip(counts, draws, strict=True):
        low, high = (float(v) for v in np.quantile(values, [0.025, 0.975]))
        if low == high and one.score == "accuracy":
            low, high = wilson_interval(low, n_texts)
        found.append((low, high))
    return found


def wilson_interval(share: float, n_items: int) -> tuple[float, float]:
    """95 % interval of a share of independent items (Wilson 1927), within 0…1."""
    if n_items < 1 or not 0 <= share <= 1:
        raise ValueError(f"a share of at least one item, 0…1, got {share} of {n_items}")
    shrink = 1 + Z95**2 / n_items
    centre = (share + Z95**2 / (2 * n_items)) / shrink
    half = Z95 / shrink * math.sqrt(share * (1 - share) / n_items + (Z95 / (2 * n_items)) ** 2)
    return max(0.0, centre - half), min(1.0, centre + half)


def _by_text(
    values: Shaped[np.ndarray, " items"], place: Int64[np.ndarray, " items"], n_texts: int
) -> Float64[np.ndarray, " texts"]:
    return np.bincount(place, values, minlength=n_texts).astype(np.float64)


def _weights(n_texts: int, seed: int) -> Iterator[Float64[np.ndarray, "draws texts"]]:
    """How often each text is drawn, some of the `DRAWS` resamples at a time."""
    rng = np.random.default_rng(seed)
    block = max(1, DRAW_BLOCK_CELLS // n_texts)
    for start in range(0, DRAWS, block):
        size = min(block, DRAWS - start)
        yield rng.multinomial(n_texts, np.full(n_texts, 1 / n_texts), size=size).astype(np.float64)
