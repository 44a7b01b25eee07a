"""One slot's weight update ΔW, (out, in), child − base, in its cheapest form; and its factors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from ..arrays import Float64
from ..records import Slot

RELATIVE_ROUNDING = {
    torch.float64: 0.0,
    torch.float32: 2.0**-24 / 3**0.5 * 0.735,
    torch.float16: 2.0**-11 / 3**0.5 * 0.735,
    torch.bfloat16: 2.0**-8 / 3**0.5 * 0.735,
}
"""How much of a stored matrix is only rounding, |round(W) − W| / |W|, by its type: half an ulp,
uniform, so ulp/√12; 0.735 is the mean of ulp over magnitude across a binade for a Gaussian matrix.
Measured on one: 1.66e-3 for bfloat16, 2.1e-4 for float16."""

LARGEST_NORM = 1e15
"""|M| beyond which a matrix is refused. The sketch adds up σ², times up to √(out · in), over the
parts of a slot: from 1e16 on, a thousand experts with a million rows and columns leave float32."""

LEAST_NORM = 1e-15
"""|ΔW| up to which an update is none: the squares of its σ would leave float32."""

WIDE_BLOCK = 1 << 19
"""Entries that are widened before they are subtracted: they stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class DenseDelta:
    """ΔW as a float32 matrix of shape (out, in), and its norm where it was measured already."""

    matrix: torch.Tensor
    measured_norm: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def norm(self) -> float:
        if self.measured_norm is not None:
            return self.measured_norm
        return float(torch.linalg.vector_norm(self.matrix))


@dataclass(frozen=True, slots=True)
class LowRankDelta:
    """ΔW = left @ right: float32, (out, r) and (r, in), every scale included."""

    left: torch.Tensor
    right: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    @property
    def norm(self) -> float:
        """|ΔW|, Frobenius, from the two r × r Gram matrices in float64."""
        left, right = self.left.double(), self.right.double()
        square = ((left.T @ left) * (right @ right.T)).sum()
        return float(square.clamp(min=0.0).sqrt())


Delta = DenseDelta | LowRankDelta


def dense(delta: Delta) -> torch.Tensor:
    """ΔW as one matrix, which is the delta's own where it is dense."""
    return delta.matrix if isinstance(delta, DenseDelta) else delta.left @ delta.right


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUpdate:
    """One matrix's ΔW on its way to a collector, None for an exact zero. `shape`: (out, in) of the
    whole matrix; `noise_norm`: estimated |rounding| in ΔW, Frobenius; `weight_norm`: |W|, where W
    was read; `cut_axis`: 0 or 1 where ΔW is some rows or columns, from `cut_start` on."""

    slot: Slot
    part: str
    delta: Delta | None
    shape: tuple[int, int]
    noise_norm: float
    weight_norm: float | None
    cut_axis: int | None = None
    cut_start: int = 0


def flaw_of(norm: float, *stored: torch.Tensor) -> str | None:
    """Why a matrix with this |M|, made of these stored numbers, cannot be used; None if it can."""
    if norm <= LARGEST_NORM:
        return None
    if not all(bool(numbers.isfinite().all()) for numbers in stored):
        return "holds NaN or infinity"
    return f"overflows: its norm is above {LARGEST_NORM:.0e}, the largest that is computed with"


@dataclass(slots=True)
class Scratch:
    """One worker's buffers by purpose, used again for every matrix: fresh pages cost more than the
    arithmetic."""

    _buffers: dict[str, torch.Tensor] = field(default_factory=dict)

    def float32(self, purpose: str, shape: tuple[int, ...]) -> torch.Tensor:
        size = math.prod(shape)
        buffer = self._buffers.get(purpose)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[purpose] = torch.empty(size)
        return buffer[:size].view(shape)


class ScratchPool:
    """As many `Scratch` as there ever were workers at once. Safe between threads."""

    def __init__(self) -> None:
        self._free: list[Scratch] = []

    @contextmanager
    def borrow(self) -> Iterator[Scratch]:
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = Scratch()
        try:
            yield scratch
        finally:
            self._free.append(scratch)


def update_against(
    child: torch.Tensor, base: torch.Tensor, scratch: Scratch, device: str = "cpu"
) -> DenseDelta:
    """ΔW = child − base in float32, against the base as the child's training saw it.

    A child stored in a shorter type than its base came either from float32 training that
    was rounded once, or from training that began at the rounded base. Of child − W and
    child − round(W) the smaller is the better estimate of the update in both histories.
    The result lives in `scratch` (on `device`, if that is another): it is good until the
    next call. Peak: one matrix in float32; two where the child was rounded once.
    """
    if device != "cpu":
        child, base = child.to(device), base.to(device)
    here = scratch if device == "cpu" else None
    difference = _difference(child, base, here, "update")
    if child.dtype == base.dtype or child.dtype.itemsize >= base.dtype.itemsize:
        return difference
    rounded = _difference(child, base.to(child.dtype), here, "rounded update")
    return rounded if rounded.norm < difference.norm else difference


