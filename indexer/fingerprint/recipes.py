"""The recipes by name, and a model's updates under them: factored, measured, pooled, not stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch

from ...errors import ModelError, RequestError, UnknownRecipe, offered
from ...records import Fingerprint, LinearSketch, Recipe, Slot, SlotStats
from ..delta import (
    Delta,
    DenseDelta,
    Factors,
    Features,
    MatrixUpdate,
    factorise,
    largest_noise_sigma,
)
from .mean_factors import Layout, MeanFactorsPool, mean_factors_recipe
from .sketch import VECTOR_DIMS, VERSION, LinearPool, SketchPool, has_linear_sketch, sketch_recipe

DEFAULT_RECIPE = "sketch"
RECIPE_NAMES = ("sketch", "mean-factors")
VERSIONS = {"sketch": tuple(VECTOR_DIMS), "mean-factors": (1,)}
"""Those that can be made; the last one is the newest."""

DEFAULT_RANK = {"sketch": 16, "mean-factors": 8}
POWER_STEPS = {"sketch": 0, "mean-factors": 2}
"""Those of the randomised SVD; two as `torch.svd_lowrank`, which the original recipe called."""

Pool = SketchPool | MeanFactorsPool
"""Takes the features of a model's matrices one at a time, then gives a vector."""


def make_recipe(
    name: str, rank: int | None, layout: Layout, share: float = 1.0, version: int = VERSION
) -> Recipe:
    """The recipe that users call `name`, for a family with this layout.

    Args:
        version: Of `sketch`; 2 for a family that was indexed by deltadex 0.1.

    Raises:
        UnknownRecipe: lists the names there are.
        RequestError: a recipe that needs whole matrices, and a share.
    """
    if name == "sketch":
        return sketch_recipe(rank or DEFAULT_RANK[name], share, version)
    if name in RECIPE_NAMES and share < 1:
        raise RequestError(f"recipe {name} needs whole matrices: leave --budget out")
    if name == "mean-factors":
        return mean_factors_recipe(rank or DEFAULT_RANK[name], layout)
    raise UnknownRecipe(f"unknown recipe {name!r}{offered(name, RECIPE_NAMES)}")


def make_pool(recipe: Recipe, layout: Layout) -> Pool:
    """An empty pool for one model.

    Raises:
        UnknownRecipe: it is of a version that this deltadex cannot make.
    """
    if recipe.version not in VERSIONS.get(recipe.name, ()):
        raise UnknownRecipe(
            f"recipe {recipe.id} is version {recipe.version} of {recipe.name!r}, which this "
            "deltadex cannot make: choose another --recipe"
        )
    return SketchPool(recipe) if recipe.name == "sketch" else MeanFactorsPool(recipe, layout)


ROWS_AT_ONCE = 64
"""Rows of ΔW whose zeros are counted at once."""

ZERO_UPDATE = 1e-7
"""|ΔW| / |W| at or below which float32 storage cannot tell an update from none."""


@dataclass(slots=True)
class _SlotSums:
    rows: int = 0
    columns: int = 0
    update_sq: float = 0.0
    weight_sq: float | None = None
    noise_sq: float = 0.0
    entries: int = 0
    unchanged: float = 0.0
    sigmas: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MeasuredUpdate:
    """The measurements of one matrix's update.

    Attributes:
        update: Without its ΔW.
        factors: None for an exact zero.
        features: For each recipe, the factors it looks at and what it makes of them.
        linear: Its linear sketch, where a recipe keeps one.
    """

    update: MatrixUpdate
    zero_share: float
    linear: torch.Tensor | None = None
    factors: Factors | None = None
    features: tuple[tuple[Factors, Features], ...] = ()


Measurement = TypeVar("Measurement")


@runtime_checkable
class Collector(Protocol[Measurement]):
    """What takes a model's updates, matrix by matrix."""

    def measure(self, update: MatrixUpdate) -> Measurement:
        """The measurement of one update; in any thread."""

    def take(self, measured: Measurement) -> None:
        """Add it; in one thread, in a fixed order."""


