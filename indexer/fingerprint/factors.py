"""Rank-r factors of a slot's update: ΔW ≈ U diag(σ) Vᵀ, with the error that remains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from ..delta import Delta, DenseDelta

Features = Mapping[str, torch.Tensor]
"""What a recipe makes of one matrix's factors, by the block of the fingerprint it is added to."""

OVERSAMPLING = 8

NORM_BLOCK = 1 << 18
"""Values that are widened at once: they stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The leading singular triplets of one ΔW, float32.

    Attributes:
        u: (out, rank), orthonormal columns.
        sigma: (rank,), descending, all > 0.
        v: (in, rank), orthonormal columns.
        fro_norm: |ΔW|, Frobenius, of the whole matrix.
    """

    u: torch.Tensor
    sigma: torch.Tensor
    v: torch.Tensor
    fro_norm: float

    def above(self, threshold: float) -> Factors:
        """The same factors without the triplets whose σ is not above `threshold`."""
        return self.first(int((self.sigma > threshold).sum()))

    def first(self, rank: int) -> Factors:
        """The same factors, at most `rank` of them."""
        return Factors(
            u=self.u[:, :rank], sigma=self.sigma[:rank], v=self.v[:, :rank], fro_norm=self.fro_norm
        )


def factorise(delta: Delta, rank: int, *, seed: int, power_steps: int = 0) -> Factors:
    """Leading `rank` singular triplets of ΔW; exact for low-rank deltas.

    Dense deltas: Halko, Martinsson, Tropp 2011, Alg. 4.4 and 5.1, with `OVERSAMPLING` extra
    columns and a Gaussian test matrix fixed by `seed` and the width alone, so that the same
    matrix always gives the same factors. Without power steps σ and the subspaces are those
    of QQᵀΔW: every σ is a lower bound, and in expectation the squared error is at most
    1 + rank / (OVERSAMPLING − 1) times the best possible (their theorem 10.5). The error is
    known afterwards: |ΔW|² − Σσ² is what the factors leave out.
    Peak: ΔW and (out + in) × (rank + OVERSAMPLING) float32.
    """
    if isinstance(delta, DenseDelta):
        return _factorise_dense(delta, rank, seed, power_steps)
    q_left, r_left = torch.linalg.qr(delta.left.double())
    q_right, r_right = torch.linalg.qr(delta.right.T.double())
    core_u, sigma, core_vt = torch.linalg.svd(r_left @ r_right.T, full_matrices=False)
    fro_norm = float(sigma.square().sum().sqrt())
    keep = min(rank, _numerical_rank(sigma))
    return Factors(
        u=(q_left @ core_u[:, :keep]).float(),
        sigma=sigma[:keep].float(),
        v=(q_right @ core_vt[:keep].T).float(),
        fro_norm=fro_norm,
    )


def _factorise_dense(delta: DenseDelta, rank: int, seed: int, power_steps: int) -> Factors:
    """Q spans ΔW's image of random columns; QᵀΔW gives σ, V, and the turn of Q into U.

    Small matrices are solved in float64, on the processor: width × width eigenproblems.
    """
    matrix, fro_norm = delta.matrix, delta.norm
    width = min(rank + OVERSAMPLING, *matrix.shape)
    if fro_norm == 0.0 or width == 0:
        n_out, n_in = matrix.shape
        empty = matrix.new_zeros
        return Factors(u=empty(n_out, 0), sigma=empty(0), v=empty(n_in, 0), fro_norm=fro_norm)
    projected = gaussian_directions(seed, width, matrix.shape[1]).to(matrix.device)  # (width, in)
    for _ in range(1 + power_steps):
        # in this order MKL is a third faster than in that of its transpose
        basis = _orthonormal((projected @ matrix.T).T)  # (out, width)
        projected = basis.T @ matrix
    wide = projected.T.double()
    squares, turn = _eigen(wide)
    sigma = squares.flip(0).clamp(min=0.0).sqrt()
    keep = min(rank, _numerical_rank(sigma))
    turn = turn.flip(1)[:, :keep]
    u = basis @ turn.float().to(matrix.device)
    v = wide @ (turn / sigma[:keep]).to(matrix.device)
    return Factors(u=u.cpu(), sigma=sigma[:keep].float(), v=v.float().cpu(), fro_norm=fro_norm)


@lru_cache(maxsize=64)
def gaussian_directions(seed: int, width: int, n_in: int) -> torch.Tensor:
    """The test matrix Ω of a randomised SVD: (width, n_in)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(width, n_in, generator=generator)


def _orthonormal(columns: torch.Tensor) -> torch.Tensor:
    """An orthonormal basis of the columns' span, from their Gram matrix: (n, ≤ width).

    Directions below float32 rounding of the largest are left out. One product and a small
    eigenproblem, several times cheaper than a Householder QR of a tall matrix. In float64: the
    product divides by the smallest singular value, and magnifies its own rounding by as much.
    """
    wide = columns.double()
    squares, turn = _eigen(wide)
    significant = squares > squares[-1] * 1e-12
    scaled = turn[:, significant] / squares[significant].sqrt()
    return (wide @ scaled.to(columns.device)).float()


def _eigen(columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues, ascending, and -vectors of CᵀC, in the processor's memory."""
    squares, turn = torch.linalg.eigh((columns.T @ columns).cpu())
    return squares, turn


def frobenius(matrix: torch.Tensor) -> float:
    """|M|, Frobenius; half precision is widened, since its squares overflow.

    Some rows at a time: torch's norm widens one element at a time, ten times slower.
    """
    dtype = torch.promote_types(matrix.dtype, torch.float32)
    if matrix.dtype == dtype:
        return float(torch.linalg.vector_norm(matrix))
    rows = matrix.T if matrix.stride(-1) != 1 else matrix
    height = max(1, NORM_BLOCK // max(1, rows.shape[-1]))
    starts = range(0, rows.shape[0], height)
    blocks = (rows[start : start + height].to(dtype) for start in starts)
    return math.hypot(*(float(torch.linalg.vector_norm(block)) for block in blocks))


def largest_noise_sigma(noise_fro: float, shape: tuple[int, int]) -> float:
    """Largest singular value of independent noise of that Frobenius norm.

    An out × in matrix of entries with standard deviation s has σ₁ → s(√out + √in)
    (Geman 1980); s = noise_fro / √(out · in).
    """
    n_out, n_in = shape
    return noise_fro * (math.sqrt(n_out) + math.sqrt(n_in)) / math.sqrt(n_out * n_in)


def _numerical_rank(sigma: torch.Tensor) -> int:
    """How many σ stand above float32 rounding of the largest."""
    if len(sigma) == 0 or float(sigma[0]) == 0.0:
        return 0
    return int((sigma > 1e-6 * float(sigma[0])).sum())
