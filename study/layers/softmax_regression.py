"""Multinomial logistic regression: L-BFGS in float32, ended and checked in float64.

The loss is scikit-learn's: the mean of −ln softmax(Wx + b) over the rows, plus ‖W‖²/(2Cn). Most
of the time is spent on two products of the rows with a matrix of few columns, which wait for
memory. They are computed block by block, so that a block is read once for both, and in float32,
until the gradient is below the tolerance. Then the gradient is computed in float64; if it is
above the tolerance, L-BFGS goes on in float64 until it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ...arrays import Float32, Float64, Int64

STRENGTH = 1.0
"""Inverse weight of the L2 penalty, scikit-learn's C."""

MOST_ITERATIONS = 2_000
TOLERANCE = 1e-5
"""Largest gradient entry at which L-BFGS stops; accuracies do not change below it."""

BLOCK_ROWS = 256
"""Rows of one product; with some hundred dimensions they fit into a processor's cache."""

CLASSES_A_STEP = 8
"""Classes are padded to a multiple of this: BLAS is slower for other heights."""

_STEPS_KEPT = 10
_LINE_STEPS = 50

Parameters = Float64[np.ndarray, "layers dim_and_1"]
"""Weights of each class, and its intercept in the last column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The minimum of the loss.

    Attributes:
        gradient: Its largest entry, in float64.
    """

    weights: Float64[np.ndarray, "layers dim"]
    intercepts: Float64[np.ndarray, " layers"]
    iterations: int
    gradient: float

    @property
    def converged(self) -> bool:
        """Whether the gradient is below the tolerance."""
        return self.gradient <= TOLERANCE


def fit_softmax(
    features: Float32[np.ndarray, "rows dim"],
    classes: Int64[np.ndarray, " rows"],
    n_classes: int,
    start: Parameters | None = None,
) -> Solution:
    """The weights of least loss. Peak beside the features: 4 · rows · classes bytes.

    Args:
        features: Of about unit spread.
        classes: From 0 to `n_classes` − 1.
        start: Where to begin; all 0 by default. The minimum does not depend on it.
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
    return Solution(
        weights=np.ascontiguousarray(point[:, :-1]),
        intercepts=point[:, -1].copy(),
        iterations=iterations,
        gradient=_largest(loss(point.ravel())[1]),
    )


def _largest(gradient: Float64[np.ndarray, " parameters"]) -> float:
    return float(np.abs(gradient).max(initial=0.0))


class _Loss:
    """The loss and its gradient at a point, computed in `dtype`, summed in float64."""

    def __init__(
        self,
        features: Float32[np.ndarray, "rows dim"],
        classes: Int64[np.ndarray, " rows"],
        n_classes: int,
    ) -> None:
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
        for start in range(0, len(self.features), BLOCK_ROWS):
            block = self.features[start : start + BLOCK_ROWS].astype(self.dtype, copy=False)
            is_class = self.is_class[:, start : start + BLOCK_ROWS]
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
