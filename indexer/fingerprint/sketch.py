"""The default recipe: gauge-free random features of ΔW and of both its sides, pooled.

Per slot, three kernels between two updates with factors U σ Vᵀ:

    update   ⟨ΔW, ΔW'⟩             what the update does
    output   ⟨U σ Uᵀ, U' σ' U'ᵀ⟩   which output directions it writes, (ΔWΔWᵀ)^½
    input    ⟨V σ Vᵀ, V' σ' V'ᵀ⟩   which input directions it reads, (ΔWᵀΔW)^½

each divided by its own norms (all three are |σ|), so each is a cosine. None sees the signs
of singular vectors or rotations among equal singular values. (ΔWΔWᵀ)^½ stands half-way
between the projector of the subspace (which gives weak directions full weight) and the Gram
matrix (which all but forgets them).

All three are inner products of matrices Σ aᵢ bᵢᵀ σᵢ, so a TensorSketch (Pham, Pagh 2013)
estimates them without bias from `rank` vectors a side, never forming the matrix: two
count-sketches, multiplied as spectra. Spectra of all slots add up under independent hashes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float16, Float32

from ...records import Recipe, Slot
from .factors import Factors
from .hashing import count_sketch

BLOCK_DIMS = {"update": 1024, "output": 2048, "input": 1024}
SLOT_DIMS = {"update": 1024, "output": 2048, "input": 256}
OUTPUT_WEIGHT = 2.0
INPUT_WEIGHT = 2.0


def sketch_recipe(rank: int) -> Recipe:
    """The default recipe; `slot_blocks` tells readers of the sketches how they are cut."""
    slot_blocks = ",".join(f"{block}:{dim}" for block, dim in SLOT_DIMS.items())
    weights = f"update:1,output:{OUTPUT_WEIGHT:g},input:{INPUT_WEIGHT:g}(1-energy)"
    return Recipe(
        name="sketch",
        rank=rank,
        dim=sum(BLOCK_DIMS.values()),
        params=(("slot_blocks", slot_blocks), ("weights", weights)),
    )


@dataclass(slots=True)
class _SlotSpectra:
    """Running sums over the parts of one slot."""

    spectra: dict[str, torch.Tensor]
    kept: float = 0.0
    total: float = 0.0
    noise: float = 0.0


@dataclass(slots=True)
class SketchPool:
    """Adds up one model's slots; then gives its vector and the per-slot sketches."""

    recipe: Recipe
    _slots: dict[Slot, _SlotSpectra] = field(default_factory=dict)

    def features(self, slot: Slot, part: str, factors: Factors) -> dict[str, torch.Tensor]:
        """One matrix's spectrum a block; may run in any thread."""
        if len(factors.sigma) == 0:
            return {}
        sides = {
            "update": (factors.u, factors.v),
            "output": (factors.u, factors.u),
            "input": (factors.v, factors.v),
        }
        return {
            block: self._spectrum(f"{slot}/{part}/{block}", block, left, right, factors.sigma)
            for block, (left, right) in sides.items()
        }

    def take(
        self, slot: Slot, factors: Factors, features: dict[str, torch.Tensor], noise_norm: float
    ) -> None:
        """Add one matrix's features up. `noise_norm`: estimated |rounding| inside ΔW."""
        sums = self._slots.get(slot)
        if sums is None:
            empty = {
                b: torch.zeros(d // 2 + 1, dtype=torch.complex64) for b, d in BLOCK_DIMS.items()
            }
            sums = self._slots[slot] = _SlotSpectra(spectra=empty)
        sums.kept += float(factors.sigma.double().square().sum())
        sums.total += factors.fro_norm**2
        sums.noise += noise_norm**2
        for block, spectrum in features.items():
            sums.spectra[block] += spectrum

    def _spectrum(
        self, key: str, block: str, left: torch.Tensor, right: torch.Tensor, sigma: torch.Tensor
    ) -> torch.Tensor:
        """Fourier transform of the TensorSketch of Σ σᵢ leftᵢ rightᵢᵀ: (dim // 2 + 1,)."""
        dim = BLOCK_DIMS[block]
        a = torch.fft.rfft(count_sketch(left, self.recipe.seed, key + "/a", dim), dim=0)
        b = torch.fft.rfft(count_sketch(right, self.recipe.seed, key + "/b", dim), dim=0)
        spectrum: torch.Tensor = (a * b) @ sigma.to(torch.complex64)
        return spectrum

    def vector(self) -> tuple[Float32[np.ndarray, " dim"], float]:
        """The pooled fingerprint, unit length, and its length before; zeros if no slot counts."""
        blocks = {b: torch.zeros(d // 2 + 1, dtype=torch.complex64) for b, d in BLOCK_DIMS.items()}
        for sums in self._slots.values():
            for block, scale in _block_scales(sums).items():
                blocks[block] += sums.spectra[block] * scale
        pooled = torch.cat([torch.fft.irfft(blocks[b], n=d) for b, d in BLOCK_DIMS.items()])
        norm = float(torch.linalg.vector_norm(pooled.double()))
        unit = pooled / norm if norm > 0 else pooled
        return unit.numpy(), norm

    def holds(self, slot: Slot) -> bool:
        """Whether anything above rounding came in for this slot."""
        return slot in self._slots

    def slot_sketch(self, slot: Slot) -> Float16[np.ndarray, " features"]:
        """One slot's three blocks of `SLOT_DIMS`: inner products estimate its weighted kernels.

        A circular sketch of length D folded to D/k is every k-th value of its spectrum.
        """
        sums = self._slots[slot]
        scales = _block_scales(sums)
        folded = [
            torch.fft.irfft(sums.spectra[b][:: BLOCK_DIMS[b] // d] * scales[b], n=d)
            for b, d in SLOT_DIMS.items()
        ]
        return torch.cat(folded).numpy().astype(np.float16)


def _block_scales(sums: _SlotSpectra) -> dict[str, float]:
    """What each block of a slot is multiplied by: its cosine norm, times its weight's root.

    A slot counts by the share of its update that is not storage rounding. Its input side
    counts by the share that the factors leave out: an update of exactly low rank is an
    adapter's, whose input side still holds the random start of its A matrix, while in a full
    fine-tune it is data like the rest.
    """
    if sums.kept == 0.0:
        return dict.fromkeys(BLOCK_DIMS, 0.0)
    signal = max(0.0, 1.0 - sums.noise / sums.total)
    energy = min(1.0, sums.kept / (sums.total * signal)) if signal > 0 else 1.0
    root = (signal / sums.kept) ** 0.5
    return {
        "update": root,
        "output": root * OUTPUT_WEIGHT**0.5,
        "input": root * (INPUT_WEIGHT * (1.0 - energy)) ** 0.5,
    }
