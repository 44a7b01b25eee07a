"""What is measured of a model: the tables of vectors, slots and linear sketches, and a model's
outcome written to all tables; the same of data sets: `data_sets` and `data_sketches`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...arrays import Float32, Int64
from ...errors import RecipeMismatch, RequestError, StoreDamaged, offered
from ...records import (
    DataSet,
    Fingerprint,
    Indexed,
    LinearSketch,
    ModelRecord,
    Outcome,
    Recipe,
    Slot,
    SlotStats,
)
from ...results import count
from ..model_rows import model_faults, short_id, wrong_vector
from ..session import NOW, Session, not_finite
from .footprints import Footprints, insert_footprints
from .models import insert_rows, keep_labels, new_keys, outcome_row
from .recipes import recipe_tables, select_recipes, tables

FEW_VECTORS = 100
"""Vectors that take less time to read as Python's numbers than Arrow takes to import."""

CLOSE = 1e-5
"""Inner products of vectors whose order single precision may change."""

STATISTICS = (*("fro_norm", "relative_norm", "energy", "stable_rank", "noise_floor", "zero_share"),)
"""Numbers of a slot."""

BESIDE = {
    "slots": "r.recipe IS NULL OR s.recipe = r.recipe",
    "linear_sketches": "s.recipe = r.recipe",
    "studies": "s.study = r.study AND s.settings = r.settings",
    "footprints": "TRUE",
}
"""Tables of what belongs to a model, beside those of vectors; in SQL, which rows `s` of a model
stand for a row `r` that it is to be given."""

Fetch = Callable[
    [Int64[np.ndarray, " wanted"]],
    tuple[Int64[np.ndarray, " present"], Float32[np.ndarray, "present dim"]],
]
"""Gives the vectors of some models: the keys of those that have one, rising, and the vectors."""


def ensure_table(session: Session, recipe: Recipe) -> str:
    """The name of the table of a recipe's vectors, made if it is new."""
    if (known := _table(session, recipe)) != NO_VECTORS:
        return known
    table = vectors_name(recipe)
    # no primary key: DuckDB goes through the last rows of a table with an index at every commit
    session.execute(
        f"CREATE TABLE {table} "
        f"(model BIGINT NOT NULL, vector FLOAT[{recipe.dim}] NOT NULL, norm DOUBLE NOT NULL)"
    )
    numbers = [recipe.rank, recipe.dim, recipe.seed, recipe.version]
    session.execute(
        "INSERT INTO recipes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [recipe.id, recipe.name, *numbers, json.dumps(recipe.params), table, recipe.share],
    )
    selects = [
        f"SELECT m.base, m.id AS model, '{id}' AS recipe, v.norm, v.vector::FLOAT[] AS vector "
        f"FROM {own} v JOIN models m ON m.key = v.model"
        for id, own in tables(session)
    ]
    # every vector with its model's name and recipe, for people and tools
    session.execute(f"CREATE OR REPLACE VIEW fingerprints AS {' UNION ALL '.join(selects)}")
    return table


WIDE, LOW_RANK = 64, 0.99
"""Rows and columns of a matrix from which its rank tells something; and the share of |ΔW|², less
its rounding's, that the kept singular values of every such matrix of a merged adapter have."""

IS_MERGED = f"""coalesce(min(
    CASE WHEN least(rows, columns) >= {WIDE} AND fro_norm ** 2 > 2 * noise_floor ** 2
    THEN energy / (1 - (noise_floor / fro_norm) ** 2) END
) >= {LOW_RANK}, false)"""


def compared_as(kind: str, slots: Iterable[SlotStats]) -> str:
    """The kind that a model is compared as: a full one whose update is of low rank is a merged
    adapter, and shares the random start of A with others of its seed."""
    shares = [
        one.energy / (1 - (one.noise_floor / one.fro_norm) ** 2)
        for one in slots
        if min(one.shape) >= WIDE and one.fro_norm**2 > 2 * one.noise_floor**2
    ]
    return "adapter" if shares and min(shares) >= LOW_RANK else kind


Keyed = tuple[Int64[np.ndarray, " models"], list[str], list[str]]
"""Keys, rising, and ids of some models, and the kinds that they are compared as; a kind is one
object for all of them."""


