"""What changes a catalog. Every function is one transaction's worth, begun by its caller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa

from ..records import Fingerprint, Indexed, ModelRecord, Outcome, Refused, SlotStats
from .keys import move_models, new_keys, require_model
from .rows import Family
from .sharing import Connection
from .vectors import carry_over, delete_vector, delete_vectors, insert_vector

_RECORD_COLUMNS = tuple(f.name for f in fields(ModelRecord))
_COLUMNS = (
    "key",
    "status",
    "code",
    "reason",
    "bytes_read",
    "seconds",
    *_RECORD_COLUMNS,
)


def write_outcome(connection: Connection, outcome: Outcome) -> None:
    """Replace whatever is known of the model by its outcome.

    Vectors under other recipes stay if the model's files are the same as they were.
    """
    model = outcome.model
    found = connection.execute(
        "SELECT key, signature, status FROM models WHERE base = ? AND id = ?",
        [model.base, model.id],
    )
    old = found[0] if found else None
    if old is not None:
        outcome = replace(outcome, model=_keep_labels(connection, int(old[0]), model))
    (key,) = new_keys(connection, 1)
    _insert_model(connection, key, outcome)
    same_files = old is not None and model.signature != "" and old[1] == model.signature
    if isinstance(outcome, Indexed):
        for fingerprint in outcome.fingerprints:
            insert_vector(connection, key, fingerprint)
        if same_files and old is not None and old[2] == "indexed":
            written = {f.recipe.id for f in outcome.fingerprints}
            carry_over(connection, int(old[0]), key, written)
            connection.execute("UPDATE studies SET model = ? WHERE model = ?", [key, old[0]])
        _insert_slots(connection, key, outcome, int(old[0]) if same_files and old else None)
    if old is not None:
        _delete(connection, int(old[0]))


def add_vectors(connection: Connection, key: int, fingerprints: Sequence[Fingerprint]) -> int:
    """Give an indexed model more vectors, in place of those of the same recipes.

    Returns:
        The model's key from now on.

    Raises:
        StoreError: there is no such model any more.
    """
    require_model(connection, key)
    (new,) = new_keys(connection, 1)
    for fingerprint in fingerprints:
        delete_vector(connection, key, fingerprint.recipe)
    move_models(connection, {key: new})
    for fingerprint in fingerprints:
        insert_vector(connection, new, fingerprint)
    return new


def delete_model(connection: Connection, key: int) -> None:
    """Remove a model and all that belongs to it."""
    _delete(connection, key)


def replace_family(connection: Connection, family: Family) -> None:
    """Remember what is known of a base in place of what was."""
    connection.execute("DELETE FROM families WHERE base = ?", [family.base])
    connection.execute(
        "INSERT INTO families VALUES (?, ?, ?, ?)",
        [family.base, family.revision, family.architecture, json.dumps(family.slots)],
    )


def relabel_models(connection: Connection, base: str, records: Sequence[ModelRecord]) -> None:
    """Bring labels, authors and runs up to date; models without a row are passed over."""
    columns = ("id", "dataset", "dataset_raw", "label_source", "author", "run")
    table = pa.table({c: pa.array([getattr(r, c) for r in records], pa.string()) for c in columns})
    assignments = ", ".join(f"{c} = n.{c}" for c in columns[1:])
    changed = " OR ".join(f"models.{c} IS DISTINCT FROM n.{c}" for c in columns[1:])
    with connection.registered("new_labels", table):
        connection.execute(
            f"UPDATE models SET {assignments} FROM new_labels n "
            f"WHERE models.base = ? AND models.id = n.id AND ({changed})",
            [base],
        )


def _keep_labels(connection: Connection, key: int, model: ModelRecord) -> ModelRecord:
    """The record with what a labels file said before, unless one speaks again."""
    if model.label_source == "labels":
        return model
    columns = ("dataset", "dataset_raw", "label_source", "author", "run")
    row = connection.execute(
        f"SELECT {', '.join(columns)} FROM models WHERE key = ? AND label_source = 'labels'", [key]
    )
    return replace(model, **dict(zip(columns, row[0], strict=True))) if row else model


def _insert_model(connection: Connection, key: int, outcome: Outcome) -> None:
    refused = outcome if isinstance(outcome, Refused) else None
    values: list[object] = [
        key,
        refused.status if refused else "indexed",
        refused.code if refused else None,
        refused.reason if refused else None,
        outcome.bytes_read,
        outcome.seconds,
    ]
    for column in _RECORD_COLUMNS:
        value = getattr(outcome.model, column)
        values.append(list(value) if isinstance(value, tuple) else value)
    marks = ", ".join("?" for _ in values)
    connection.execute(
        f"INSERT INTO models ({', '.join(_COLUMNS)}, indexed_at) "
        f"VALUES ({marks}, CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP))",
        values,
    )


def _insert_slots(connection: Connection, key: int, outcome: Indexed, old: int | None) -> None:
    """Write the slots, and carry over those that hold other recipes' sketches.

    Slots without sketches are statistics alone: needed only where nothing else has them.
    """
    sketched = any(s.sketch.size for s in outcome.slots)
    recipe = next((f.recipe.id for f in outcome.fingerprints if f.recipe.name == "sketch"), None)
    if old is not None:
        others = "FROM slots WHERE model = ? AND recipe IS NOT NULL AND recipe IS DISTINCT FROM ?"
        carried = connection.execute(f"SELECT count(*) {others}", [old, recipe])
        connection.execute(
            f"INSERT INTO slots SELECT ?, * EXCLUDE (model) {others}", [key, old, recipe]
        )
        if not sketched and carried[0][0]:
            return
    table = _slot_table(key, outcome.slots, recipe if sketched else None)
    with connection.registered("new_slots", table):
        connection.execute("INSERT INTO slots SELECT * FROM new_slots")


def _slot_table(key: int, slots: Sequence[SlotStats], recipe: str | None) -> pa.Table:
    def column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind)

    return pa.table(
        {
            "model": column([key] * len(slots), pa.int64()),
            "stack": column([s.slot.stack for s in slots], pa.string()),
            "layer": column([s.slot.layer for s in slots], pa.int32()),
            "role": column([s.slot.role for s in slots], pa.string()),
            "rows": column([s.shape[0] for s in slots], pa.int32()),
            "columns": column([s.shape[1] for s in slots], pa.int32()),
            "fro_norm": column([s.fro_norm for s in slots], pa.float64()),
            "relative_norm": column([s.relative_norm for s in slots], pa.float64()),
            "sigma": column([s.sigma.tolist() for s in slots], pa.list_(pa.float32())),
            "energy": column([s.energy for s in slots], pa.float64()),
            "stable_rank": column([s.stable_rank for s in slots], pa.float64()),
            "noise_floor": column([s.noise_floor for s in slots], pa.float64()),
            "recipe": column([recipe] * len(slots), pa.string()),
            "sketch": column([_bytes(s) for s in slots], pa.binary()),
        }
    )


def _bytes(stats: SlotStats) -> bytes | None:
    return stats.sketch.astype(np.dtype("<f2")).tobytes() if stats.sketch.size else None


def _delete(connection: Connection, key: int) -> None:
    delete_vectors(connection, key)
    connection.execute("DELETE FROM slots WHERE model = ?", [key])
    connection.execute("DELETE FROM studies WHERE model = ?", [key])
    connection.execute("DELETE FROM models WHERE key = ?", [key])
