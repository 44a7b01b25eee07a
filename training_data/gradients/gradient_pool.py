"""Gradients to sketches: their leading singular directions, on more equal terms than they came.

A gradient's spectrum falls steeply, and its first directions are what all data asks of a base. An
optimizer that scales every entry by its own history, as Adam does, makes updates whose spectra fall
less. So each singular value σ of a query counts as σ to a power below 1, which the loss decides:
`SPECTRUM_POWERS`, measured by `benchmarks.families score-data`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from ...indexer import (
    Factors,
    Layout,
    LinearPool,
    MatrixUpdate,
    Pool,
    SketchPool,
    factorise,
    has_linear_sketch,
    make_pool,
)
from ...records import Fingerprint, LinearSketch, Recipe, Slot, SlotStats

POWER_STEPS = 2
"""Of the randomised SVD of a gradient: two ways of adding it up then give the same directions."""

LEAST_SIGMA = 1e-3
"""Of the largest σ; directions below are rounding, and no power may raise them."""


@dataclass(slots=True)
class _SlotSums:
    """Statistics of the parts of one slot."""

    shape: tuple[int, int] = (0, 0)
    squares: float = 0.0
    sigmas: list[torch.Tensor] = field(default_factory=list)


class GradientPool:
    """Takes a model's gradients, one matrix at a time, and gives sketches and a vector."""

    def __init__(self, recipe: Recipe, layout: Layout, power: float) -> None:
        self._recipe, self._power = recipe, power
        self._pool: Pool = make_pool(recipe, layout)
        self._linear = LinearPool(recipe) if has_linear_sketch(recipe) else None
        self._slots: dict[Slot, _SlotSums] = {}

    def take(self, update: MatrixUpdate) -> None:
        """Add one matrix's gradient up, negated as an update is."""
        sums = self._slots.setdefault(update.slot, _SlotSums())
        sums.shape = sums.shape[0] + update.shape[0], max(sums.shape[1], update.shape[1])
        if update.delta is None:
            return
        if self._linear is not None:
            linear = self._linear.features(update)
            if linear is not None:
                self._linear.take(update.slot, linear)
        seed = self._recipe.seed
        factors = factorise(update.delta, self._recipe.rank, seed=seed, power_steps=POWER_STEPS)
        if len(factors.sigma) == 0:
            return
        factors = factors.above(LEAST_SIGMA * float(factors.sigma[0]))
        sums.squares += factors.fro_norm**2
        sums.sigmas.append(factors.sigma)
        flat = flattened(factors, self._power)
        rest = replace(update, delta=None)
        self._pool.take(rest, flat, self._pool.features(rest, flat))

    def fingerprint(self) -> Fingerprint:
        """The pooled vector; zeros where every gradient is 0."""
        vector, norm = self._pool.vector()
        vector.flags.writeable = False
        return Fingerprint(recipe=self._recipe, vector=vector, norm=norm)

    def linear_sketch(self) -> LinearSketch | None:
        """Of the gradients themselves, not flattened; None under a recipe without one."""
        return None if self._linear is None else self._linear.sketch()

    def statistics(self) -> tuple[SlotStats, ...]:
        """Of the gradients themselves; the sketches are of the flattened ones."""
        return tuple(self._statistics())

    def _statistics(self) -> Iterator[SlotStats]:
        for slot, sums in sorted(self._slots.items()):
            merged = torch.cat(sums.sigmas) if sums.sigmas else torch.zeros(0)
            sigma = merged.sort(descending=True).values[: self._recipe.rank].numpy()
            energy = float((merged[: self._recipe.rank].double() ** 2).sum())
            yield SlotStats(
                slot=slot,
                shape=sums.shape,
                fro_norm=math.sqrt(sums.squares),
                relative_norm=None,
                sigma=sigma,
                energy=min(1.0, energy / sums.squares) if sums.squares else 0.0,
                stable_rank=sums.squares / float(sigma[0]) ** 2 if len(sigma) else 0.0,
                noise_floor=0.0,
                sketch=(
                    self._pool.slot_sketch(slot) if isinstance(self._pool, SketchPool) else b""
                ),
            )


def flattened(factors: Factors, power: float) -> Factors:
    """The same directions with σ to a power, and as much of the whole norm in them as before."""
    raised = factors.sigma.double() ** power
    scale = torch.linalg.vector_norm(factors.sigma.double()) / torch.linalg.vector_norm(raised)
    return replace(factors, sigma=(raised * scale).float())