def fetch_keys(session: Session, base: str, recipe: Recipe, after: int) -> Keyed:
    """A family's models above a key that have a vector."""
    rows = session.execute(
        "SELECT m.key, m.id, CASE WHEN s.model IS NULL THEN m.kind ELSE 'adapter' END "
        f"FROM {_table(session, recipe)} v JOIN models m ON m.key = v.model LEFT JOIN ("
        f"SELECT model FROM slots WHERE model > ? GROUP BY model HAVING {IS_MERGED}"
        ") s ON s.model = m.key WHERE m.base = ? AND v.model > ? ORDER BY m.key",
        [after, base, after],
    )
    keys = np.fromiter((key for key, _, _ in rows), np.int64, len(rows))
    return keys, [id for _, id, _ in rows], [sys.intern(kind) for *_, kind in rows]


def count_vectors(session: Session, base: str, recipe: Recipe) -> int:
    """How many of a family's models have a vector."""
    source = f"FROM {_table(session, recipe)} v JOIN models m ON m.key = v.model"
    return int(session.execute(f"SELECT count(*) {source} WHERE m.base = ?", [base])[0][0])


def among(keys: Sequence[int]) -> tuple[str, list[object]]:
    """SQL for one of some keys, different ones, and the values of its parameters."""
    if keys and len(keys) == max(keys) - min(keys) + 1:
        return "BETWEEN ? AND ?", [min(keys), max(keys)]
    return "IN (SELECT unnest(?::BIGINT[]))", [list(keys)]


def fetch_vectors_of(
    session: Session, recipe: Recipe, keys: Int64[np.ndarray, " keys"]
) -> tuple[Int64[np.ndarray, " present"], Float32[np.ndarray, "present dim"]]:
    """Keys, rising, and vectors of those of some models that have a vector; raises `StoreDamaged`
    if a number is not finite."""
    condition, values = among(keys.tolist())
    table = _table(session, recipe) if len(keys) else NO_VECTORS
    sql = f"SELECT model, vector FROM {table} WHERE model {condition} ORDER BY model"
    if len(keys) <= FEW_VECTORS:
        rows = session.execute(sql, values)
        present = [key for key, _ in rows]
        matrix = np.array([vector for _, vector in rows], np.float32).reshape(-1, recipe.dim)
    else:
        found, row = session.arrow(sql, values), 0
        present = found.column(0).to_pylist()
        matrix = np.empty((found.num_rows, recipe.dim), np.float32)
        # not flatten(), which imports pyarrow.compute
        for chunk in found.column(1).chunks:
            own = np.asarray(chunk.values, np.float32).reshape(-1, recipe.dim)
            matrix[row : row + len(chunk)] = own
            row += len(chunk)
    # of numbers below 1 a sum is finite if all are
    is_finite = np.isfinite(matrix.sum(axis=1))
    if not is_finite.all():
        raise StoreDamaged(not_finite(session.path, count(int((~is_finite).sum()), "vector")))
    return np.array(present, dtype=np.int64), matrix


def vectors_name(recipe: Recipe) -> str:
    """What the table of a recipe's vectors is called."""
    return f"vectors_{recipe.id.rsplit('-', 1)[-1]}_{recipe.dim}"


NO_VECTORS = "(SELECT 0::BIGINT AS model, []::FLOAT[] AS vector LIMIT 0)"


def _table(session: Session, recipe: Recipe) -> str:
    """The table of a recipe's vectors, in SQL; an empty one while there is none."""
    rows = session.column("SELECT vectors FROM recipes WHERE id = ?", [recipe.id])
    return str(rows[0]) if rows else NO_VECTORS


def select_slots(session: Session, key: int, recipe: str | None) -> list[SlotStats]:
    """A model's slots under a recipe, or as the one that saw most of it, in slot order; raises
    `StoreDamaged` if a number is not finite."""
    source = "slots" if recipe is not None else "slot_statistics"
    rows = session.arrow(
        f"SELECT stack, layer, role, rows, columns, {', '.join(STATISTICS)}, sigma, sketch "
        f"FROM {source} WHERE model = $1 AND ($2 IS NULL OR recipe = $2)",
        [key, recipe],
    ).to_pylist()
    # what was not measured is None
    numbers = [[*row["sigma"], *(row[name] for name in STATISTICS)] for row in rows]
    n_damaged = sum(not all(n is None or math.isfinite(n) for n in own) for own in numbers)
    if n_damaged:
        raise StoreDamaged(not_finite(session.path, f"{count(n_damaged, 'slot')} of a model"))
    return sorted(map(slot_stats, rows), key=lambda stats: stats.slot)


