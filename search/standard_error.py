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
from jaxtyping import Float64, Shaped


class StandardErrors:
    """Standard errors of one query's cosines, as estimates from `dim` random features."""

    def __init__(self, query: Shaped[np.ndarray, " dim"]) -> None:
        """`query` is of unit length."""
        self._query: Float64[np.ndarray, " dim"] = query.astype(np.float64)
        self._squares = self._query * self._query
        self._odd = np.stack([self._query, self._squares * self._query])
        self._fourth = float(self._squares @ self._squares)
        self._scratch = np.empty((2, len(query)))

    def cosine(self, other: Float64[np.ndarray, " dim"]) -> tuple[float, float]:
        """Cosine of the query with a vector of any length, and its standard error.

        Σ z² multiplied out, so that each number of `other` is looked at few times.
        """
        squares, product = self._scratch
        np.multiply(other, other, out=squares)
        np.multiply(other, self._query, out=product)
        length = math.sqrt(float(squares.sum())) or 1.0
        inner, cubes = (self._odd @ other).tolist()
        cosine = inner / length
        both = float(squares @ self._squares) / length**2
        mixed = cubes / length + float(squares @ product) / length**3
        fourth = self._fourth + 2 * both + float(squares @ squares) / length**4
        variance = both - cosine * mixed + cosine**2 / 4 * fourth
        return cosine, math.sqrt(max(0.0, variance))