@dataclass(slots=True)
class UpdateCollector:
    """Takes ΔW matrix by matrix; keeps statistics and pooled features, never the matrices."""

    recipes: Sequence[Recipe]
    layout: Layout
    _pools: list[Pool] = field(default_factory=list)
    _linear: LinearPool | None = None
    _slots: dict[Slot, _SlotSums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pools = [make_pool(recipe, self.layout) for recipe in self.recipes]
        linear = [recipe for recipe in self.recipes if has_linear_sketch(recipe)]
        self._linear = LinearPool(linear[0]) if linear else None

    def measure(self, update: MatrixUpdate) -> MeasuredUpdate:
        """One matrix's update, factored and turned into features; may run in any thread."""
        delta, rest = update.delta, replace(update, delta=None)
        if delta is None:
            return MeasuredUpdate(rest, zero_share=1.0)
        zeros = zero_share(delta)
        linear = self._linear.features(update) if self._linear else None
        if update.weight_norm is not None and delta.norm <= ZERO_UPDATE * update.weight_norm:
            return MeasuredUpdate(rest, zeros, linear)
        noise = largest_noise_sigma(update.noise_norm, delta.shape)
        by_steps: dict[int, Factors] = {}
        features = []
        for pool in self._pools:
            steps = POWER_STEPS[pool.recipe.name]
            if steps not in by_steps:
                rank = max(r.rank for r in self.recipes if POWER_STEPS[r.name] == steps)
                by_steps[steps] = factorise(delta, rank, seed=pool.recipe.seed, power_steps=steps)
            factors = by_steps[steps].above(noise).first(pool.recipe.rank)
            features.append((factors, pool.features(update, factors)))
        return MeasuredUpdate(rest, zeros, linear, next(iter(by_steps.values())), tuple(features))

    def take(self, measured: MeasuredUpdate) -> None:
        update = measured.update
        sums = self._slots.setdefault(update.slot, _SlotSums())
        sums.rows += update.shape[0]
        sums.columns = max(sums.columns, update.shape[1])
        if update.weight_norm is not None:
            sums.weight_sq = (sums.weight_sq or 0.0) + update.weight_norm**2
        sums.entries += math.prod(update.shape)
        sums.unchanged += measured.zero_share * math.prod(update.shape)
        if self._linear is not None and measured.linear is not None:
            self._linear.take(update.slot, measured.linear)
        if measured.factors is None:
            return
        sums.update_sq += measured.factors.fro_norm**2
        sums.noise_sq += update.noise_norm**2
        sums.sigmas.append(measured.factors.sigma)
        for pool, (factors, features) in zip(self._pools, measured.features, strict=True):
            pool.take(update, factors, features)

    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """One vector a recipe."""
        only_rounding = all(s.update_sq <= s.noise_sq for s in self._slots.values())
        results = []
        for pool in self._pools:
            vector, norm = pool.vector()
            if only_rounding or norm == 0.0:
                raise ModelError("no-update", "every layer matrix equals the base's")
            vector.flags.writeable = False
            results.append(Fingerprint(recipe=pool.recipe, vector=vector, norm=norm))
        return tuple(results)

    def linear_sketch(self) -> LinearSketch | None:
        """The linear sketch of the recipe that keeps one; None without."""
        return None if self._linear is None else self._linear.sketch()

    def statistics(self) -> tuple[SlotStats, ...]:
        """The statistics of each slot, in slot order."""
        sketches = next((p for p in self._pools if isinstance(p, SketchPool)), None)
        rank = max(r.rank for r in self.recipes)
        return tuple(
            _statistics(slot, sums, rank, sketches) for slot, sums in sorted(self._slots.items())
        )


def _statistics(slot: Slot, sums: _SlotSums, rank: int, sketches: SketchPool | None) -> SlotStats:
    merged = torch.cat(sums.sigmas) if sums.sigmas else torch.zeros(0)
    sigma = merged.sort(descending=True).values[:rank].numpy()
    energy = float(np.square(sigma, dtype=np.float64).sum())
    relative = math.sqrt(sums.update_sq / sums.weight_sq) if sums.weight_sq else None
    return SlotStats(
        slot=slot,
        shape=(sums.rows, sums.columns),
        fro_norm=math.sqrt(sums.update_sq),
        relative_norm=relative,
        sigma=sigma,
        energy=min(1.0, energy / sums.update_sq) if sums.update_sq else 0.0,
        stable_rank=sums.update_sq / float(sigma[0]) ** 2 if len(sigma) else 0.0,
        noise_floor=math.sqrt(sums.noise_sq),
        sketch=sketches.slot_sketch(slot) if sketches else b"",
        zero_share=sums.unchanged / sums.entries if sums.entries else None,
    )


def zero_share(delta: Delta) -> float:
    """Share of ΔW's entries that are exactly 0, 0…1.

    Of a low-rank update those in rows and columns that its factors leave at 0: where products of
    other entries cancel, it is not seen.
    """
    if not isinstance(delta, DenseDelta):
        rows, columns = delta.left.any(dim=1), delta.right.any(dim=0)
        return 1.0 - float(rows.double().mean() * columns.double().mean())
    matrix = delta.matrix
    if matrix.device.type != "cpu":
        return 1.0 - float(torch.count_nonzero(matrix)) / max(1, matrix.numel())
    # some rows at a time, which stay in the processor's cache: several times as fast as torch
    rows = matrix.T if matrix.stride(-1) != 1 else matrix
    numbers = rows.numpy()
    starts = range(0, len(numbers), ROWS_AT_ONCE)
    n_changed = sum(
        int(np.count_nonzero(numbers[start : start + ROWS_AT_ONCE] != 0)) for start in starts
    )
    return 1.0 - n_changed / max(1, numbers.size)