def slot_row(stats: SlotStats) -> dict[str, Any]:
    """A slot's columns; `slot_stats` is the inverse."""
    rows, columns = stats.shape
    measured = {name: getattr(stats, name) for name in (*STATISTICS, "sketch")}
    numbers = {"rows": rows, "columns": columns, "sigma": stats.sigma.tolist()}
    return measured | asdict(stats.slot) | numbers


def slot_stats(row: Mapping[str, Any]) -> SlotStats:
    return SlotStats(
        slot=Slot(row["stack"], row["layer"], row["role"]),
        shape=(row["rows"], row["columns"]),
        sigma=fixed(row["sigma"]),
        sketch=row["sketch"] or b"",
        **{name: row[name] for name in STATISTICS},
    )


def fixed(values: Sequence[float]) -> Float32[np.ndarray, " numbers"]:
    """Numbers as an array that cannot be written to."""
    numbers: Float32[np.ndarray, " numbers"] = np.array(values, dtype=np.float32)
    numbers.flags.writeable = False
    return numbers


def _sketch_recipe(recipes: Iterable[Recipe]) -> str | None:
    """The id of the recipe that keeps sketches; None without."""
    return next((recipe.id for recipe in recipes if recipe.name == "sketch"), None)


def select_sketched_slots(session: Session, base: str, recipe: str, after: int) -> set[Slot]:
    """Every slot that models of the family above a key have sketches of."""
    rows = session.execute(
        "SELECT DISTINCT s.stack, s.layer, s.role FROM slots s JOIN models m ON m.key = s.model "
        "WHERE m.base = ? AND s.recipe = ? AND s.sketch IS NOT NULL AND s.model > ?",
        [base, recipe, after],
    )
    return {Slot(*slot) for slot in rows}


def select_linear_sketch(
    session: Session, key: int, recipe: str | None = None
) -> LinearSketch | None:
    """A model's sketch under a recipe, or under the one that read most of it; None without."""
    rows = session.execute(
        "SELECT l.recipe, l.stack, l.layer, l.numbers FROM linear_sketches l "
        "JOIN recipes r ON r.id = l.recipe WHERE l.model = $1 AND ($2 IS NULL OR l.recipe = $2) "
        "ORDER BY r.share DESC, l.recipe, l.layer NULLS FIRST, l.stack",
        [key, recipe],
    )
    if not rows:
        return None
    (chosen, _, _, pooled), *layers = (row for row in rows if row[0] == rows[0][0])
    return LinearSketch(
        recipe=chosen,
        pooled=fixed(pooled),
        layers={(stack, layer): fixed(numbers) for _, stack, layer, numbers in layers},
    )


KEY_PAIRS = "(SELECT unnest(?::BIGINT[]) AS old, unnest(?::BIGINT[]) AS new) k"
"""Keys and what they become."""


def take_rows(session: Session, table: str, rows: str, keys: Mapping[int, int]) -> set[int]:
    """Give models what they lack of a table, bit for bit, from other rows of its columns, which
    have other keys: there → here. Returns the keys there of what lacked some."""
    here = list(keys.values())
    inserted = session.column(
        f"INSERT INTO {table} BY NAME SELECT k.new AS model, r.* EXCLUDE (model) "
        f"FROM {rows} r JOIN {KEY_PAIRS} ON k.old = r.model WHERE NOT EXISTS ("
        f"FROM (FROM {table} WHERE model BETWEEN {min(here)} AND {max(here)}) s "
        f"WHERE s.model = k.new AND ({BESIDE.get(table, 'TRUE')})) RETURNING model",
        [list(keys), here],
    )
    if table == "slots":
        # without sketches they are statistics alone
        session.execute(
            "DELETE FROM slots WHERE recipe IS NULL AND model IN (SELECT unnest(?::BIGINT[])) "
            "AND model IN (SELECT model FROM slots WHERE recipe IS NOT NULL)",
            [here],
        )
    given = set(inserted)
    return {old for old, new in keys.items() if new in given}


def _replace(session: Session, outcome: Outcome, at: str | None) -> None:
    """Write a known model's outcome in place of the last; of the same files it keeps what it had
    under other recipes."""
    model = outcome.model
    [(old, signature)] = session.execute(
        "SELECT key, signature FROM models WHERE base = ? AND id = ?", [model.base, model.id]
    )
    (key,) = new_keys(session, 1)
    outcome = replace(outcome, model=keep_labels(session, old, model))
    _insert(session, [(key, outcome)], at)
    if signature == model.signature != "":
        kept = (*BESIDE, *(table for _, table in tables(session)))
        for table in kept if isinstance(outcome, Indexed) else ("footprints",):
            take_rows(session, table, table, {old: key})
    delete_models(session, [old])


