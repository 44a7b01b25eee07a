"""The updates of many models of a family side by side: linear sketches, norms, unchanged shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StoreDamaged
from ...records import LINEAR_DIM, LINEAR_LAYER_DIM, Slot
from ..session import Session, not_finite

SLOT_NUMBERS = ("fro_norm", "noise_floor", "relative_norm", "zero_share", "stable_rank")


@dataclass(frozen=True, slots=True, eq=False)
class FamilyUpdates:
    """What is kept of the updates of some models under one recipe, a row each.

    Inner products of sketches estimate ⟨ΔW, ΔW'⟩; those of a layer over its slots, pooled ones
    over all. A layer that a model did not change is zero, a slot without a number NaN.

    Attributes:
        keys: Of the models, rising.
        sketched: Whether a model has a linear sketch; one without has zeros.
        layer_names: Stack and number of each layer, sorted.
        slots: Of the columns of the statistics, sorted.
        fro_norm: |ΔW| of a slot; `noise_floor`, `relative_norm`, `zero_share`, `stable_rank` as in
            `SlotStats`.
    """

    keys: Int64[np.ndarray, " models"]
    sketched: Bool[np.ndarray, " models"]
    pooled: Float32[np.ndarray, "models 1024"]
    layers: Float32[np.ndarray, "models layers 256"]
    layer_names: tuple[tuple[str, int], ...]
    slots: tuple[Slot, ...]
    fro_norm: Float64[np.ndarray, "models slots"]
    noise_floor: Float64[np.ndarray, "models slots"]
    relative_norm: Float64[np.ndarray, "models slots"]
    zero_share: Float64[np.ndarray, "models slots"]
    stable_rank: Float64[np.ndarray, "models slots"]

    def take(self, rows: Sequence[int]) -> FamilyUpdates:
        arrays = ("keys", "sketched", "pooled", "layers", *SLOT_NUMBERS)
        return replace(self, **{name: getattr(self, name)[rows] for name in arrays})

    def by_layer(
        self, numbers: Float64[np.ndarray, "models slots"]
    ) -> Float64[np.ndarray, "models layers"]:
        """Sums over the slots of each layer, without those of no number."""
        sums = np.zeros((len(self.keys), len(self.layer_names)))
        for column, name in enumerate(self.layer_names):
            own = [at for at, slot in enumerate(self.slots) if (slot.stack, slot.layer) == name]
            sums[:, column] = np.nansum(numbers[:, own], axis=1)
        return sums


def fetch_updates(
    session: Session, recipe: str, keys: Int64[np.ndarray, " models"]
) -> FamilyUpdates:
    """The updates of the models with these keys, rising.

    Peak: 4 KiB a model, 1 KiB a model and layer, 40 bytes a model and slot; twice.

    Raises:
        StoreDamaged: a number of a sketch is not finite.
    """
    among = "model IN (SELECT unnest(?::BIGINT[]))"
    wanted = keys.tolist()
    table = session.arrow(
        f"SELECT model, stack, layer, numbers FROM linear_sketches WHERE recipe = ? AND {among}",
        [recipe, wanted],
    )
    rows = np.searchsorted(keys, table.column("model").to_numpy())
    places = list(zip(*(table.column(n).to_pylist() for n in ("stack", "layer")), strict=True))
    names = sorted({place for place in places if place[1] is not None})
    column_of = {name: column for column, name in enumerate(names)}
    pooled = np.zeros((len(keys), LINEAR_DIM), dtype=np.float32)
    layers = np.zeros((len(keys), len(names), LINEAR_LAYER_DIM), dtype=np.float32)
    numbers = (n.values for chunk in table.column("numbers").chunks for n in chunk)
    for row, place, own in zip(rows.tolist(), places, numbers, strict=True):
        target = pooled[row] if place[1] is None else layers[row, column_of[place]]
        target[:] = own.to_numpy(zero_copy_only=False)
    # of finite numbers a sum is finite, unless they are larger than any that is written
    if not (np.isfinite(pooled.sum()) and np.isfinite(layers.sum())):
        raise StoreDamaged(not_finite(session.path, "linear sketches"))
    sketched = np.zeros(len(keys), dtype=np.bool_)
    sketched[rows] = True
    slots, statistics = _statistics(session, among, recipe, keys)
    return FamilyUpdates(keys, sketched, pooled, layers, tuple(names), slots, *statistics)


def _statistics(
    session: Session, among: str, recipe: str, keys: Int64[np.ndarray, " models"]
) -> tuple[tuple[Slot, ...], list[Float64[np.ndarray, "models slots"]]]:
    table = session.arrow(
        f"SELECT model, stack, layer, role, {', '.join(SLOT_NUMBERS)} FROM slots "
        f"WHERE recipe = ? AND {among}",
        [recipe, keys.tolist()],
    )
    rows = np.searchsorted(keys, table.column("model").to_numpy())
    columns = (table.column(name).to_pylist() for name in ("stack", "layer", "role"))
    places = [Slot(*place) for place in zip(*columns, strict=True)]
    slots = sorted(set(places))
    column_of = {slot: column for column, slot in enumerate(slots)}
    statistics = np.full((len(SLOT_NUMBERS), len(keys), len(slots)), np.nan)
    at = np.array([column_of[place] for place in places], dtype=np.int64)
    for matrix, name in zip(statistics, SLOT_NUMBERS, strict=True):
        matrix[rows, at] = table.column(name).to_numpy()
    return tuple(slots), list(statistics)
