"""A linear classifier of layers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ...arrays import Float32, Float64, Int64
from ..report_json import JsonRecord
from .layer_rows import LayerRows
from .layer_scores import Score, score_predictions
from .softmax_regression import fit_softmax

BLOCK_ROWS = 1_024
"""Rows turned to float64 at a time."""

CONSTANT = 1e-11
"""A dimension does not vary if its deviation is below this share of its mean: float32 numbers that
differ at all differ by more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerClassifier(JsonRecord):
    """Multinomial logistic regression on standardised vectors, with its standardiser.

    Attributes:
        mean: Of the training rows.
        scale: Their standard deviation, 1 where a dimension does not vary.
        weights: In standardised units.
        converged: Whether the optimiser reached its tolerance.
    """

    layers: tuple[int, ...] = field(repr=False)
    mean: Float64[np.ndarray, " dim"] = field(compare=False, repr=False)
    scale: Float64[np.ndarray, " dim"] = field(compare=False, repr=False)
    weights: Float64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    intercepts: Float64[np.ndarray, " layers"] = field(compare=False, repr=False)
    n_train: int = field(repr=False)
    iterations: int
    converged: bool

    def __post_init__(self) -> None:
        for array in (self.mean, self.scale, self.weights, self.intercepts):
            array.flags.writeable = False

    def standardise(
        self, vectors: Float32[np.ndarray, "rows dim"]
    ) -> Float64[np.ndarray, "rows dim"]:
        """In units of the training rows' spread, around their mean."""
        if vectors.shape[1] != len(self.mean):
            raise ValueError(f"a classifier of {len(self.mean)} dimensions got {vectors.shape[1]}")
        standardised: Float64[np.ndarray, "rows dim"] = (vectors - self.mean) / self.scale
        return standardised

    def in_units_of(
        self, mean: Float64[np.ndarray, " dim"], scale: Float64[np.ndarray, " dim"]
    ) -> Float64[np.ndarray, "layers dim_and_1"]:
        """The same scores as weights and intercepts of vectors that are standardised so."""
        raw = self.weights / self.scale
        intercepts = self.intercepts + raw @ (mean - self.mean)
        return np.column_stack([raw * scale, intercepts])

    def without(self, dims: Int64[np.ndarray, " k"]) -> LayerClassifier:
        """The classifier that reads all dimensions but these."""
        return replace(
            self,
            mean=np.delete(self.mean, dims),
            scale=np.delete(self.scale, dims),
            weights=np.delete(self.weights, dims, axis=1),
        )

    def of_unit_rows(self, length: float) -> LayerClassifier:
        """The classifier of vectors of length 1 that reads them as if they had this length."""
        return replace(self, mean=self.mean / length, scale=self.scale / length)

    def predict(self, vectors: Float32[np.ndarray, "rows dim"]) -> Int64[np.ndarray, " rows"]:
        """The most likely layer of each vector."""
        scores = self.standardise(vectors) @ self.weights.T + self.intercepts
        layers: Int64[np.ndarray, " layers"] = np.array(self.layers)
        predicted: Int64[np.ndarray, " rows"] = layers[scores.argmax(axis=1)]
        return predicted

    def score_of(self, predicted: Int64[np.ndarray, " predictions"], rows: LayerRows) -> Score:
        """The score of its predictions for rows that may have been changed."""
        return score_predictions(
            predicted,
            rows,
            layers=self.layers,
            n_train=self.n_train,
            converged=self.converged,
        )


def fit_classifier(rows: LayerRows, *, start: LayerClassifier | None = None) -> LayerClassifier:
    """The classifier of the rows' layers. Peak: the rows twice.

    Args:
        start: A classifier of the same dimensions and layers, of similar rows, from whose weights
            the optimiser starts; it converges to the same weights in fewer steps.
    """
    mean, scale = spread_of(rows.vectors)
    classes: Int64[np.ndarray, " rows"] = np.searchsorted(rows.layers, rows.layer)
    found = fit_softmax(
        _standardised(rows.vectors, mean, scale),
        classes.astype(np.int64),
        len(rows.layers),
        None if start is None else start.in_units_of(mean, scale),
    )
    return LayerClassifier(
        layers=rows.layers,
        mean=mean,
        scale=scale,
        weights=found.weights,
        intercepts=found.intercepts,
        n_train=len(rows.vectors),
        iterations=found.iterations,
        converged=found.converged,
    )


def spread_of(
    vectors: Float32[np.ndarray, "rows dim"],
) -> tuple[Float64[np.ndarray, " dim"], Float64[np.ndarray, " dim"]]:
    """The mean and the standard deviation of each dimension; 1 where it does not vary."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for start in range(0, len(vectors), BLOCK_ROWS):
        block = vectors[start : start + BLOCK_ROWS] - mean
        squares += np.einsum("ij,ij->j", block, block)
    scale = np.sqrt(squares / len(vectors))
    return mean, np.where(scale <= CONSTANT * np.abs(mean), 1.0, scale)


def _standardised(
    vectors: Float32[np.ndarray, "rows dim"],
    mean: Float64[np.ndarray, " dim"],
    scale: Float64[np.ndarray, " dim"],
) -> Float32[np.ndarray, "rows dim"]:
    standardised = np.empty(vectors.shape, dtype=np.float32)
    for start in range(0, len(vectors), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        standardised[block] = (vectors[block] - mean) / scale
    return standardised


def score_classifier(classifier: LayerClassifier, rows: LayerRows) -> Score:
    """The score of the classifier, with its own standardiser, on other rows."""
    return classifier.score_of(classifier.predict(rows.vectors), rows)
