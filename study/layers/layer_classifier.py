"""A linear classifier of layers: its fit, its score, and the dimensions that it reads."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from ...arrays import Float32, Float64, Int64
from ...results import JsonRecord
from ..texts import per_token
from .layer_rows import LayerRows

Vectors = Float32[np.ndarray, "rows dim"]
OfRows = Int64[np.ndarray, " rows"]
OfDims = Float64[np.ndarray, " dim"]
Predictions = Int64[np.ndarray, " predictions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(JsonRecord):
    """The accuracy of a classifier of layers on held-back rows.

    Attributes:
        standard_error: Of the accuracy, over texts; None with one text.
        chance: 1 / layers.
        recall: By layer, the share of its rows that were classified correctly.
        confusion: Rows by true layer (first index) and predicted layer.
        mean_distance: Mean |predicted − true| layer.
        n_test: Scored rows; a row counts once, whatever the number of draws.
        draws: Random draws that the predictions are pooled from.
        converged: False where the classifier's optimiser stopped early.
    """

    layers: tuple[int, ...] = field(repr=False)
    accuracy: float
    standard_error: float | None
    chance: float
    recall: tuple[float, ...]
    confusion: tuple[tuple[int, ...], ...]
    mean_distance: float
    n_train: int
    n_test: int
    n_test_texts: int
    draws: int = 1
    converged: bool = True


def score_predictions(
    predicted: Predictions,
    rows: LayerRows,
    *,
    layers: tuple[int, ...],
    n_train: int,
    converged: bool = True,
) -> Score:
    """The score of predictions for all rows, or for all in each of several draws."""
    draws = len(predicted) // len(rows.layer)
    true = np.tile(rows.layer, draws)
    accuracy = per_token(predicted == true, np.tile(rows.text, draws))
    confusion = np.zeros((len(layers), len(layers)), dtype=np.int64)
    np.add.at(confusion, (np.searchsorted(layers, true), np.searchsorted(layers, predicted)), 1)
    of_layer = np.maximum(confusion.sum(axis=1), 1)
    return Score(
        layers=layers,
        accuracy=accuracy.value,
        standard_error=accuracy.standard_error,
        chance=1.0 / len(layers),
        recall=tuple((np.diag(confusion) / of_layer).tolist()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        mean_distance=float(np.abs(predicted - true).mean()),
        n_train=n_train,
        n_test=len(rows.layer),
        n_test_texts=rows.n_texts,
        draws=draws,
        converged=converged,
    )


MOST_ITERATIONS = 2_000
TOLERANCE = 1e-5
"""Largest gradient entry at which L-BFGS stops; accuracies do not change below it."""

CONSTANT = 1e-11
"""A dimension does not vary if its deviation is below this share of its mean: float32 numbers that
differ at all differ by more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerClassifier(JsonRecord):
    """Multinomial logistic regression on standardised vectors, with its standardiser.

    Attributes:
        scale: Standard deviation of the training rows, 1 where a dimension does not vary.
        weights: In standardised units.
        converged: Whether the optimiser reached its tolerance.
    """

    layers: tuple[int, ...] = field(repr=False)
    mean: OfDims = field(compare=False, repr=False)
    scale: OfDims = field(compare=False, repr=False)
    weights: Float64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    intercepts: Float64[np.ndarray, " layers"] = field(compare=False, repr=False)
    n_train: int = field(repr=False)
    iterations: int
    converged: bool

    def __post_init__(self) -> None:
        for array in (self.mean, self.scale, self.weights, self.intercepts):
            array.flags.writeable = False

    def standardise(self, vectors: Vectors) -> Float64[np.ndarray, "rows dim"]:
        """In units of the training rows' spread, around their mean."""
        standardised: Float64[np.ndarray, "rows dim"] = (vectors - self.mean) / self.scale
        return standardised

    def predict(self, vectors: Vectors) -> OfRows:
        scores = self.standardise(vectors) @ self.weights.T + self.intercepts
        layers: Int64[np.ndarray, " layers"] = np.array(self.layers)
        predicted: OfRows = layers[scores.argmax(axis=1)]
        return predicted

    def score_of(self, predicted: Predictions, rows: LayerRows) -> Score:
        """The score of its predictions for rows that may have been changed."""
        return score_predictions(
            predicted, rows, layers=self.layers, n_train=self.n_train, converged=self.converged
        )


