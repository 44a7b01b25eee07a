"""How far a score may be from the kernel that it estimates.

The sum over independent features j of a_j b_j estimates a kernel, and so do the two squared
lengths it is divided by. By the delta method the error of the quotient c is that of Σ z_j with
z_j = a_j b_j − c (a_j² + b_j²)/2 for unit a and b; Σ z_j = 0, so its variance is estimated by
Σ z_j². For Gaussian features this is (1 − c²)²/dim, Fisher's variance of a correlation: twins
have no error, strangers 1/√dim. Read from the features themselves, it also holds where they are
heavy-tailed or unevenly weighted, as TensorSketches of low-rank matrices are: then `dim`
overstates how many there are.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Float32, Float64, Shaped


class StandardErrors:
    """Standard errors of one query's cosines, as estimates from `dim` random features."""

    def __init__(self, query: Shaped[np.ndarray, " dim"]) -> None:
        """`query` is of unit length."""
        self._query: Float64[np.ndarray, " dim"] = query.astype(np.float64)
        self._single: Float32[np.ndarray, " dim"] = query.astype(np.float32)
        self._squares = self._single * self._single
        self._scratch = np.empty((2, len(query)), dtype=np.float32)

    def cosine(self, other: Float64[np.ndarray, " dim"]) -> tuple[float, float]:
        """Cosine of the query with a vector of any length, and its standard error.

        The error in single precision, in memory that is used again: about 1e-7 of it.
        """
        length = math.sqrt(float(other @ other)) or 1.0
        cosine = float(other @ self._query) / length
        unit, residuals = self._scratch
        np.multiply(other, 1 / length, out=unit, casting="same_kind")
        np.multiply(unit, unit, out=residuals)
        residuals += self._squares
        residuals *= -cosine / 2
        unit *= self._single
        residuals += unit
        return cosine, math.sqrt(float(residuals @ residuals))
