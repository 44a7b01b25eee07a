"""What is asked of a catalog: rows as frozen records, sketches slot by slot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from ..arrays import Float16, Int64
from ..records import ModelRecord, Recipe, Slot, SlotStats
from .filters import Condition
from .rows import Family, Labelled, ModelRow, Stored
from .sharing import Connection
from .vectors import tables

_RECORD_COLUMNS = tuple(f.name for f in fields(ModelRecord))
_ROW_COLUMNS = ("key", "status", "code", "reason", "bytes_read", "seconds")

SortColumn = Literal["id", "dataset", "author", "downloads", "indexed_at"]

AT_ONCE = 512
"""Models whose sketches are fetched by one query, at about 150 KB a model."""

SlotSketches = tuple[Slot, Int64[np.ndarray, " present"], Float16[np.ndarray, "present features"]]
"""One slot: which of the asked models have it, and their sketches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which of the models that pass are wanted, and in which order.

    Models of which the sorting column is unknown come last in either order; equal ones are in
    order of id.
    """

    sort: SortColumn = "id"
    descending: bool = False
    limit: int | None = None
    offset: int = 0

    @property
    def sql(self) -> str:
        """The end of a query of `models m`."""
        if self.sort not in get_args(SortColumn):
            raise ValueError(f"models are not sorted by {self.sort!r}")
        direction = "DESC" if self.descending else "ASC"
        limit = "" if self.limit is None else f" LIMIT {int(self.limit)}"
        return (
            f" ORDER BY m.{self.sort} {direction} NULLS LAST, m.id, m.base"
            f"{limit} OFFSET {int(self.offset)}"
        )


def select_models(
    connection: Connection, conditions: Sequence[Condition], page: Page | None = None
) -> list[ModelRow]:
    """The models that meet every condition, by base and id; or a page of them."""
    where, values = _joined(conditions)
    names = [*_ROW_COLUMNS, *_RECORD_COLUMNS]
    columns = ", ".join(f"m.{c}" for c in names)
    order = page.sql if page is not None else " ORDER BY m.base, m.id"
    found = connection.execute(
        f"SELECT {columns}, strftime(m.indexed_at, '%Y-%m-%dT%H:%M:%SZ') FROM models m "
        f"WHERE {where}{order}",
        values,
    )
    recipes = _recipes_by_key(connection, [row[0] for row in found])
    return [
        _model_row(dict(zip([*names, "indexed_at"], row, strict=True)), recipes) for row in found
    ]


def count_models(connection: Connection, conditions: Sequence[Condition]) -> int:
    """How many models meet every condition."""
    where, values = _joined(conditions)
    return int(connection.execute(f"SELECT count(*) FROM models m WHERE {where}", values)[0][0])


def _joined(conditions: Sequence[Condition]) -> tuple[str, list[object]]:
    where = " AND ".join(c.sql for c in conditions) or "TRUE"
    return where, [v for c in conditions for v in c.values]


def select_labels(connection: Connection, keys: Sequence[int]) -> dict[str, Labelled]:
    """What is known of the training of the models with these keys, by id."""
    listed = ", ".join(str(int(key)) for key in keys)
    if not listed:
        return {}
    found = connection.execute(
        f"SELECT id, base, dataset, author, run FROM models WHERE key IN ({listed})"
    )
    return {id: Labelled(*rest) for id, *rest in found}


def select_stored(connection: Connection, id: str, base: str | None) -> list[Stored]:
    """The indexed models of that id, in little: one a family."""
    found = connection.execute(
        "SELECT key, base, kind, dataset FROM models "
        "WHERE id = ? AND status = 'indexed' AND (base = ? OR ? IS NULL)",
        [id, base, base],
    )
    return [Stored(key, id, *rest) for key, *rest in found]


def select_slots(connection: Connection, key: int, recipe: str | None) -> list[SlotStats]:
    """A model's slots under a recipe, or as the one that saw most of it, in slot order."""
    source = "slots" if recipe is not None else "slot_statistics"
    found = connection.execute(
        "SELECT stack, layer, role, rows, columns, fro_norm, relative_norm, sigma, energy, "
        f"stable_rank, noise_floor, sketch FROM {source} WHERE model = $1 "
        "AND ($2 IS NULL OR recipe = $2)",
        [key, recipe],
    )
    slots = [_slot_stats(row) for row in found]
    return sorted(slots, key=lambda s: s.slot)


def select_sketches(
    connection: Connection, keys: Sequence[int], recipe: str
) -> Iterator[SlotSketches]:
    """Every slot that any of the models has a sketch of; `present` indexes `keys`.

    Peak: one slot's sketches; all of them for at most `AT_ONCE` models, in one pass.
    """
    if len(keys) <= AT_ONCE:
        yield from _sketches_at_once(connection, keys, recipe)
        return
    asked = pa.table(
        {"key": pa.array(keys, pa.int64()), "place": pa.array(range(len(keys)), pa.int64())}
    )
    with connection.registered("asked_models", asked):
        slots = connection.execute(
            "SELECT DISTINCT s.stack, s.layer, s.role FROM slots s "
            "JOIN asked_models a ON a.key = s.model WHERE s.recipe = ? ORDER BY ALL",
            [recipe],
        )
        for stack, layer, role in slots:
            rows = connection.execute(
                "SELECT a.place, s.sketch FROM slots s JOIN asked_models a ON a.key = s.model "
                "WHERE s.recipe = ? AND s.stack = ? AND s.layer = ? AND s.role = ? "
                "AND s.sketch IS NOT NULL ORDER BY a.place",
                [recipe, stack, layer, role],
            )
            if rows:
                places = np.array([place for place, _ in rows], dtype=np.int64)
                joined = np.frombuffer(b"".join(sketch for _, sketch in rows), dtype="<f2")
                yield Slot(stack, layer, role), places, joined.reshape(len(rows), -1)