def _insert(session: Session, outcomes: Sequence[tuple[int, Outcome]], at: str | None) -> None:
    """Write models, each under its key, to all tables; raises `RecipeMismatch` if a vector is not
    what its recipe promises."""
    rows = [{"key": key, **outcome_row(outcome)} for key, outcome in outcomes]
    read_at = f"* REPLACE (coalesce(?::TIMESTAMP, {NOW}) AS indexed_at)"
    insert_rows(session, "models", rows, read_at, [at])
    indexed = [(key, outcome) for key, outcome in outcomes if isinstance(outcome, Indexed)]
    by_recipe: dict[Recipe, list[dict[str, Any]]] = {}
    for key, outcome in indexed:
        for fingerprint in outcome.fingerprints:
            if fault := wrong_vector(fingerprint):
                raise RecipeMismatch(fault)
            row = {"model": key, "vector": fingerprint.vector, "norm": fingerprint.norm}
            by_recipe.setdefault(fingerprint.recipe, []).append(row)
    for recipe, vectors in by_recipe.items():
        insert_rows(session, ensure_table(session, recipe), vectors)
    for table, rows_of in (("slots", _slot_rows), ("linear_sketches", _linear_rows)):
        rows = [{"model": key, **row} for key, outcome in indexed for row in rows_of(outcome)]
        insert_rows(session, table, rows)
    own = [(key, outcome.footprint) for key, outcome in outcomes if outcome.footprint is not None]
    insert_footprints(session, own)


def _slot_rows(outcome: Indexed) -> Iterator[dict[str, Any]]:
    is_sketched = any(stats.sketch for stats in outcome.slots)
    recipe = _sketch_recipe(f.recipe for f in outcome.fingerprints) if is_sketched else None
    for stats in outcome.slots:
        yield slot_row(stats) | {"recipe": recipe, "sketch": stats.sketch or None}


def _linear_rows(outcome: Indexed) -> Iterator[dict[str, Any]]:
    """That of all layers, then the layers'."""
    if (sketch := outcome.linear) is not None:
        for (stack, layer), numbers in [((None, None), sketch.pooled), *sketch.layers.items()]:
            own = {"recipe": sketch.recipe, "stack": stack, "layer": layer}
            yield own | {"numbers": numbers.tolist()}


def write_outcomes(session: Session, outcomes: Sequence[Outcome], at: str | None = None) -> None:
    """Replace whatever is known of models by their outcomes; what they have under other recipes
    stays where their files are the same. Those that are new are written all at once. `at` is when
    they were read, UTC, ISO 8601; None for now."""
    known = set(
        session.execute(
            "SELECT base, id FROM models WHERE id IN (SELECT unnest(?::VARCHAR[]))",
            [[outcome.model.id for outcome in outcomes]],
        )
    )
    new: dict[tuple[str, str], Outcome] = {}
    again: list[Outcome] = []
    for outcome in outcomes:
        name = (outcome.model.base, outcome.model.id)
        if name in known or name in new:
            again.append(outcome)
        else:
            new[name] = outcome
    _insert(session, list(zip(new_keys(session, len(new)), new.values(), strict=True)), at)
    for outcome in again:
        _replace(session, outcome, at)


def check_outcomes(session: Session, outcomes: Sequence[Outcome]) -> None:
    """Raise `StoreDamaged` if the rows of some models are not what a run writes."""
    ids = [outcome.model.id for outcome in outcomes]
    sql = "SELECT key FROM models WHERE base = ? AND id IN (SELECT unnest(?::VARCHAR[]))"
    keys = session.column(sql, [outcomes[0].model.base, ids])
    these = "{0} IN (SELECT unnest(?::BIGINT[]))"
    for _, id, fault in model_faults(session, recipe_tables(session), these, [keys]):
        raise StoreDamaged(f"model {short_id(id)}: its {fault} is not what `deltadex index` writes")


