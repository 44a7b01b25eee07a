"""A CountSketch of all of ΔW: linear in ΔW and not normalised, for sums and differences of updates.

Entry (i, j) of a slot's matrix is added, with sign s(i) t(j), to number a(i) + j modulo `DIM`
(Charikar, Chen, Farach-Colton 2002, with signs that are a product, as in Pham, Pagh 2013). Inner
products of two sketches estimate ⟨ΔW, ΔW'⟩ without bias, since the signs of two entries agree as
often as not; the shifts a decide the variance, near (|ΔW|²|ΔW'|² + ⟨ΔW, ΔW'⟩²) / `DIM`.

The shift a(i) is a random number of the row's block of `BLOCK`, plus `step` for every row further
down in it: a block spans all `DIM` numbers. It is sketched by one product, since in a matrix whose
rows are shorter by `step` the same numbers are shifted so. A low-rank ΔW has the same sketch by way
of its factors' spectra.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from ...arrays import Float32
from ...records import LINEAR_DIM as DIM
from ...records import LINEAR_LAYER_DIM, LinearSketch, Recipe, Slot
from ..delta import DenseDelta, LowRankDelta, MatrixUpdate

BLOCK = 128
"""Consecutive rows under one random shift."""

RANKS_AT_ONCE = 64
"""Factors whose spectra are held at once: 0.5 MB a side."""


def has_linear_sketch(recipe: Recipe) -> bool:
    """Whether models under this recipe keep a linear sketch."""
    return recipe.name == "sketch" and recipe.version >= 3


@dataclass(slots=True)
class LinearPool:
    """Adds up one model's matrices in float64."""

    recipe: Recipe
    _layers: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)

    def features(self, update: MatrixUpdate) -> torch.Tensor | None:
        """The sketch of one matrix's ΔW, (DIM,); None of an exact zero. May run in any thread."""
        if update.delta is None:
            return None
        hashes = _matrix_hash(self.recipe.seed, f"{update.slot}/{update.part}", update.shape)
        first = [0, 0]
        if update.cut_axis is not None:
            first[update.cut_axis] = update.cut_start
        if isinstance(update.delta, DenseDelta):
            return _sketch_dense(update.delta.matrix, hashes, *first)
        return _sketch_low_rank(update.delta, hashes, *first)

    def take(self, slot: Slot, features: torch.Tensor) -> None:
        """Add one matrix's sketch; matrices of one slot have hashes of their own, as slots do."""
        key = slot.stack, slot.layer
        self._layers[key] = self._layers.get(key, 0.0) + features

    def sketch(self) -> LinearSketch:
        """The sums: of every layer, and of all."""
        pooled = sum(self._layers.values(), torch.zeros(DIM, dtype=torch.float64))
        return LinearSketch(
            recipe=self.recipe.id,
            pooled=_stored(pooled),
            layers={
                # number k is added to number k modulo the shorter length
                key: _stored(numbers.view(-1, LINEAR_LAYER_DIM).sum(0))
                for key, numbers in sorted(self._layers.items())
            },
        )


@dataclass(frozen=True, slots=True, eq=False)
class MatrixHash:
    """The hash of one whole matrix's entries.

    Attributes:
        shifts: Of each block of rows, 0…`DIM` − 1.
        step: From each row of a block to the next; odd.
        row_signs: (out,), ±1.
        column_signs: (in,), ±1.
    """

    shifts: tuple[int, ...]
    step: int
    row_signs: torch.Tensor
    column_signs: torch.Tensor


@lru_cache(maxsize=4096)
def _matrix_hash(seed: int, key: str, shape: tuple[int, int]) -> MatrixHash:
    """The hash of a matrix's entries, by its place in the model and its whole shape alone."""
    n_rows, n_columns = shape
    digest = hashlib.sha256(f"{seed}/{key}/linear/{n_rows}/{n_columns}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    shifts = generator.integers(0, DIM, size=math.ceil(n_rows / BLOCK), dtype=np.int64)
    signs = generator.integers(0, 2, size=n_rows + n_columns, dtype=np.int8)
    values = torch.from_numpy(signs * 2.0 - 1.0).float()
    step = max(1, (DIM - n_columns) // BLOCK)
    step -= 1 - step % 2
    return MatrixHash(tuple(shifts.tolist()), step, values[:n_rows], values[n_rows:])


def _sketch_dense(
    matrix: torch.Tensor, hashes: MatrixHash, first_row: int, first_column: int
) -> torch.Tensor:
    """The sketch of a dense ΔW that begins at this row and column of the whole matrix.

    Peak: a block of rows, again.
    """
    n_rows, n_columns = matrix.shape
    device = matrix.device
    row_signs = hashes.row_signs[first_row : first_row + n_rows].to(device)
    column_signs = hashes.column_signs[first_column : first_column + n_columns].to(device)
    # numbers and zeros; read as rows that are shorter by a step, row r begins r steps further on
    step = hashes.step
    width = n_columns + BLOCK * step
    memory = torch.empty(BLOCK * width, device=device)
    memory.view(BLOCK, width)[:, n_columns:] = 0.0
    signed = memory.view(BLOCK, width)[:, :n_columns]
    length = width - step
    shifted = memory[: BLOCK * length].view(BLOCK, length)
    longest = DIM + BLOCK * step + first_column + length
    sums = torch.zeros(math.ceil(longest / DIM) * DIM, dtype=torch.float64, device=device)
    row = 0
    while row < n_rows:
        block, inside = divmod(first_row + row, BLOCK)
        height = min(BLOCK - inside, n_rows - row)
        torch.mul(matrix[row : row + height], column_signs, out=signed[:height])
        start = hashes.shifts[block] + inside * step + first_column
        sums[start : start + length] += row_signs[row : row + height] @ shifted[:height]
        row += height
    return sums.view(-1, DIM).sum(0).cpu()


def _sketch_low_rank(
    delta: LowRankDelta, hashes: MatrixHash, first_row: int, first_column: int
) -> torch.Tensor:
    """The same of ΔW = left @ right: a sketch of an outer product is a circular convolution."""
    n_rows, rank = delta.left.shape
    n_columns = delta.right.shape[1]
    rows = torch.arange(first_row, first_row + n_rows)
    columns = torch.arange(first_column, first_column + n_columns)
    row_buckets = (torch.tensor(hashes.shifts)[rows // BLOCK] + rows % BLOCK * hashes.step) % DIM
    sums = torch.zeros(DIM // 2 + 1, dtype=torch.complex128)
    for start in range(0, rank, RANKS_AT_ONCE):
        part = slice(start, start + RANKS_AT_ONCE)
        left = _bucket(delta.left[:, part].double() * hashes.row_signs[rows, None], row_buckets)
        right = delta.right[part].T.double() * hashes.column_signs[columns, None]
        spectra = torch.fft.rfft(left, dim=0) * torch.fft.rfft(_bucket(right, columns % DIM), dim=0)
        sums += spectra.sum(1)
    numbers: torch.Tensor = torch.fft.irfft(sums, n=DIM)
    return numbers


def _bucket(rows: torch.Tensor, buckets: torch.Tensor) -> torch.Tensor:
    """Sums of the rows of each bucket: (DIM, rank)."""
    return rows.new_zeros(DIM, rows.shape[1]).index_add_(0, buckets, rows)


def _stored(numbers: torch.Tensor) -> Float32[np.ndarray, " features"]:
    stored: Float32[np.ndarray, " features"] = numbers.float().numpy()
    stored.flags.writeable = False
    return stored
