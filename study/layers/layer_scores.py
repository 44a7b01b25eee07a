"""The accuracy of predictions of layers, and its standard error, where texts are the units."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...arrays import Bool, Float64, Int64
from ..report_json import JsonRecord
from .layer_rows import LayerRows


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


def score_predictions(
    predicted: Int64[np.ndarray, " predictions"],
    rows: LayerRows,
    *,
    layers: tuple[int, ...],
    n_train: int,
    converged: bool = True,
) -> Score:
    """The score of predictions for all rows, or for all in each of several draws.

    Args:
        layers: That could have been predicted.
        n_train: Rows that what predicted has learnt from.
        converged: Whether its optimiser did.
    """
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


def accuracy_error(
    right: Bool[np.ndarray, " predictions"], text: Int64[np.ndarray, " predictions"]
) -> float | None:
    """Standard error of the accuracy, where texts are the units that were drawn at random.

    It is that of a proportion in a cluster sample (Cochran 1977, section 3.12), which a bootstrap
    over texts estimates too. Rows of a text are not independent, so that the binomial error is
    too small.
    """
    return _clustered(text_residuals(right, text), np.unique(text).size)


def difference_error(
    right: Bool[np.ndarray, " predictions"],
    text: Int64[np.ndarray, " predictions"],
    other_right: Bool[np.ndarray, " others"],
    other_text: Int64[np.ndarray, " others"],
) -> float | None:
    """Standard error of the difference of two accuracies on the same texts.

    A text's residuals in both are subtracted, so that what makes a text hard for both cancels.
    """
    n_texts = 1 + max(int(text.max()), int(other_text.max()))
    own = text_residuals(right, text, n_texts)
    theirs = text_residuals(other_right, other_text, n_texts)
    return _clustered(own - theirs, np.union1d(text, other_text).size)


def text_residuals(
    right: Bool[np.ndarray, " predictions"],
    text: Int64[np.ndarray, " predictions"],
    n_texts: int = 0,
) -> Float64[np.ndarray, " texts"]:
    """By text, the right predictions beyond the accuracy's share, over all predictions."""
    sizes = np.bincount(text, minlength=n_texts).astype(np.float64)
    more = np.bincount(text, weights=right, minlength=n_texts) - right.mean() * sizes
    residuals: Float64[np.ndarray, " texts"] = more / sizes.sum()
    return residuals


def _clustered(residuals: Float64[np.ndarray, " texts"], n_texts: int) -> float | None:
    if n_texts < 2:
        return None
    return float(np.sqrt(n_texts / (n_texts - 1) * (residuals @ residuals)))