def _sketches_at_once(
    connection: Connection, keys: Sequence[int], recipe: str
) -> Iterator[SlotSketches]:
    place = {key: i for i, key in enumerate(keys)}
    found = connection.execute(
        "SELECT stack, layer, role, model, sketch FROM slots WHERE recipe = ? "
        "AND sketch IS NOT NULL AND model IN (SELECT unnest(?::BIGINT[]))",
        [recipe, list(keys)],
    )
    by_slot: dict[tuple[str, int, str], list[tuple[int, bytes]]] = {}
    for stack, layer, role, key, sketch in found:
        by_slot.setdefault((stack, layer, role), []).append((place[key], sketch))
    for name, rows in sorted(by_slot.items()):
        rows.sort(key=lambda row: row[0])
        joined = np.frombuffer(b"".join(sketch for _, sketch in rows), dtype="<f2")
        places = np.array([row[0] for row in rows], dtype=np.int64)
        yield Slot(*name), places, joined.reshape(len(rows), -1)


def select_recipes(connection: Connection) -> dict[str, Recipe]:
    """Every recipe by id."""
    found = connection.execute(
        "SELECT id, name, rank, dim, seed, version, params FROM recipes ORDER BY id"
    )
    return {
        id: Recipe(
            name=name,
            rank=rank,
            dim=dim,
            seed=seed,
            version=version,
            params=tuple((str(k), str(v)) for k, v in json.loads(params)),
        )
        for id, name, rank, dim, seed, version, params in found
    }


def select_keys(connection: Connection, base: str, ids: Sequence[str]) -> dict[str, int]:
    """Keys of the named models of a family, as far as it has them."""
    found = connection.execute(
        "SELECT id, key FROM models WHERE base = ? AND id IN (SELECT unnest(?::VARCHAR[]))",
        [base, list(ids)],
    )
    return {str(id): int(key) for id, key in found}


def select_bases(connection: Connection) -> list[str]:
    """Names of the families, sorted."""
    rows = connection.execute("SELECT base FROM families UNION SELECT base FROM models ORDER BY 1")
    return [str(base) for (base,) in rows]


def select_family(connection: Connection, base: str) -> Family | None:
    """What is known of a base."""
    rows = connection.execute(
        "SELECT base, revision, architecture, slots FROM families WHERE base = ?", [base]
    )
    if not rows:
        return None
    name, revision, architecture, slots = rows[0]
    return Family(base=name, revision=revision, architecture=architecture, slots=json.loads(slots))


def select_shapes(connection: Connection, base: str) -> dict[Slot, tuple[int, int]]:
    """(out, in) of every slot that a model of the family changed; the latest model's."""
    found = connection.execute(
        "SELECT s.stack, s.layer, s.role, arg_max(s.rows, s.model), arg_max(s.columns, s.model) "
        "FROM slots s JOIN models m ON m.key = s.model WHERE m.base = ? GROUP BY ALL ORDER BY ALL",
        [base],
    )
    return {Slot(*slot): (rows, columns) for *slot, rows, columns in found}


def count_by_recipe(connection: Connection) -> list[tuple[str, str, int]]:
    """(recipe id, base, models) of every recipe that has vectors."""
    counts = []
    for recipe, table in tables(connection):
        found = connection.execute(
            f"SELECT m.base, count(*) FROM {table} v JOIN models m ON m.key = v.model "
            "GROUP BY 1 ORDER BY 1"
        )
        counts += [(recipe, base, n) for base, n in found]
    return counts


def _recipes_by_key(connection: Connection, keys: list[int]) -> dict[int, tuple[str, ...]]:
    recipes: dict[int, tuple[str, ...]] = {}
    for recipe, table in tables(connection):
        found = connection.execute(
            f"SELECT model FROM {table} WHERE model IN (SELECT unnest(?::BIGINT[]))", [keys]
        )
        for (key,) in found:
            recipes[key] = (*recipes.get(key, ()), recipe)
    return recipes


def _model_row(row: dict[str, Any], recipes: dict[int, tuple[str, ...]]) -> ModelRow:
    record = {c: row[c] for c in _RECORD_COLUMNS}
    record["notes"] = tuple(record["notes"] or ())
    return ModelRow(
        record=ModelRecord(**record),
        recipes=recipes.get(row["key"], ()),
        indexed_at=row["indexed_at"],
        **{c: row[c] for c in _ROW_COLUMNS},
    )


def _slot_stats(row: tuple[Any, ...]) -> SlotStats:
    sketch = np.frombuffer(row[11], dtype="<f2") if row[11] is not None else np.zeros(0, "<f2")
    return SlotStats(
        slot=Slot(row[0], row[1], row[2]),
        shape=(row[3], row[4]),
        fro_norm=row[5],
        relative_norm=row[6],
        sigma=np.array(row[7], dtype=np.float32),
        energy=row[8],
        stable_rank=row[9],
        noise_floor=row[10],
        sketch=sketch.astype(np.float16),
    )
