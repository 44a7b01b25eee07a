"""The default recipe: gauge-free random features of ΔW and of both its sides, pooled; and a linear
sketch of all of ΔW, for sums and differences of updates.

Per slot, three kernels between two updates, each a cosine: of U σ Vᵀ (`update`), of U √σ Uᵀ
(`output`) and of V σ² Vᵀ (`input`). docs/fingerprints.md says why these powers. A TensorSketch
(Pham, Pagh 2013) estimates inner products of matrices Σ aᵢ bᵢᵀ wᵢ without bias from `rank` vectors
a side: two count-sketches, multiplied as spectra. All slots add up under independent hashes.

Version 3 has the same spectra as version 2. It keeps a slot's blocks as codes with one weight, and
half as many numbers of the vector, and beside them the linear sketch, a CountSketch that is not
normalised. Entry (i, j) of a slot's matrix is added, with sign s(i) t(j), to number a(i) + j modulo
`DIM` (Charikar, Chen, Farach-Colton 2002, with signs that are a product, as in Pham, Pagh 2013).
Inner products of two sketches estimate ⟨ΔW, ΔW'⟩ without bias, since the signs of two entries agree
as often as not; the shifts a decide the variance, near (|ΔW|²|ΔW'|² + ⟨ΔW, ΔW'⟩²) / `DIM`.

The shift a(i) is a random number of the row's block of `BLOCK`, plus `step` for every row further
down in it: a block spans all `DIM` numbers. It is sketched by one product, since in a matrix whose
rows are shorter by `step` the same numbers are shifted so. A low-rank ΔW has the same sketch by way
of its factors' spectra.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from ...arrays import Float32
from ...records import LINEAR_DIM as DIM
from ...records import LINEAR_LAYER_DIM, LinearSketch, Recipe, Slot
from ...store import encode_sketch
from ..delta import DenseDelta, Factors, Features, LowRankDelta, MatrixUpdate

BLOCK_DIMS = {"update": 1024, "output": 2048, "input": 1024}
"""Lengths of the circular sketches that are added up, as spectra."""

SLOT_DIMS = {"update": 512, "output": 1024, "input": 512}
VECTOR_DIMS = {2: BLOCK_DIMS, 3: SLOT_DIMS}
"""Lengths of the blocks of the vector, by the recipe's version."""

VERSION = max(VECTOR_DIMS)
POWERS = {"update": 1.0, "output": 0.5, "input": 2.0}
WEIGHTS = {"update": 1.0, "output": 2.0, "input": 2.0}
LEAST_INPUT = 0.1
"""What is left of the input side's weight where an update is exactly of low rank."""


def sketch_recipe(rank: int, share: float = 1.0, version: int = VERSION) -> Recipe:
    """The default recipe; `slot_blocks` holds the lengths of a sketch's blocks.

    With a share it is another recipe: other rows, other numbers.
    """
    form = ("centring", "kind") if version == 2 else ("bits", "2")
    slot_blocks = ",".join(f"{block}:{dim}" for block, dim in SLOT_DIMS.items())
    weights = ",".join(f"{block}:{weight:g}" for block, weight in WEIGHTS.items())
    return Recipe(
        name="sketch",
        rank=rank,
        dim=sum(VECTOR_DIMS[version].values()),
        version=version,
        params=(
            form,
            *((("rows", f"{share * 100:g}%"),) if share < 1 else ()),
            ("slot_blocks", slot_blocks),
            ("weights", weights),
        ),
    )


