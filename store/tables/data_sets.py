"""The tables `data_sets` and `data_sketches`: data sets that were kept as queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import RequestError, offered
from ...records import DataSet, Fingerprint, Slot
from ..session import NOW, Session
from .outcomes import ensure_table
from .recipes import select_recipes

COLUMNS = "base, name, recipe, loss, sha256, examples, settings, counts, vector, norm"


@dataclass(frozen=True, slots=True)
class DataSets:
    """The kept data sets of a catalog; a name stands for one of them within a base."""

    session: Session

    def save(self, data_set: DataSet) -> None:
        """Store a data set in place of the one of its name."""
        self.session.write(lambda s: replace_data_set(s, data_set))

    def remove(self, name: str, base: str | None = None) -> dict[str, Any]:
        """Remove a data set; returns its row, without its numbers.

        Raises:
            RequestError: there is none of that name, or several families have one.
        """
        row = self._row(name, base)
        self.session.write(lambda s: delete_data_set(s, row["base"], name))
        return _without_numbers(row)

    def load(self, name: str, base: str | None = None) -> DataSet:
        """A data set with its sketches.

        Raises:
            RequestError: there is none of that name, or several families have one.
        """
        return data_set_of(self.session, self._row(name, base))

    def _row(self, name: str, base: str | None) -> dict[str, Any]:
        rows = self._rows("name = $1 AND ($2 IS NULL OR base = $2)", name, base)
        if len(rows) == 1:
            return rows[0]
        if rows:
            bases = ", ".join(sorted(row["base"] for row in rows))
            raise RequestError(f"several families have a data set {name!r}; add --base: {bases}")
        known = sorted(row["name"] for row in self.listed(base))
        raise RequestError(f"no data set {name!r} is kept{offered(name, known, 'kept')}")

    def all(self, base: str, recipe: str) -> list[DataSet]:
        """The data sets of a family with sketches under a recipe, by name."""
        rows = self._rows("base = $1 AND recipe = $2", base, recipe)
        return [data_set_of(self.session, row) for row in rows]

    def listed(self, base: str | None = None) -> list[dict[str, Any]]:
        """Every data set without its numbers, by base and name."""
        return [_without_numbers(row) for row in self._rows("$1 IS NULL OR base = $1", base)]

    def _rows(self, condition: str, *values: object) -> list[dict[str, Any]]:
        return select_data_sets(self.session, condition, list(values))


def select_data_sets(
    session: Session, condition: str, values: list[object]
) -> list[dict[str, Any]]:
    """Rows of `data_sets` that meet a condition, by base and name; JSON columns as objects."""
    rows = session.execute(
        f"SELECT {COLUMNS}, made_at::VARCHAR FROM data_sets WHERE {condition} ORDER BY base, name",
        values,
    )
    names = [*COLUMNS.split(", "), "made_at"]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [
        {**row, "settings": json.loads(row["settings"]), "counts": json.loads(row["counts"])}
        for row in found
    ]


def _without_numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("vector", "norm")}


def data_set_of(session: Session, row: dict[str, Any]) -> DataSet:
    """A row with its sketches."""
    sketches: dict[str, dict[Slot, bytes]] = {}
    for part, stack, layer, role, sketch in session.execute(
        "SELECT part, stack, layer, role, sketch FROM data_sketches WHERE base = ? AND name = ? "
        "ORDER BY ALL",
        [row["base"], row["name"]],
    ):
        sketches.setdefault(part, {})[Slot(stack, layer, role)] = sketch
    vector = np.array(row["vector"], dtype=np.float32)
    vector.flags.writeable = False
    recipe = select_recipes(session)[row["recipe"]]
    return DataSet(
        name=row["name"],
        base=row["base"],
        loss=row["loss"],
        sha256=row["sha256"],
        examples=row["examples"],
        settings=row["settings"],
        counts=row["counts"],
        fingerprint=Fingerprint(recipe=recipe, vector=vector, norm=row["norm"]),
        sketches=sketches,
    )


def replace_data_set(session: Session, data_set: DataSet) -> None:
    """Write a data set in place of the one of its name; part of one transaction."""
    delete_data_set(session, data_set.base, data_set.name)
    ensure_table(session, data_set.fingerprint.recipe)
    session.execute(
        f"INSERT INTO data_sets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {NOW})",
        [
            data_set.base,
            data_set.name,
            data_set.fingerprint.recipe.id,
            data_set.loss,
            data_set.sha256,
            data_set.examples,
            json.dumps(data_set.settings, sort_keys=True),
            json.dumps(data_set.counts, sort_keys=True),
            data_set.fingerprint.vector.tolist(),
            data_set.fingerprint.norm,
        ],
    )
    listed = [
        (part, slot, sketch)
        for part, slots in data_set.sketches.items()
        for slot, sketch in slots.items()
    ]
    table = pa.table(
        {
            "base": pa.array([data_set.base] * len(listed), pa.string()),
            "name": pa.array([data_set.name] * len(listed), pa.string()),
            "part": pa.array([part for part, _, _ in listed], pa.string()),
            "stack": pa.array([slot.stack for _, slot, _ in listed], pa.string()),
            "layer": pa.array([slot.layer for _, slot, _ in listed], pa.int32()),
            "role": pa.array([slot.role for _, slot, _ in listed], pa.string()),
            "sketch": pa.array([sketch for _, _, sketch in listed], pa.binary()),
        }
    )
    with session.registered("new_data_sketches", table):
        session.execute("INSERT INTO data_sketches BY NAME SELECT * FROM new_data_sketches")


def delete_data_set(session: Session, base: str, name: str) -> None:
    for table in ("data_sets", "data_sketches"):
        session.execute(f"DELETE FROM {table} WHERE base = ? AND name = ?", [base, name])
