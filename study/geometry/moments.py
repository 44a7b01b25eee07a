"""Means and covariances of rows that come in batches, and the main axes of a covariance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

from ...arrays import Float, Float64

LARGE_SIDE = 1024
"""Above this side Lanczos takes a fifth of the time of a tridiagonalisation."""


class Moments:
    """Count, mean and scatter Σ(x − x̄)(x − x̄)ᵀ of rows seen so far, in float64.

    Every batch is centred by its own mean and added by Chan, Golub & LeVeque 1983, eq. 1.5, so
    that a mean far from the origin costs no digits. Peak: two dim² matrices.
    """

    __slots__ = ("mean", "n", "scatter")

    def __init__(self, dim: int) -> None:
        self.n = 0
        self.mean: Float64[np.ndarray, " dim"] = np.zeros(dim)
        self.scatter: Float64[np.ndarray, "dim dim"] = np.zeros((dim, dim))

    @classmethod
    def of(cls, rows: Float[np.ndarray, "rows dim"]) -> Moments:
        """Of rows in memory."""
        moments = cls(rows.shape[1])
        moments.update(rows)
        return moments

    @property
    def dim(self) -> int:
        return len(self.mean)

    def update(self, rows: Float[np.ndarray, "rows dim"]) -> None:
        """Add a batch of rows."""
        if len(rows):
            mean = rows.mean(axis=0, dtype=np.float64)
            centred = rows - mean
            self.join(len(rows), mean, centred.T @ centred)

    def covariance(self) -> Float64[np.ndarray, "dim dim"]:
        """Σ(x − x̄)(x − x̄)ᵀ / n."""
        covariance: Float64[np.ndarray, "dim dim"] = self.scatter / self.n
        return covariance

    def about_origin(self) -> Float64[np.ndarray, "dim dim"]:
        """Σ x xᵀ."""
        squares: Float64[np.ndarray, "dim dim"] = self.scatter.copy()
        squares += self.n * np.outer(self.mean, self.mean)
        return squares

    def join(
        self, n: int, mean: Float64[np.ndarray, " dim"], scatter: Float64[np.ndarray, "dim dim"]
    ) -> None:
        """Add n > 0 rows by their moments."""
        total = self.n + n
        step = mean - self.mean
        self.scatter += scatter
        if self.n:
            self.scatter += np.outer(step, step * (self.n * n / total))
        self.mean = self.mean + step * (n / total)
        self.n = total


def pooled_cross(parts: Sequence[CrossMoments]) -> CrossMoments:
    """The cross moments of all the parts' rows."""
    whole = CrossMoments(len(parts[0].mean_x))
    for part in parts:
        if part.n:
            whole.join(part.n, part.mean_x, part.mean_y, part.scatter)
    return whole


def pooled(parts: Sequence[Moments]) -> Moments:
    """The moments of all the parts' rows."""
    whole = Moments(parts[0].dim)
    for part in parts:
        if part.n:
            whole.join(part.n, part.mean, part.scatter)
    return whole


class CrossMoments:
    """Scatter Σ(x − x̄)(y − ȳ)ᵀ of two matrices whose rows belong together, in float64."""

    __slots__ = ("mean_x", "mean_y", "n", "scatter")

    def __init__(self, dim: int) -> None:
        self.n = 0
        self.mean_x: Float64[np.ndarray, " dim"] = np.zeros(dim)
        self.mean_y: Float64[np.ndarray, " dim"] = np.zeros(dim)
        self.scatter: Float64[np.ndarray, "dim dim"] = np.zeros((dim, dim))

    @classmethod
    def of(cls, x: Float[np.ndarray, "rows dim"], y: Float[np.ndarray, "rows dim"]) -> CrossMoments:
        """Of rows in memory."""
        moments = cls(x.shape[1])
        if len(x):
            means = [rows.mean(axis=0, dtype=np.float64) for rows in (x, y)]
            moments.join(len(x), means[0], means[1], (x - means[0]).T @ (y - means[1]))
        return moments

    def join(
        self,
        n: int,
        mean_x: Float64[np.ndarray, " dim"],
        mean_y: Float64[np.ndarray, " dim"],
        scatter: Float64[np.ndarray, "dim dim"],
    ) -> None:
        """Add n > 0 rows by their moments."""
        total = self.n + n
        step_x, step_y = mean_x - self.mean_x, mean_y - self.mean_y
        self.scatter += scatter
        if self.n:
            self.scatter += np.outer(step_x, step_y * (self.n * n / total))
        self.mean_x = self.mean_x + step_x * (n / total)
        self.mean_y = self.mean_y + step_y * (n / total)
        self.n = total


class StreamMoments:
    """Moments of every layer, and cross moments of every layer with the next, over batches.

    Peak: (2·layers − 1) dim² matrices, or `layers` of them without the cross moments, and a
    batch of two layers in float64.
    """

    __slots__ = ("crossed", "layers")

    def __init__(self, layers: int, dim: int, *, crossed: bool) -> None:
        self.layers = [Moments(dim) for _ in range(layers)]
        self.crossed = [CrossMoments(dim) for _ in range(layers - 1)] if crossed else []

    def update(self, hidden: Float[np.ndarray, "layers rows dim"]) -> None:
        """Add a batch of rows of all layers."""
        n = hidden.shape[1]
        if not n:
            return
        before: Float64[np.ndarray, "rows dim"] = np.empty((0, 0))
        before_mean: Float64[np.ndarray, " dim"] = np.empty(0)
        for layer, rows in enumerate(hidden):
            mean = rows.mean(axis=0, dtype=np.float64)
            centred = rows - mean
            self.layers[layer].join(n, mean, centred.T @ centred)
            if layer and self.crossed:
                cross = self.crossed[layer - 1]
                cross.join(n, before_mean, mean, before.T @ centred)
            before, before_mean = centred, mean


class RowSums:
    """Sums of rows' directions and squares, for their mean cosine and size."""

    __slots__ = ("n", "n_nonzero", "squares", "units")

    def __init__(self, dim: int) -> None:
        self.n = 0
        self.n_nonzero = 0
        self.units: Float64[np.ndarray, " dim"] = np.zeros(dim)
        self.squares = 0.0

    def update(self, rows: Float[np.ndarray, "rows dim"]) -> None:
        """Add a batch of rows."""
        exact = rows.astype(np.float64)
        squares = np.einsum("ij,ij->i", exact, exact)
        nonzero = squares > 0
        self.n += len(rows)
        self.n_nonzero += int(nonzero.sum())
        self.units += (1.0 / np.sqrt(squares[nonzero])) @ exact[nonzero]
        self.squares += float(squares.sum())

    @property
    def mean_cosine(self) -> float | None:
        """Over all pairs of different rows that are not zero: (‖Σû‖² − n) / (n(n − 1))."""
        n = self.n_nonzero
        return (float(self.units @ self.units) - n) / (n * (n - 1)) if n > 1 else None

    @property
    def rms_coordinate(self) -> float:
        """√ of the mean square over rows and coordinates; 0 where there are no rows."""
        return float((self.squares / max(1, self.n * len(self.units))) ** 0.5)


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
