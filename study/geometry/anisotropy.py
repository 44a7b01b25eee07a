"""Anisotropy σ₁²/Σσᵢ² of a token matrix: the share of its squares on its main direction.

The largest σ² comes from the Gram matrix (exact, streamed), from Lanczos on
a matrix in memory, or from the power method, which may converge to a smaller σ².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from ...arrays import Float, Float64
from ..report_json import JsonRecord
from .moments import Moments, RowSums, top_eigenpairs

Method = Literal["gram", "lanczos", "power"]
METHODS: tuple[Method, ...] = get_args(Method)

LANCZOS_TOLERANCE = 1e-4
"""Tolerance of the residual; the error of the value is proportional to its square."""

EXACT_SIDE = 64
"""Matrices of up to this side are solved directly, as Lanczos would not be faster."""

SPREAD_ROUNDING = 1e-24
"""Share of the squares that rounding may leave of equal rows less their mean."""

POWER_TOLERANCE = 1e-6
POWER_STARTS = 2
FEWEST_ITERATIONS, MOST_ITERATIONS = 10, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport(JsonRecord):
    """The value of the power method, and whether it converged.

    Attributes:
        value: σ₁², never too large: the largest value over the starts.
        iterations: Of the start that gave the value.
        residual: ‖XᵀXv − λv‖/λ.
        converged: The value did not change in three iterations and the residual is small. The
            value may still be some per cent below the largest where σ₁ and σ₂ are close.
    """

    value: float
    iterations: int
    residual: float
    converged: bool
    starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Anisotropy(JsonRecord):
    """The anisotropy of a cloud of tokens; None for fewer than two rows, or equal ones.

    Attributes:
        method: How the largest σ² was computed.
        rows: Rows that `centred` and `uncentred` are computed from.
        centred: σ₁²/Σσᵢ² of the column-centred matrix, 0…1.
        uncentred: The same of the matrix as it is; at least n‖x̄‖²/Σ‖x‖².
        mean_cosine: Mean over all pairs of different rows, −1…1, without zero rows.
        cosine_rows: Rows that `mean_cosine` is computed from.
        centred_power, uncentred_power: What the power method reports.
    """

    method: Method
    rows: int
    centred: float | None
    uncentred: float | None
    mean_cosine: float | None
    cosine_rows: int
    centred_power: PowerReport | None = None
    uncentred_power: PowerReport | None = None


def anisotropy(
    rows: Float[np.ndarray, "rows dim"], *, method: Method = "gram", seed: int = 0
) -> Anisotropy:
    """The anisotropy of rows in memory.

    Peak: a centred copy; with `gram` a copy in float64 and two dim² matrices.
    """
    sums = RowSums(rows.shape[1])
    sums.update(rows)
    if method == "gram":
        return streamed_anisotropy(Moments.of(rows), sums)
    return sampled_anisotropy(rows, sums, method=method, seed=seed)


def streamed_anisotropy(moments: Moments, sums: RowSums) -> Anisotropy:
    """The anisotropy of rows that were only summed. Peak: two dim² matrices."""
    about_mean = float(np.trace(moments.scatter))
    about_origin = about_mean + moments.n * float(moments.mean @ moments.mean)
    spread = moments.n > 1 and about_mean > SPREAD_ROUNDING * about_origin
    return Anisotropy(
        method="gram",
        rows=moments.n,
        centred=_share_of_gram(moments.scatter) if spread else None,
        uncentred=_share_of_gram(moments.about_origin()) if moments.n > 1 else None,
        mean_cosine=sums.mean_cosine,
        cosine_rows=sums.n_nonzero,
    )


def sampled_anisotropy(
    rows: Float[np.ndarray, "rows dim"], sums: RowSums, *, method: Method, seed: int = 0
) -> Anisotropy:
    """The anisotropy of rows in memory; the mean cosine is of `sums`, which may have more rows."""
    if method not in ("lanczos", "power"):
        raise ValueError(f"method must be lanczos or power for rows in memory, got {method!r}")
    centred, centred_power = _share(centre(rows), method, seed)
    uncentred, uncentred_power = _share(rows, method, seed) if len(rows) > 1 else (None, None)
    return Anisotropy(
        method=method,
        rows=len(rows),
        centred=centred,
        uncentred=uncentred,
        mean_cosine=sums.mean_cosine,
        cosine_rows=sums.n_nonzero,
        centred_power=centred_power,
        uncentred_power=uncentred_power,
    )


def centre(rows: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
    """The rows less their mean, taken in float64; zeros where only rounding is left."""
    if not len(rows):
        return rows
    mean = rows.mean(axis=0, dtype=np.float64)
    centred: Float[np.ndarray, "rows dim"] = (rows - mean).astype(rows.dtype)
    if sum_of_squares(centred) <= SPREAD_ROUNDING * sum_of_squares(rows):
        centred[:] = 0
    return centred


def lanczos(
    matrix: Float[np.ndarray, "rows cols"], *, tol: float = LANCZOS_TOLERANCE, seed: int = 0
) -> float:
    """σ₁² of a matrix by ARPACK's implicitly restarted Lanczos on its smaller side.

    Measured (benchmarks/anisotropy.py): relative error ≤ 1e-7 in float32, with or without a gap
    between σ₁ and σ₂. The Rayleigh quotient at the end is taken in float64 sums.
    """
    thin = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T  # (side, other)
    side = thin.shape[0]
    if side <= EXACT_SIDE:
        exact = thin.astype(np.float64)
        return float(top_eigenpairs(exact @ exact.T, 1)[0][0])
    start = np.random.default_rng(seed).standard_normal((side,)).astype(thin.dtype)
    if not (thin.T @ start).any():
        return 0.0
    operator = LinearOperator(
        (side, side), matvec=lambda z: thin @ (thin.T @ z.ravel()), dtype=thin.dtype
    )
    _, vectors = eigsh(operator, k=1, which="LA", tol=tol, v0=start)
    image = (thin.T @ vectors[:, 0]).astype(np.float64)
    return float(image @ image) / float(np.sum(vectors.astype(np.float64) ** 2))


def power_method(
    matrix: Float[np.ndarray, "rows cols"],
    *,
    tol: float = POWER_TOLERANCE,
    starts: int = POWER_STARTS,
    seed: int = 0,
) -> PowerReport:
    """σ₁² of a matrix by iterating v ← XᵀXv, the largest over seeded starts."""
    rng = np.random.default_rng(seed)
    vectors = (rng.standard_normal((matrix.shape[1],)) for _ in range(starts))
    reports = (_power_from(matrix, vector, tol, starts) for vector in vectors)
    return max(reports, key=lambda report: report.value)


def sum_of_squares(matrix: Float[np.ndarray, "rows cols"]) -> float:
    """Σ xᵢⱼ² in float64, without a float64 copy."""
    parts = np.array_split(matrix, max(1, len(matrix) // 256))
    return float(sum(np.einsum("ij,ij->", part, part, dtype=np.float64) for part in parts))


def _share(
    matrix: Float[np.ndarray, "rows cols"], method: Method, seed: int
) -> tuple[float | None, PowerReport | None]:
    total = sum_of_squares(matrix)
    if total == 0.0:
        return None, None
    if method == "lanczos":
        return lanczos(matrix, seed=seed) / total, None
    report = power_method(matrix, seed=seed)
    return report.value / total, report


def _power_from(
    matrix: Float[np.ndarray, "rows cols"], start: Float64[np.ndarray, " cols"], tol: float, n: int
) -> PowerReport:
    """The power method from one start.

    It stops after 10 iterations or more, when the value changed by at most `tol` in three
    iterations in a row and the residual is at most √tol.
    """
    vector = (start / np.linalg.norm(start)).astype(matrix.dtype)
    value, residual, still, converged = 0.0, np.inf, 0, False
    for iteration in range(1, MOST_ITERATIONS + 1):
        before = value
        image = matrix @ vector
        value = float(np.dot(image, image))
        if value == 0.0:
            residual, converged = 0.0, True
            break
        back = matrix.T @ image
        residual = float(np.linalg.norm(back - value * vector)) / value
        still = still + 1 if abs(value - before) <= tol * value else 0
        converged = iteration >= FEWEST_ITERATIONS and still >= 3 and residual <= tol**0.5
        if converged:
            break
        vector = back / np.linalg.norm(back)
    return PowerReport(
        value=value, iterations=iteration, residual=residual, converged=converged, starts=n
    )


def _share_of_gram(gram: Float64[np.ndarray, "dim dim"]) -> float | None:
    total = float(np.trace(gram))
    return float(top_eigenpairs(gram, 1)[0][0]) / total if total > 0 else None
