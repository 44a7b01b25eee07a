"""The main axes of a Gram or covariance matrix."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

from ...arrays import Float64

LARGE_SIDE = 1024
"""Sides above which tridiagonalisation takes seconds, and Lanczos to rounding a fifth of it."""


def top_eigenpairs(
    matrix: Float64[np.ndarray, "dim dim"], k: int
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, "dim k"]]:
    """The k largest eigenvalues of a symmetric matrix, ascending, and their vectors."""
    side = len(matrix)
    if side > LARGE_SIDE and 4 * k < side:
        start = np.random.default_rng(0).standard_normal((side,))
        values, vectors = eigsh(matrix, k=k, which="LA", tol=0, v0=start)
    else:
        values, vectors = eigh(matrix, subset_by_index=(side - k, side - 1))
    order = np.argsort(values)
    return values[order], vectors[:, order]