def outcome_of_copy(
    session: Session, key: int, model: ModelRecord, recipes: Sequence[Recipe]
) -> Indexed:
    """What indexing a byte-identical copy of the model with this key would give."""
    sketched = _sketch_recipe(recipes)
    fingerprints = []
    for recipe in recipes:
        _, vectors = fetch_vectors_of(session, recipe, np.array([key]))
        [(norm,)] = session.execute(
            f"SELECT norm FROM {vectors_name(recipe)} WHERE model = ?", [key]
        )
        fingerprints.append(Fingerprint(recipe=recipe, vector=vectors[0], norm=norm))
    return Indexed(
        model=model,
        fingerprints=tuple(fingerprints),
        slots=tuple(select_slots(session, key, sketched)),
        bytes_read=0,
        seconds=0.0,
        linear=select_linear_sketch(session, key, sketched) if sketched else None,
        footprint=Footprints(session).of(key),
    )


def delete_models(session: Session, keys: Sequence[int]) -> None:
    """Remove models and all that belongs to them."""
    these = "IN (SELECT unnest(?::BIGINT[]))"
    for table in (*BESIDE, *(table for _, table in tables(session))):
        session.execute(f"DELETE FROM {table} WHERE model {these}", [list(keys)])
    session.execute(f"DELETE FROM models WHERE key {these}", [list(keys)])


def move_models(session: Session, keys: Mapping[int, int]) -> None:
    """Give models and all that belongs to them other keys: old → new."""
    columns = dict.fromkeys((*BESIDE, *(table for _, table in tables(session))), "model")
    for table, key in ({"models": "key"} | columns).items() if keys else ():
        session.execute(
            f"UPDATE {table} SET {key} = k.new FROM {KEY_PAIRS} WHERE {key} = k.old",
            [list(keys), list(keys.values())],
        )


# data sets that were kept as queries

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
        return {column: value for column, value in row.items() if column not in _NUMBERS}

    def load(self, name: str, base: str | None = None) -> DataSet:
        """A data set with its sketches; raises `RequestError` if there is none of that name, or
        several families have one."""
        return data_set_of(self.session, self._row(name, base))

    def _row(self, name: str, base: str | None) -> dict[str, Any]:
        rows = select_data_sets(self.session, "name = $1 AND ($2 IS NULL OR base = $2)", name, base)
        if len(rows) == 1:
            return rows[0]
        if rows:
            bases = ", ".join(sorted(row["base"] for row in rows))
            raise RequestError(f"several families have a data set {name!r}; add --base: {bases}")
        known = sorted(row["name"] for row in self.listed(base))
        raise RequestError(f"no data set {name!r} is kept{offered(name, known, 'kept')}")

    def all(self, base: str, recipe: str) -> list[DataSet]:
        """The data sets of a family with sketches under a recipe, by name."""
        rows = select_data_sets(self.session, "base = $1 AND recipe = $2", base, recipe)
        return [data_set_of(self.session, row) for row in rows]

    def listed(self, base: str | None = None) -> list[dict[str, Any]]:
        """Data sets without their numbers, by base and name."""
        condition = "$1 IS NULL OR base = $1"
        return select_data_sets(self.session, condition, base, left_out=_NUMBERS)


def select_data_sets(
    session: Session, condition: str = "true", *values: object, left_out: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Rows of `data_sets` that meet a condition, by base and name, but some columns; JSON columns
    as objects."""
    columns = f"* EXCLUDE ({', '.join(left_out)})" if left_out else "*"
    rows = session.arrow(
        f"SELECT {columns} REPLACE (made_at::VARCHAR AS made_at) FROM data_sets "
        f"WHERE {condition} ORDER BY base, name",
        list(values),
    ).to_pylist()
    return [row | {name: json.loads(row[name]) for name in _JSON} for row in rows]


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
    row = {name: getattr(data_set, name) for name in _ABOUT} | {
        **{name: json.dumps(getattr(data_set, name), sort_keys=True) for name in _JSON},
        "recipe": fingerprint.recipe.id,
        "vector": fingerprint.vector.tolist(),
        "norm": fingerprint.norm,
    }
    insert_rows(session, "data_sets", [row], f"* REPLACE ({NOW} AS made_at)")
    own = {"base": data_set.base, "name": data_set.name}
    rows = [
        own | asdict(slot) | {"part": part, "sketch": sketch}
        for part, slots in data_set.sketches.items()
        for slot, sketch in slots.items()
    ]
    insert_rows(session, "data_sketches", rows)


def delete_data_set(session: Session, base: str, name: str) -> None:
    for table in ("data_sets", "data_sketches"):
        session.execute(f"DELETE FROM {table} WHERE base = ? AND name = ?", [base, name])
