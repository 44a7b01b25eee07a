"""A linear classifier of layers: its fit, its score, and the dimensions that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ...arrays import Bool, Float32, Float64, Int64
from ...results import JsonRecord
from .layer_rows import LayerRows

Vectors = Float32[np.ndarray, "rows dim"]
OfRows = Int64[np.ndarray, " rows"]
OfDims = Float64[np.ndarray, " dim"]
Predictions = Int64[np.ndarray, " predictions"]
Right = Bool[np.ndarray, " predictions"]
OfTexts = Float64[np.ndarray, " texts"]


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
        n_train=n_train,
        n_test=len(rows.layer),
        n_test_texts=rows.n_texts,
        draws=draws,
        converged=converged,
    )


def accuracy_error(right: Right, text: Predictions) -> float | None:
    """Standard error of the accuracy, where texts are the units that were drawn at random.

    It is that of a proportion in a cluster sample (Cochran 1977, section 3.12), which a bootstrap
    over texts estimates too. Rows of a text are not independent, so that the binomial error is
    too small.
    """
    n_texts = np.unique(text).size
    if n_texts < 2:
        return None
    # by text, the right predictions beyond the accuracy's share, over all predictions
    sizes = np.bincount(text).astype(np.float64)
    residuals = (np.bincount(text, weights=right) - right.mean() * sizes) / sizes.sum()
    return float(np.sqrt(n_texts / (n_texts - 1) * (residuals @ residuals)))


STRENGTH = 1.0
"""Inverse weight of the L2 penalty, scikit-learn's C."""

MOST_ITERATIONS = 2_000
TOLERANCE = 1e-5
"""Largest gradient entry at which L-BFGS stops; accuracies do not change below it."""

PRODUCT_ROWS = 256
"""Rows of one product; with some hundred dimensions they fit into a processor's cache."""

CLASSES_A_STEP = 8
"""Classes are padded to a multiple of this: BLAS is slower for other heights."""

_STEPS_KEPT = 10
_LINE_STEPS = 50

Parameters = Float64[np.ndarray, "layers dim_and_1"]
"""Weights of each class, and its intercept in the last column."""


def fit_softmax(
    features: Vectors, classes: OfRows, n_classes: int, start: Parameters | None = None
) -> tuple[Parameters, int, bool]:
    """(weights of least loss, iterations, whether the gradient is below the tolerance).

    The loss is scikit-learn's: the mean of −ln softmax(Wx + b) over the rows, plus ‖W‖²/(2Cn). Most
    of the time is spent on two products of the rows with a matrix of few columns, which wait for
    memory. They are computed block by block, so that a block is read once for both, and in float32,
    until the gradient is below the tolerance. Then the gradient is computed in float64; if it is
    above the tolerance, L-BFGS goes on in float64 until it is not. Peak beside the features:
    4 · rows · classes bytes.
    """
    shape = (n_classes, features.shape[1] + 1)
    point = np.zeros(shape) if start is None else start.copy()
    iterations = 0
    loss = _Loss(features, classes, n_classes)
    for dtype in (np.float32, np.float64):
        loss.dtype = dtype
        left = MOST_ITERATIONS - iterations
        if dtype is np.float64 and (left <= 0 or _largest(loss(point.ravel())[1]) <= TOLERANCE):
            break
        # gtol alone decides: ftol at the limit of the number format
        options = {
            "gtol": TOLERANCE,
            "ftol": float(np.finfo(np.float64).eps),
            "maxiter": left,
            "maxcor": _STEPS_KEPT,
            "maxls": _LINE_STEPS,
        }
        found = minimize(loss, point.ravel(), jac=True, method="L-BFGS-B", options=options)
        point = found.x.reshape(shape)
        iterations += int(found.nit)
    loss.dtype = np.float64
    return point, iterations, _largest(loss(point.ravel())[1]) <= TOLERANCE


def _largest(gradient: Float64[np.ndarray, " parameters"]) -> float:
    return float(np.abs(gradient).max(initial=0.0))