def fit_classifier(rows: LayerRows) -> LayerClassifier:
    """The classifier of the rows' layers, by scikit-learn with C = 1. Peak: the rows in float64."""
    mean = rows.vectors.mean(axis=0, dtype=np.float64)
    scale = rows.vectors.std(axis=0, dtype=np.float64)
    scale = np.where(scale <= CONSTANT * np.abs(mean), 1.0, scale)
    model = LogisticRegression(tol=TOLERANCE, max_iter=MOST_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((rows.vectors - mean) / scale, rows.layer)
    weights, intercepts = model.coef_, model.intercept_
    if len(weights) == 1:  # of two layers, the second against the first
        weights, intercepts = (np.concatenate([-one, one]) for one in (weights, intercepts))
    iterations = int(model.n_iter_.max())
    return LayerClassifier(
        layers=rows.layers,
        mean=mean,
        scale=scale,
        weights=weights,
        intercepts=intercepts,
        n_train=len(rows.vectors),
        iterations=iterations,
        converged=iterations < MOST_ITERATIONS,
    )


def score_classifier(classifier: LayerClassifier, rows: LayerRows) -> Score:
    """The score of the classifier, with its own standardiser, on other rows."""
    return classifier.score_of(classifier.predict(rows.vectors), rows)


CURVE_DIMS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Where the JSON reads the contribution curve."""

N_LARGEST = 10
"""Dimensions of a layer that the JSON names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions(JsonRecord):
    """The shares of dimensions in the weights of each layer, in standardised units.

    Attributes:
        shares: |w| / Σ|w|, a sum of 1 for each layer; 0 where a layer has no weights at all.
        signs: Signs of the weights: whether a larger value speaks for the layer or against it.
        n50: The smallest number of dimensions that hold half of a layer's shares.
        n90: The same for nine tenths.
    """

    layers: tuple[int, ...]
    shares: Float64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    signs: Int64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    n50: tuple[int, ...]
    n90: tuple[int, ...]

    @property
    def max_share(self) -> tuple[float, ...]:
        return tuple(self.shares.max(axis=1).tolist())

    def ranked(self) -> Int64[np.ndarray, " dim"]:
        """Dimensions, counted from 0, by their mean share over the layers, largest first."""
        return np.argsort(-self.shares.mean(axis=0), kind="stable")

    def curve(self) -> Float64[np.ndarray, "layers dim"]:
        """The share of each layer's k largest dimensions, for k from 1 to all of them."""
        return np.cumsum(-np.sort(-self.shares, axis=1), axis=1)

    def to_json(self) -> dict[str, Any]:
        """Everything but the shares; the dimensions of largest share, which count from 0; and the
        contribution curve, the share of the k largest dimensions, at some k."""
        largest = [
            [
                {"dim": int(j), "share": float(shares[j]), "sign": int(signs[j])}
                for j in np.argsort(-shares, kind="stable")[:N_LARGEST]
            ]
            for shares, signs in zip(self.shares, self.signs, strict=True)
        ]
        dim = self.shares.shape[1]
        dims = sorted({k for k in CURVE_DIMS if k < dim} | {dim})
        curve = {"dims": dims, "share": self.curve()[:, np.array(dims) - 1].tolist()}
        extra = {"max_share": list(self.max_share), "largest": largest, "curve": curve}
        return JsonRecord.to_json(self) | extra


def contributions(classifier: LayerClassifier) -> Contributions:
    """Each dimension's share in telling each layer from the others.

    Weights are in standardised units: raw weights would be largest where the spread is smallest.
    """
    sizes = np.abs(classifier.weights)
    totals = sizes.sum(axis=1, keepdims=True)
    shares = sizes / np.where(totals > 0, totals, 1.0)
    return Contributions(
        layers=classifier.layers,
        shares=shares,
        signs=np.sign(classifier.weights).astype(np.int64),
        n50=tuple(dims_holding(layer, 0.5) for layer in shares),
        n90=tuple(dims_holding(layer, 0.9) for layer in shares),
    )


def dims_holding(shares: OfDims, portion: float) -> int:
    """The smallest number of dimensions whose shares add up to a portion of all."""
    cumulated = np.cumsum(np.sort(shares)[::-1])
    reached = np.flatnonzero(cumulated >= portion * cumulated[-1] - 1e-12)
    return int(reached[0]) + 1
