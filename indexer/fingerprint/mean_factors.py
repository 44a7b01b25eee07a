"""The field's original recipe: UΣ per matrix, averaged over layers, roles concatenated.

After github.com/ArmelRandy/vectors (2023), which averaged U alone; here UΣ, encoder and
decoder concatenated. Kept for comparison, and documented as unstable: singular vectors carry
an arbitrary sign, and an arbitrary rotation among close singular values, so the mean over
layers adds vectors whose signs mean nothing. The sign rule (largest entry of each U column
is positive) makes the numbers reproducible, not comparable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from ...arrays import Float32
from ...records import ROLES, STACKS, Recipe, Slot
from ..delta import Factors, Features, MatrixUpdate

SAME_SIZE = 1e-5
"""Entries of U closer than this share of themselves are equally large."""

Layout = tuple[tuple[str, str, int], ...]
"""The family's blocks in order: (stack, role, out)."""


def family_layout(matrices: Iterable[tuple[Slot, int]]) -> Layout:
    """The blocks of a family, from every (slot, out) that its base or members have."""
    blocks = {(slot.stack, slot.role, n_out) for slot, n_out in matrices}
    return tuple(sorted(blocks, key=lambda b: (STACKS.index(b[0]), ROLES.index(b[1]), b[2])))


def mean_factors_recipe(rank: int, layout: Layout) -> Recipe:
    """The recipe for one family: its layout is part of its identity."""
    digest = hashlib.sha256(json.dumps(layout).encode()).hexdigest()[:12]
    return Recipe(
        name="mean-factors",
        rank=rank,
        dim=rank * sum(n_out for _, _, n_out in layout),
        params=(("layout", digest),),
    )


@dataclass(slots=True)
class MeanFactorsPool:
    """Adds up UΣ by (stack, role, out); then gives the concatenated means."""

    recipe: Recipe
    layout: Layout
    _sums: dict[tuple[str, str, int], tuple[torch.Tensor, int]] = field(default_factory=dict)

    def features(self, update: MatrixUpdate, factors: Factors) -> Features:
        """One matrix's signed UΣ, (out, rank), padded with zeros; may run in any thread."""
        signed = fix_signs(factors.u) * factors.sigma
        padded = torch.zeros(signed.shape[0], self.recipe.rank)
        padded[:, : min(self.recipe.rank, signed.shape[1])] = signed[:, : self.recipe.rank]
        return {"mean": padded}

    def take(self, update: MatrixUpdate, factors: Factors, features: Features) -> None:
        """Add one matrix's UΣ to the sum of its role; noise does not matter here."""
        scaled = features["mean"]
        key = (update.slot.stack, update.slot.role, scaled.shape[0])
        total, count = self._sums.get(key, (torch.zeros_like(scaled), 0))
        self._sums[key] = (total + scaled, count + 1)

    def vector(self) -> tuple[Float32[np.ndarray, " dim"], float]:
        """The concatenated means, unit length, and their length before; absent roles are 0."""
        blocks = []
        for key in self.layout:
            total, count = self._sums.get(key, (torch.zeros(key[2], self.recipe.rank), 1))
            blocks.append((total / count).flatten())
        joined = torch.cat(blocks)
        norm = float(torch.linalg.vector_norm(joined.double()))
        return (joined / norm if norm > 0 else joined).numpy(), norm


def fix_signs(u: torch.Tensor) -> torch.Tensor:
    """The columns of U, each with its entry of largest magnitude made positive.

    Of entries that are equally large but for rounding, the first: processors round differently.
    """
    if u.shape[1] == 0:
        return u
    sizes = u.abs()
    largest = (sizes >= sizes.amax(dim=0) * (1 - SAME_SIZE)).int().argmax(dim=0, keepdim=True)
    return u * torch.where(u.gather(0, largest) < 0, -1.0, 1.0)