class _Loss:
    """The loss and its gradient at a point, computed in `dtype`, summed in float64."""

    def __init__(self, features: Vectors, classes: OfRows, n_classes: int) -> None:
        self.features, self.n_classes = features, n_classes
        self.height = -(-n_classes // CLASSES_A_STEP) * CLASSES_A_STEP
        self.dtype: Any = np.float32
        self.penalty = 1.0 / (STRENGTH * len(features))
        self.is_class = np.zeros((self.height, len(features)), dtype=np.float32)
        self.is_class[classes, np.arange(len(features))] = 1

    def __call__(
        self, flat: Float64[np.ndarray, " parameters"]
    ) -> tuple[float, Float64[np.ndarray, " parameters"]]:
        point = flat.reshape(self.n_classes, -1)
        weights = np.zeros((self.height, point.shape[1] - 1), dtype=self.dtype)
        weights[: self.n_classes] = point[:, :-1]
        intercepts = np.full((self.height, 1), -np.inf, dtype=self.dtype)
        intercepts[: self.n_classes, 0] = point[:, -1]
        by_dim = np.ascontiguousarray(weights.T)
        gradient = np.zeros((self.height, point.shape[1]))
        loss = 0.0
        for start in range(0, len(self.features), PRODUCT_ROWS):
            block = self.features[start : start + PRODUCT_ROWS].astype(self.dtype, copy=False)
            is_class = self.is_class[:, start : start + PRODUCT_ROWS]
            scores = np.ascontiguousarray((block @ by_dim).T)
            scores += intercepts
            scores -= scores.max(axis=0)
            true = scores[is_class > 0]
            np.exp(scores, out=scores)
            sums = scores.sum(axis=0)
            loss += float(np.log(sums).sum(dtype=np.float64) - true.sum(dtype=np.float64))
            scores /= sums
            scores -= is_class
            gradient[:, :-1] += scores @ block
            gradient[:, -1] += scores.sum(axis=1, dtype=np.float64)
        gradient = gradient[: self.n_classes] / len(self.features)
        gradient[:, :-1] += self.penalty * point[:, :-1]
        loss /= len(self.features)
        loss += 0.5 * self.penalty * float((point[:, :-1] ** 2).sum())
        return loss, gradient.ravel()


BLOCK_ROWS = 1_024
"""Rows turned to float64 at a time."""

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
        if vectors.shape[1] != len(self.mean):
            raise ValueError(f"a classifier of {len(self.mean)} dimensions got {vectors.shape[1]}")
        standardised: Float64[np.ndarray, "rows dim"] = (vectors - self.mean) / self.scale
        return standardised

    def in_units_of(self, mean: OfDims, scale: OfDims) -> Float64[np.ndarray, "layers dim_and_1"]:
        """The same scores as weights and intercepts of vectors that are standardised so."""
        raw = self.weights / self.scale
        intercepts = self.intercepts + raw @ (mean - self.mean)
        return np.column_stack([raw * scale, intercepts])

    def without(self, dims: Int64[np.ndarray, " k"]) -> LayerClassifier:
        columns = ("mean", "scale", "weights")
        kept = {name: np.delete(getattr(self, name), dims, axis=-1) for name in columns}
        return replace(self, **kept)

    def of_unit_rows(self, length: float) -> LayerClassifier:
        """The classifier of vectors of length 1 that reads them as if they had this length."""
        return replace(self, mean=self.mean / length, scale=self.scale / length)

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


def fit_classifier(rows: LayerRows, *, start: LayerClassifier | None = None) -> LayerClassifier:
    """The classifier of the rows' layers. Peak: the rows twice.

    Args:
        start: A classifier of the same dimensions and layers, of similar rows, from whose weights
            the optimiser starts; it converges to the same weights in fewer steps.
    """
    mean, scale = spread_of(rows.vectors)
    standardised = np.empty(rows.vectors.shape, dtype=np.float32)
    for begin in range(0, len(standardised), BLOCK_ROWS):
        block = slice(begin, begin + BLOCK_ROWS)
        standardised[block] = (rows.vectors[block] - mean) / scale
    classes: OfRows = np.searchsorted(rows.layers, rows.layer)
    point, iterations, converged = fit_softmax(
        standardised,
        classes.astype(np.int64),
        len(rows.layers),
        None if start is None else start.in_units_of(mean, scale),
    )
    return LayerClassifier(
        layers=rows.layers,
        mean=mean,
        scale=scale,
        weights=np.ascontiguousarray(point[:, :-1]),
        intercepts=point[:, -1].copy(),
        n_train=len(rows.vectors),
        iterations=iterations,
        converged=converged,
    )


def spread_of(vectors: Vectors) -> tuple[OfDims, OfDims]:
    """The mean and the standard deviation of each dimension; 1 where it does not vary."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for start in range(0, len(vectors), BLOCK_ROWS):
        block = vectors[start : start + BLOCK_ROWS] - mean
        squares += np.einsum("ij,ij->j", block, block)
    scale = np.sqrt(squares / len(vectors))
    return mean, np.where(scale <= CONSTANT * np.abs(mean), 1.0, scale)


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
