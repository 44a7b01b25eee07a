"""The tables `data_sets` and `data_sketches`: data sets that were kept as queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ...errors import RequestError, offered
from ...records import DataSet, Fingerprint, Slot
from ..session import NOW, Session
from .models import insert_rows
from .outcomes import ensure_table, fixed
from .recipes import select_recipes

_ABOUT = ("base", "name", "loss", "sha256", "examples", "settings", "counts")
_NUMBERS = ("vector", "norm")
_JSON = ("settings", "counts")


@dataclass(frozen=True, slots=True)
class DataSets:
    """The kept data sets of a catalog; a name stands for one of them within a base."""

    session: Session

    def save(self, data_set: DataSet) -> None:
        """Store a data set in place of the one of its name."""
        self.session.write(lambda s: replace_data_set(s, data_set))

    def remove(self, name: str, base: str | None = None) -> dict[str, Any]:
        """Remove a data set; returns its row, without its numbers. Raises `RequestError` if there
        is none of that name, or several families have one."""
        row = self._row(name, base)
        self.session.write(lambda s: delete_data_set(s, row["base"], name))
        return _without_numbers(row)

    def load(self, name: str, base: str | None = None) -> DataSet:
        """A data set with its sketches; raises `RequestError` if there is none of that name, or
        several families have one."""
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
    rows = session.arrow(
        "SELECT * REPLACE (made_at::VARCHAR AS made_at) FROM data_sets "
        f"WHERE {condition} ORDER BY base, name",
        values,
    ).to_pylist()
    return [row | {name: json.loads(row[name]) for name in _JSON} for row in rows]


def _without_numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _NUMBERS}


def data_set_of(session: Session, row: dict[str, Any]) -> DataSet:
    """A row with its sketches."""
    sketches: dict[str, dict[Slot, bytes]] = {}
    for part, stack, layer, role, sketch in session.execute(
        "SELECT part, stack, layer, role, sketch FROM data_sketches WHERE base = ? AND name = ? "
        "ORDER BY ALL",
        [row["base"], row["name"]],
    ):
        sketches.setdefault(part, {})[Slot(stack, layer, role)] = sketch
    recipe = select_recipes(session)[row["recipe"]]
    return DataSet(
        **{name: row[name] for name in _ABOUT},
        fingerprint=Fingerprint(recipe=recipe, vector=fixed(row["vector"]), norm=row["norm"]),
        sketches=sketches,
    )


def replace_data_set(session: Session, data_set: DataSet) -> None:
    """Write a data set in place of the one of its name; part of one transaction."""
    delete_data_set(session, data_set.base, data_set.name)
    fingerprint = data_set.fingerprint
    ensure_table(session, fingerprint.recipe)
    values = {name: getattr(data_set, name) for name in _ABOUT} | {
        **{name: json.dumps(getattr(data_set, name), sort_keys=True) for name in _JSON},
        "recipe": fingerprint.recipe.id,
        "vector": fingerprint.vector.tolist(),
        "norm": fingerprint.norm,
    }
    session.execute(
        f"INSERT INTO data_sets ({', '.join(values)}, made_at) "
        f"VALUES ({', '.join('?' * len(values))}, {NOW})",
        [*values.values()],
    )
    rows = [
        {
            "base": data_set.base,
            "name": data_set.name,
            "part": part,
            "stack": slot.stack,
            "layer": slot.layer,
            "role": slot.role,
            "sketch": sketch,
        }
        for part, slots in data_set.sketches.items()
        for slot, sketch in slots.items()
    ]
    insert_rows(session, "data_sketches", rows)


def delete_data_set(session: Session, base: str, name: str) -> None:
    for table in ("data_sets", "data_sketches"):
        session.execute(f"DELETE FROM {table} WHERE base = ? AND name = ?", [base, name])