def _empty_spectra() -> dict[str, torch.Tensor]:
    return {b: torch.zeros(d // 2 + 1, dtype=torch.complex64) for b, d in BLOCK_DIMS.items()}


@dataclass(slots=True)
class _SlotSpectra:
    spectra: dict[str, torch.Tensor] = field(default_factory=_empty_spectra)
    squares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(POWERS, 0.0))
    total: float = 0.0
    noise: float = 0.0
    cut_axis: int | None = None

    @property
    def signal(self) -> float:
        """The share of the update that is not storage rounding, 0…1."""
        return max(0.0, 1.0 - self.noise / self.total)

    def is_seen_whole(self, block: str) -> bool:
        """Whether a block is: of a few rows only the input side is, of a few columns the output."""
        return self.cut_axis is None or block != ("output", "input")[self.cut_axis]


@dataclass(slots=True)
class SketchPool:
    """Adds up one model's slots; then gives its vector and the per-slot sketches."""

    recipe: Recipe
    _slots: dict[Slot, _SlotSpectra] = field(default_factory=dict)

    def features(self, update: MatrixUpdate, factors: Factors) -> Features:
        """One matrix's spectrum a block; may run in any thread."""
        if len(factors.sigma) == 0:
            return {}
        sides = {
            "update": (factors.u, factors.v),
            "output": (factors.u, factors.u),
            "input": (factors.v, factors.v),
        }
        return {
            block: self._spectrum(
                f"{update.slot}/{update.part}/{block}",
                block,
                left,
                right,
                factors.sigma ** POWERS[block],
            )
            for block, (left, right) in sides.items()
        }

    def take(self, update: MatrixUpdate, factors: Factors, features: Features) -> None:
        """Add one matrix's features up."""
        sums = self._slots.setdefault(update.slot, _SlotSpectra())
        sigma = factors.sigma.double()
        for block, power in POWERS.items():
            sums.squares[block] += float((sigma ** (2 * power)).sum())
        sums.total += factors.fro_norm**2
        sums.noise += update.noise_norm**2
        sums.cut_axis = update.cut_axis
        for block, spectrum in features.items():
            sums.spectra[block] += spectrum

    def _spectrum(
        self, key: str, block: str, left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """Fourier transform of the TensorSketch of Σ weightᵢ leftᵢ rightᵢᵀ: (dim // 2 + 1,)."""
        sketches = sketch_pair(left, right, self.recipe.seed, key, BLOCK_DIMS[block])
        left_spectra, right_spectra = torch.fft.rfft(sketches, dim=1)
        spectrum: torch.Tensor = (left_spectra * right_spectra) @ weight.to(torch.complex64)
        return spectrum

    def vector(self) -> tuple[Float32[np.ndarray, " dim"], float]:
        """The pooled fingerprint, unit length, and its length before; zeros if no slot counts."""
        blocks = _empty_spectra()
        for sums in self._slots.values():
            for block, scale in _block_scales(sums).items():
                blocks[block] += sums.spectra[block] * scale
        pooled = torch.cat(list(_folded(blocks, VECTOR_DIMS[self.recipe.version]).values()))
        norm = float(torch.linalg.vector_norm(pooled.double()))
        unit = pooled / norm if norm > 0 else pooled
        return unit.numpy(), norm

    def slot_sketch(self, slot: Slot) -> bytes:
        """One slot's three blocks of `SLOT_DIMS`, or nothing where all of it was rounding.

        Of version 2, float16 numbers whose inner products estimate the slot's weighted kernels; of
        version 3, the codes of the same numbers, with the slot's weight.
        """
        sums = self._slots.get(slot)
        if sums is None:
            return b""
        folded = _folded(sums.spectra, SLOT_DIMS)
        if self.recipe.version == 2:
            scales = _block_scales(sums)
            blocks = [numbers * scales[block] for block, numbers in folded.items()]
            return torch.cat(blocks).numpy().astype("<f2").tobytes()
        weight = 0.0 if sums.squares["update"] == 0.0 else sums.signal**0.5
        weights = {block: weight * sums.is_seen_whole(block) for block in folded}
        if not any(weights.values()):
            return b""
        return encode_sketch([b.numpy() for b in folded.values()], list(weights.values()))


def _folded(
    spectra: Mapping[str, torch.Tensor], dims: Mapping[str, int]
) -> dict[str, torch.Tensor]:
    """Sketches of these lengths: a circular sketch of length D folded to D/k is every k-th value
    of its spectrum."""
    return {
        block: torch.fft.irfft(spectra[block][:: BLOCK_DIMS[block] // dim], n=dim)
        for block, dim in dims.items()
    }


def _block_scales(sums: _SlotSpectra) -> dict[str, float]:
    """What each block of a slot is multiplied by: its cosine norm, times its weight's root.

    A slot counts by the share of its update that is not storage rounding. Its input side
    counts by the share that the factors leave out: an update of exactly low rank is an
    adapter's, whose input side still holds the random start of its A matrix, while in a full
    fine-tune it is data like the rest. A little is left, so that the two kinds can meet there.
    Where a side is not seen whole it does not count, and how much the factors leave out says
    nothing about the other one.
    """
    factored = sums.squares["update"]
    if factored == 0.0:
        return dict.fromkeys(BLOCK_DIMS, 0.0)
    signal = sums.signal
    energy = min(1.0, factored / (sums.total * signal)) if signal > 0 else 1.0
    share = {"update": 1.0, "output": 1.0, "input": max(LEAST_INPUT, 1.0 - energy)}
    if sums.cut_axis is not None:
        share = {block: float(sums.is_seen_whole(block)) for block in share}
    return {
        block: (signal * WEIGHTS[block] * share[block] / sums.squares[block]) ** 0.5
        for block in BLOCK_DIMS
    }


def hash_rows(seed: int, key: str, n_rows: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A count-sketch hash of `n_rows` coordinates: buckets (int64) and signs (float32).

    Depends on its arguments only, on every machine: Philox keyed by a SHA-256 of them.
    """
    digest = hashlib.sha256(f"{seed}/{key}/{n_rows}/{dim}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    buckets = generator.integers(0, dim, size=n_rows, dtype=np.int64)
    signs = generator.integers(0, 2, size=n_rows, dtype=np.int8)
    return torch.from_numpy(buckets), torch.from_numpy(signs * 2.0 - 1.0).float()


def sketch_pair(
    left: torch.Tensor, right: torch.Tensor, seed: int, key: str, dim: int
) -> torch.Tensor:
    """Count sketches of the columns of two matrices, (n, rank) each: (2, dim, rank), float32.

    Charikar, Chen, Farach-Colton 2002: inner products are preserved in expectation. Both sides in
    one pass, under hashes of their own.
    """
    hashes = _pair_hash(seed, key, len(left), len(right), dim)
    sketch = torch.nn.functional.embedding_bag(
        hashes.rows,
        torch.cat([left, right]),
        hashes.starts,
        mode="sum",
        per_sample_weights=hashes.signs,
    )
    return sketch.view(2, dim, -1)


@dataclass(frozen=True, slots=True, eq=False)
class _PairHash:
    """The hashes of both sides of a matrix, bucket by bucket.

    A bucket's rows are gathered and added, several times as fast as adding every row to its bucket.

    Attributes:
        rows: Of every bucket in turn, in order; the right side's after the left's.
        starts: (2 · dim,), where each bucket's rows begin; the right side's after the left's.
    """

    rows: torch.Tensor
    starts: torch.Tensor
    signs: torch.Tensor


@lru_cache(maxsize=4096)
def _pair_hash(seed: int, key: str, n_left: int, n_right: int, dim: int) -> _PairHash:
    left_buckets, left_signs = hash_rows(seed, key + "/a", n_left, dim)
    right_buckets, right_signs = hash_rows(seed, key + "/b", n_right, dim)
    buckets = torch.cat([left_buckets, right_buckets + dim])
    rows = torch.argsort(buckets, stable=True)
    sizes = torch.bincount(buckets, minlength=2 * dim)
    signs = torch.cat([left_signs, right_signs])[rows]
    return _PairHash(rows.int(), (sizes.cumsum(0) - sizes).int(), signs)


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
    """The sketch of a dense ΔW that begins at this row and column. Peak: a block of rows, again."""
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
