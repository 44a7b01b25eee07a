"""The default recipe: gauge-free random features of ΔW and of both its sides, pooled.

Per slot, three kernels between two updates, each a cosine: of U σ Vᵀ (`update`), of U √σ Uᵀ
(`output`) and of V σ² Vᵀ (`input`). docs/fingerprints.md says why these powers. A TensorSketch
(Pham, Pagh 2013) estimates inner products of matrices Σ aᵢ bᵢᵀ wᵢ without bias from `rank` vectors
a side: two count-sketches, multiplied as spectra. All slots add up under independent hashes.

Version 3 has the same spectra as version 2. It keeps a slot's blocks as codes with one weight, and
half as many numbers of the vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from ...arrays import Float32
from ...records import Recipe, Slot
from ...store import encode_sketch
from ..delta import Factors, Features, MatrixUpdate

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
    """Running sums over the parts of one slot."""

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
        """Of a few rows only the input side is seen whole, of a few columns the output side."""
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
        signs: Of the rows, ±1.
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
