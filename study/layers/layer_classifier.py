"""A linear classifier of layers, its accuracy, and the dimensions that it uses."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ...arrays import Bool, Float32, Float64, Int64
from ..report_json import JsonRecord
from .layer_rows import LayerRows

STRENGTH = 1.0
"""Inverse weight of the L2 penalty, scikit-learn's C."""

MOST_ITERATIONS = 2_000
TOLERANCE = 1e-5
"""Largest gradient entry at which L-BFGS stops; accuracies do not change below it."""

N_LARGEST = 10
"""Dimensions of a layer that the JSON names."""


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

    def predict(self, vectors: Float32[np.ndarray, "rows dim"]) -> Int64[np.ndarray, " rows"]:
        """The most likely layer of each vector."""
        scores = self.standardise(vectors) @ self.weights.T + self.intercepts
        layers: Int64[np.ndarray, " layers"] = np.array(self.layers)
        predicted: Int64[np.ndarray, " rows"] = layers[scores.argmax(axis=1)]
        return predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(JsonRecord):
    """The accuracy of a classifier of layers on held-back rows.

    Attributes:
        standard_error: Of the accuracy, over texts; None with one text.
        chance: 1 / layers.
        recall: Share of each layer's rows that were classified correctly.
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


def fit_classifier(rows: LayerRows) -> LayerClassifier:
    """The classifier of the rows' layers, by L-BFGS. Peak: the rows in float64, beside them."""
    scaler = StandardScaler()
    standardised = scaler.fit_transform(rows.vectors.astype(np.float64))
    model = LogisticRegression(C=STRENGTH, max_iter=MOST_ITERATIONS, tol=TOLERANCE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(standardised, rows.layer)
    weights = np.asarray(model.coef_, dtype=np.float64)
    intercepts = np.asarray(model.intercept_, dtype=np.float64)
    if len(weights) == 1:  # two layers: one logit, which is the difference of two
        weights = np.concatenate([-weights, weights]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    return LayerClassifier(
        layers=rows.layers,
        mean=np.asarray(scaler.mean_, dtype=np.float64),
        scale=np.asarray(scaler.scale_, dtype=np.float64),
        weights=weights,
        intercepts=intercepts,
        n_train=len(rows.vectors),
        iterations=int(model.n_iter_[0]),
        converged=not any(issubclass(w.category, ConvergenceWarning) for w in caught),
    )


def score_classifier(classifier: LayerClassifier, rows: LayerRows) -> Score:
    """The score of the classifier, with its own standardiser, on other rows."""
    return score_predictions(classifier.predict(rows.vectors), rows, classifier)


def score_predictions(
    predicted: Int64[np.ndarray, " predictions"], rows: LayerRows, classifier: LayerClassifier
) -> Score:
    """The score of a classifier's predictions for all rows, or for all in each of several draws."""
    layers = classifier.layers
    if not len(rows.layer) or len(predicted) % len(rows.layer):
        raise ValueError(f"{len(predicted)} predictions for {len(rows.layer)} rows")
    if not set(rows.layers) <= set(layers):
        raise ValueError(f"rows of layers {rows.layers}, but a classifier of layers {layers}")
    draws = len(predicted) // len(rows.layer)
    true = np.tile(rows.layer, draws)
    right = predicted == true
    confusion = np.zeros((len(layers), len(layers)), dtype=np.int64)
    np.add.at(confusion, (np.searchsorted(layers, true), np.searchsorted(layers, predicted)), 1)
    of_layer = np.maximum(confusion.sum(axis=1), 1)
    return Score(
        layers=layers,
        accuracy=float(right.mean()),
        standard_error=accuracy_error(right, np.tile(rows.text, draws)),
        chance=1.0 / len(layers),
        recall=tuple((np.diag(confusion) / of_layer).tolist()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        mean_distance=float(np.abs(predicted - true).mean()),
        n_train=classifier.n_train,
        n_test=len(rows.layer),
        n_test_texts=rows.n_texts,
        draws=draws,
        converged=classifier.converged,
    )


def accuracy_error(
    right: Bool[np.ndarray, " predictions"], text: Int64[np.ndarray, " predictions"]
) -> float | None:
    """Standard error of the accuracy, where texts are the units that were drawn at random.

    It is that of a proportion in a cluster sample (Cochran 1977, section 3.12), which a bootstrap
    over texts estimates too. Rows of a text are not independent, so that the binomial error is
    too small.
    """
    _, index = np.unique(text, return_inverse=True)
    sizes = np.bincount(index).astype(np.float64)
    n_texts = len(sizes)
    if n_texts < 2:
        return None
    left = np.bincount(index, weights=right) - right.mean() * sizes
    return float(np.sqrt(n_texts / (n_texts - 1) * (left @ left)) / sizes.sum())


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
        """The largest share of each layer."""
        return tuple(self.shares.max(axis=1).tolist())

    def ranked(self) -> Int64[np.ndarray, " dim"]:
        """Dimensions, counted from 0, by their mean share over the layers, largest first."""
        return np.argsort(-self.shares.mean(axis=0), kind="stable")

    def to_json(self) -> dict[str, Any]:
        """Everything but the shares, and the dimensions of largest share; they count from 0."""
        largest = [
            [
                {"dim": int(j), "share": float(shares[j]), "sign": int(signs[j])}
                for j in np.argsort(-shares, kind="stable")[:N_LARGEST]
            ]
            for shares, signs in zip(self.shares, self.signs, strict=True)
        ]
        extra = {"max_share": list(self.max_share), "largest": largest}
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


def dims_holding(shares: Float64[np.ndarray, " dim"], portion: float) -> int:
    """The smallest number of dimensions whose shares add up to a portion of all."""
    cumulated = np.cumsum(np.sort(shares)[::-1])
    reached = np.flatnonzero(cumulated >= portion * cumulated[-1] - 1e-12)
    return int(reached[0]) + 1
