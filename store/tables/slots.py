"""The table `slots`: what a model changed in each matrix, and its sketches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import StoreDamaged
from ...records import Indexed, Slot, SlotStats
from ..session import Session, not_finite


def select_slots(session: Session, key: int, recipe: str | None) -> list[SlotStats]:
    """A model's slots under a recipe, or as the one that saw most of it, in slot order.

    Raises:
        StoreDamaged: a number is not finite.
    """
    source = "slots" if recipe is not None else "slot_statistics"
    rows = session.execute(
        "SELECT stack, layer, role, rows, columns, fro_norm, relative_norm, sigma, energy, "
        f"stable_rank, noise_floor, sketch, zero_share FROM {source} WHERE model = $1 "
        "AND ($2 IS NULL OR recipe = $2)",
        [key, recipe],
    )
    n_damaged = sum(not _is_finite(row) for row in rows)
    if n_damaged:
        raise StoreDamaged(not_finite(session.path, f"{n_damaged} slots of a model"))
    return sorted((_slot_stats(row) for row in rows), key=lambda stats: stats.slot)


def select_shapes(session: Session, base: str) -> dict[Slot, tuple[int, int]]:
    """(out, in) of every slot that a model of the family changed; the latest model's."""
    rows = session.execute(
        "SELECT s.stack, s.layer, s.role, arg_max(s.rows, s.model), arg_max(s.columns, s.model) "
        "FROM slots s JOIN models m ON m.key = s.model WHERE m.base = ? GROUP BY ALL ORDER BY ALL",
        [base],
    )
    return {Slot(*slot): (n_out, n_in) for *slot, n_out, n_in in rows}


def _is_finite(row: tuple[Any, ...]) -> bool:
    """Whether every number of a slot is; one that was not measured is None."""
    numbers = (row[5], row[6], *row[7], row[8], row[9], row[10], row[12])
    return all(number is None or math.isfinite(number) for number in numbers)


def _slot_stats(row: tuple[Any, ...]) -> SlotStats:
    return SlotStats(
        slot=Slot(row[0], row[1], row[2]),
        shape=(row[3], row[4]),
        fro_norm=row[5],
        relative_norm=row[6],
        sigma=np.array(row[7], dtype=np.float32),
        energy=row[8],
        stable_rank=row[9],
        noise_floor=row[10],
        sketch=row[11] or b"",
        zero_share=row[12],
    )


def sketching_recipe(outcome: Indexed) -> str | None:
    """The id of the recipe that the sketches of the model's slots are of; None without any."""
    if not any(stats.sketch for stats in outcome.slots):
        return None
    return next((f.recipe.id for f in outcome.fingerprints if f.recipe.name == "sketch"), None)


def carry_over_slots(session: Session, old: int, key: int, outcome: Indexed) -> bool:
    """Give a model that is recorded again its slots with other recipes' sketches.

    Returns whether they make the new ones redundant: slots without sketches are statistics alone.
    """
    recipe = next((f.recipe.id for f in outcome.fingerprints if f.recipe.name == "sketch"), None)
    others = "FROM slots WHERE model = ? AND recipe IS NOT NULL AND recipe IS DISTINCT FROM ?"
    carried = session.execute(f"SELECT count(*) {others}", [old, recipe])
    session.execute(f"INSERT INTO slots SELECT ?, * EXCLUDE (model) {others}", [key, old, recipe])
    return bool(carried[0][0]) and not any(stats.sketch for stats in outcome.slots)


def insert_slots(session: Session, outcomes: Sequence[tuple[int, Indexed]]) -> None:
    """Write models' slots, each under its model's key."""
    rows = [
        (key, sketching_recipe(outcome), stats)
        for key, outcome in outcomes
        for stats in outcome.slots
    ]
    with session.registered("new_slots", _slot_table(rows)):
        session.execute("INSERT INTO slots BY NAME SELECT * FROM new_slots")


def _slot_table(rows: Sequence[tuple[int, str | None, SlotStats]]) -> pa.Table:
    slots = [stats for _, _, stats in rows]
    return pa.table(
        {
            "model": pa.array([key for key, _, _ in rows], pa.int64()),
            "stack": pa.array([s.slot.stack for s in slots], pa.string()),
            "layer": pa.array([s.slot.layer for s in slots], pa.int32()),
            "role": pa.array([s.slot.role for s in slots], pa.string()),
            "rows": pa.array([s.shape[0] for s in slots], pa.int32()),
            "columns": pa.array([s.shape[1] for s in slots], pa.int32()),
            "fro_norm": pa.array([s.fro_norm for s in slots], pa.float64()),
            "relative_norm": pa.array([s.relative_norm for s in slots], pa.float64()),
            "sigma": pa.array([s.sigma.tolist() for s in slots], pa.list_(pa.float32())),
            "energy": pa.array([s.energy for s in slots], pa.float64()),
            "stable_rank": pa.array([s.stable_rank for s in slots], pa.float64()),
            "noise_floor": pa.array([s.noise_floor for s in slots], pa.float64()),
            "recipe": pa.array([recipe for _, recipe, _ in rows], pa.string()),
            "sketch": pa.array([s.sketch or None for s in slots], pa.binary()),
            "zero_share": pa.array([s.zero_share for s in slots], pa.float64()),
        }
    )


def select_sketch_rows(
    session: Session, condition: str, recipe: str, values: list[object]
) -> pa.Table:
    """`model`, `stack`, `layer`, `role` and `sketch` of the models that meet a condition, in no
    order."""
    return session.arrow(
        "SELECT model, stack, layer, role, sketch FROM slots "
        f"WHERE recipe = ? AND sketch IS NOT NULL AND {condition}",
        [recipe, *values],
    )


def select_sketched_slots(session: Session, base: str, recipe: str, after: int) -> set[Slot]:
    """Every slot that models of the family above a key have sketches of."""
    rows = session.execute(
        "SELECT DISTINCT s.stack, s.layer, s.role FROM slots s JOIN models m ON m.key = s.model "
        "WHERE m.base = ? AND s.recipe = ? AND s.sketch IS NOT NULL AND s.model > ?",
        [base, recipe, after],
    )
    return {Slot(*slot) for slot in rows}
