"""The layer classifier without its most telling dimensions, against random ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ...arrays import Float32, Float64, Int64
from .classifier import MOST_ITERATIONS, LayerClassifier, score_predictions
from .contributions import contributions
from .controls import Control, score_retrained
from .rows import LayerRows, Split

RANDOM_DRAWS = 5
"""Sets of random dimensions that one accuracy is pooled from."""


def mask_sizes(dim: int) -> tuple[int, ...]:
    """How many dimensions are masked where nobody says: 4, 32 and half of them."""
    return tuple(sorted({k for k in (4, 32, dim // 2) if 1 <= k < dim}))


def mask_controls(
    split: Split,
    classifier: LayerClassifier,
    sizes: Sequence[int],
    *,
    seed: int = 0,
    max_iterations: int = MOST_ITERATIONS,
) -> Iterator[Control]:
    """For each size: the top dimensions filled with their mean and with 0, random ones
    likewise, and a classifier trained without the top ones.

    The mean is the training mean, which is 0 to the classifier; a raw 0 is not, and moves
    every row the same way.
    """
    ranked = contributions(classifier).ranked()
    fills = {"mean": classifier.mean, "zero": np.zeros_like(classifier.mean)}
    rng = np.random.default_rng(seed)
    for k in sizes:
        if not 1 <= k < len(ranked):
            raise ValueError(f"can mask 1 to {len(ranked) - 1} dimensions, got {k}")
        top = ranked[:k]
        drawn = [rng.permutation(len(ranked))[:k] for _ in range(RANDOM_DRAWS)]
        for which, sets in (("top", [top]), ("random", drawn)):
            for fill, values in fills.items():
                predicted = [
                    classifier.predict(masked(split.test.vectors, dims, values)) for dims in sets
                ]
                yield Control(
                    name=f"mask-{which}-{k}-{fill}",
                    title=f"{which} {k} dims set to {fill}",
                    score=score_predictions(
                        np.concatenate(predicted),
                        split.test,
                        layers=classifier.layers,
                        n_train=classifier.n_train,
                        converged=classifier.converged,
                    ),
                    retrained=False,
                )
        yield Control(
            name=f"without-top-{k}",
            title=f"without top {k} dims",
            score=score_retrained(split, partial(without, dims=top), max_iterations=max_iterations),
            retrained=True,
        )


def masked(
    vectors: Float32[np.ndarray, "rows dim"],
    dims: Int64[np.ndarray, " k"],
    values: Float64[np.ndarray, " dim"],
) -> Float32[np.ndarray, "rows dim"]:
    """The vectors with some dimensions at the given values, the same for all rows."""
    filled = vectors.copy()
    filled[:, dims] = values[dims]
    return filled


def without(rows: LayerRows, dims: Int64[np.ndarray, " k"]) -> LayerRows:
    """The rows without some dimensions."""
    return rows.with_vectors(np.delete(rows.vectors, dims, axis=1))