def _difference(
    child: torch.Tensor, base: torch.Tensor, scratch: Scratch | None, purpose: str
) -> DenseDelta:
    transposed = child.stride(-1) != 1 and child.stride(0) == 1
    if transposed:
        child, base = child.T, base.T
    shape = tuple(child.shape)
    if scratch is not None:
        update = scratch.float32(purpose, shape)
        height = len(child)
        if child.dtype != torch.float32 or base.dtype != torch.float32:
            height = max(1, WIDE_BLOCK // max(1, shape[1]))
        for start in range(0, len(child), max(1, height)):
            rows = slice(start, start + height)
            # torch subtracts mixed types one element at a time, eight times slower than this
            wide = _wide(child[rows], scratch, "child"), _wide(base[rows], scratch, "base")
            torch.sub(*wide, out=update[rows])
    else:
        update = child.float() - base.float()
    norm = float(torch.linalg.vector_norm(update))
    return DenseDelta(update.T if transposed else update, norm)


def _wide(matrix: torch.Tensor, scratch: Scratch, whose: str) -> torch.Tensor:
    if matrix.dtype == torch.float32:
        return matrix
    return scratch.float32(f"wide {whose}", tuple(matrix.shape)).copy_(matrix)


Features = Mapping[str, torch.Tensor]
"""What a recipe makes of one matrix's factors, by the block of the fingerprint it is added to."""

OVERSAMPLING = 8

NORM_BLOCK = 1 << 18
"""Values that are widened at once: they stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The leading singular triplets of one ΔW, float32: u (out, rank) and v (in, rank) with
    orthonormal columns, sigma (rank,) descending and > 0; `fro_norm`: |ΔW| of the whole matrix."""

    u: torch.Tensor
    sigma: torch.Tensor
    v: torch.Tensor
    fro_norm: float

    def above(self, threshold: float) -> Factors:
        return self.first(int(np.count_nonzero(self.sigma.numpy() > threshold)))

    def first(self, rank: int) -> Factors:
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
    keep = min(rank, _numerical_rank(sigma.numpy()))
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
    wide = projected.double()
    squares, turn = torch.linalg.eigh((wide @ wide.T).cpu())
    # in NumPy: so few numbers cost it a tenth of a call of torch
    sigma = np.sqrt(np.maximum(squares.numpy()[::-1], 0.0))
    keep = min(rank, _numerical_rank(sigma))
    kept = torch.from_numpy(sigma[:keep].copy())
    turn = turn.flip(1)[:, :keep]
    u = basis @ turn.float().to(matrix.device)
    v = ((turn / kept).T.to(matrix.device) @ wide).T
    return Factors(u=u.cpu(), sigma=kept.float(), v=v.float().cpu(), fro_norm=fro_norm)


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
    squares, turn = torch.linalg.eigh((wide.T @ wide).cpu())
    values = squares.numpy()
    first = int(np.count_nonzero(values <= values[-1] * 1e-12))
    scaled = turn[:, first:] / squares[first:].sqrt()
    basis: torch.Tensor = (wide @ scaled.to(columns.device)).float()
    return basis


def frobenius(matrix: torch.Tensor) -> float:
    """|M|, Frobenius; half precision is widened, since its squares overflow. Some rows at a time:
    torch's norm widens one element at a time, ten times slower."""
    dtype = torch.promote_types(matrix.dtype, torch.float32)
    if matrix.dtype == dtype:
        return float(torch.linalg.vector_norm(matrix))
    rows = matrix.T if matrix.stride(-1) != 1 else matrix
    height = max(1, NORM_BLOCK // max(1, rows.shape[-1]))
    starts = range(0, rows.shape[0], height)
    blocks = (rows[start : start + height].to(dtype) for start in starts)
    return math.hypot(*(float(torch.linalg.vector_norm(block)) for block in blocks))


def largest_noise_sigma(noise_fro: float, shape: tuple[int, int]) -> float:
    """Largest singular value of independent noise of that Frobenius norm: σ₁ → s(√out + √in) for
    entries with standard deviation s = noise_fro / √(out · in) (Geman 1980)."""
    n_out, n_in = shape
    return noise_fro * (math.sqrt(n_out) + math.sqrt(n_in)) / math.sqrt(n_out * n_in)


def _numerical_rank(sigma: Float64[np.ndarray, " rank"]) -> int:
    return int(np.count_nonzero(sigma > 1e-6 * sigma[:1]))
