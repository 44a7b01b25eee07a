"""A batch of models of one catalog merged into another, within one transaction of the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ....arrays import Float64
from ....records import Recipe
from ...model_rows import model_faults, short_id
from ...session import Session
from ...tables.models import new_keys
from ...tables.outcomes import key_pairs, move_models
from ...tables.recipes import tables
from ...tables.vectors import ensure_table, fetch_vectors
from .rules import (
    FILLED,
    Conflict,
    Row,
    conflict_of,
    filled,
    labelled,
    labels_differ,
    same_files,
    supersedes,
)

SAME_WITHIN = 1e-3
"""Distance of two unit vectors, and relative difference of two updates' norms, that other
processors' rounding explains; other weights do not come so close."""

Name = tuple[str, str]
"""Base and id."""

THESE = "(SELECT unnest(?::BIGINT[]))"


@dataclass(frozen=True, slots=True)
class Source:
    """The catalog that is merged.

    Attributes:
        name: For people.
        recipes: By id, with the table of their vectors.
    """

    name: str
    session: Session
    recipes: Mapping[str, tuple[Recipe, str]]

    @property
    def tables(self) -> list[tuple[str, str]]:
        """(recipe id, table) of every recipe."""
        return [(id, table) for id, (_, table) in self.recipes.items()]


@dataclass(slots=True)
class Parts:
    """What belongs to a model beside its row: recipes of its vectors, and of its slots."""

    vectors: set[str] = field(default_factory=set)
    slots: set[str | None] = field(default_factory=set)

    def lacks(self, other: Parts) -> Parts:
        """What the other has more; slots without sketches only where there are none at all."""
        slots = other.slots - self.slots
        if self.slots or slots != {None}:
            slots = slots - {None}
        return Parts(other.vectors - self.vectors, slots)


@dataclass(slots=True)
class Counts:
    """What became of the source's models.

    Attributes:
        updated: Known ones that got something they lacked, or a better outcome.
        differing: Known ones of other weights: nothing of them was taken.
        data_sets: Kept data sets that were added.
        damaged: Parts and models that were left out, one line each.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    differing: int = 0
    data_sets: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.added += other.added
        self.updated += other.updated
        self.unchanged += other.unchanged
        self.differing += other.differing
        self.data_sets += other.data_sets
        self.conflicts += other.conflicts
        self.damaged += other.damaged


def merge_models(target: Session, source: Source, names: Sequence[Name]) -> Counts:
    """Bring the source's models of these names into the target, but for damaged ones."""
    theirs, damaged = _sound_rows(source, names)
    ours = {(row["base"], row["id"]): row for row in _rows(target, names)}
    known = [(ours[name], row) for row in theirs if (name := (row["base"], row["id"])) in ours]
    new = [(None, row) for row in theirs if (row["base"], row["id"]) not in ours]
    better = [pair for pair in known if _is_better(*pair)]
    settled = [pair for pair in known if not _is_better(*pair)]
    differing = _differing(target, source, settled)
    same = [pair for pair in settled if pair[1]["key"] not in differing]

    counts = Counts(added=len(new), differing=len(differing), damaged=damaged)
    for own, row in settled:
        if row["key"] in differing:
            counts.conflicts.append(conflict_of("weights", source.name, own, row))
    for own, row in (*better, *same):
        if labels_differ(own, row):
            counts.conflicts.append(conflict_of("labels", source.name, own, row))
    _take_whole(target, source, [*new, *better])
    completed = _complete(target, source, same)
    counts.updated = len(better) + len(completed)
    counts.unchanged = len(same) - len(completed)
    return counts


def _sound_rows(source: Source, names: Sequence[Name]) -> tuple[list[dict[str, Any]], list[str]]:
    """The source's models of these names whose rows are what a catalog may hold, and a line on each
    of the others."""
    rows = _rows(source.session, names)
    sql, values = model_faults(source.recipes, THESE, [[row["key"] for row in rows]])
    faults = {int(key): fault for key, fault in source.session.execute(sql, values)}
    damaged = [
        f"{source.name}: model {short_id(row['id'])} is not what `deltadex index` writes "
        f"({faults[row['key']]}); index it again"
        for row in rows
        if row["key"] in faults
    ]
    return [row for row in rows if row["key"] not in faults], damaged


def _is_better(ours: Row, theirs: Row) -> bool:
    both = ours["status"] == theirs["status"] == "indexed"
    return not both and supersedes(theirs, ours)


def _rows(session: Session, names: Sequence[Name]) -> list[dict[str, Any]]:
    """The models of these names, in the order in which they were recorded; each once."""
    wanted = pa.table(
        {
            "base": pa.array([base for base, _ in names], pa.string()),
            "id": pa.array([id for _, id in names], pa.string()),
        }
    )
    with session.registered("wanted_names", wanted):
        table = session.arrow("SELECT m.* FROM models m JOIN wanted_names USING (base, id)")
    rows = sorted(table.to_pylist(), key=lambda row: int(row["key"]))
    return list({(row["base"], row["id"]): row for row in rows}.values())


def _differing(target: Session, source: Source, pairs: Sequence[tuple[Row, Row]]) -> set[int]:
    """Keys, in the source, of indexed models whose weights are others than the target's."""
    both = [(a, b) for a, b in pairs if a["status"] == b["status"] == "indexed"]
    same_by_key = {b["key"]: same_files(a, b) for a, b in both}
    unclear = [(a, b) for a, b in both if same_by_key[b["key"]] is None]
    alike = _alike(target, source, unclear) if unclear else set()
    return {key for key, same in same_by_key.items() if same is False} | (
        {b["key"] for _, b in unclear} - alike
    )


def _alike(target: Session, source: Source, pairs: Sequence[tuple[Row, Row]]) -> set[int]:
    """Keys, in the source, of the models that measured as the target's did under a recipe."""
    own_of = {int(theirs["key"]): int(ours["key"]) for ours, theirs in pairs}
    norms = _norms(target, own_of.values())
    other_norms = _norms(source.session, own_of)
    ours_by_recipe = dict(tables(target))
    alike = set()
    for id, (recipe, table) in source.recipes.items():
        if id not in ours_by_recipe:
            continue
        own = _vectors(target, ours_by_recipe[id], own_of.values(), recipe)
        for key, vector in _vectors(source.session, table, own_of, recipe).items():
            near = own_of[key] in own and np.linalg.norm(own[own_of[key]] - vector) <= SAME_WITHIN
            if near and _close(norms.get((own_of[key], id)), other_norms.get((key, id))):
                alike.add(key)
    return alike


def _close(ours: float | None, theirs: float | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return abs(ours - theirs) <= SAME_WITHIN * max(ours, theirs)


def _norms(session: Session, keys: Iterable[int]) -> dict[tuple[int, str], float]:
    """|ΔW| over all slots, by model and recipe of the slots."""
    rows = session.execute(
        "SELECT model, recipe, sqrt(sum(fro_norm * fro_norm)) FROM slots "
        f"WHERE recipe IS NOT NULL AND model IN {THESE} GROUP BY ALL",
        [list(keys)],
    )
    return {(int(key), recipe): float(norm) for key, recipe, norm in rows}


def _vectors(
    session: Session, table: str, keys: Iterable[int], recipe: Recipe
) -> dict[int, Float64[np.ndarray, " dim"]]:
    sql = f"SELECT model, vector FROM {table} WHERE model IN {THESE}"
    keys_there, matrix = fetch_vectors(session, sql, [list(keys)], recipe.dim)
    return {int(str(k)): v for k, v in zip(keys_there, matrix.astype(np.float64), strict=True)}


def _take_whole(target: Session, source: Source, pairs: Sequence[tuple[Row | None, Row]]) -> None:
    """Write the source's models in place of what the target has of them, labels apart."""
    if not pairs:
        return
    keys = dict(zip([row["key"] for _, row in pairs], new_keys(target, len(pairs)), strict=True))
    rows = []
    for own, row in pairs:
        labels = labelled(own, row) if own is not None else {}
        rows.append({**row, **labels, "key": keys[row["key"]]})
    replaced = [own["key"] for own, _ in pairs if own is not None]
    target.execute(f"DELETE FROM studies WHERE model IN {THESE}", [replaced])
    target.execute(f"DELETE FROM models WHERE key IN {THESE}", [replaced])
    table = pa.Table.from_pylist(rows, schema=target.arrow("FROM models LIMIT 0").schema)
    with target.registered("merged_models", table):
        target.execute("INSERT INTO models BY NAME SELECT * FROM merged_models")
    take_parts(target, source, keys, parts_of(source.session, source.tables, keys))
    take_studies(target, source, keys)


def _complete(target: Session, source: Source, pairs: Sequence[tuple[Row, Row]]) -> set[int]:
    """Give known models what they lack; the source's keys of those that lacked something.

    A model whose vectors or slots changed gets a new key: what is derived from the catalog
    sees a change by that.
    """
    if not pairs:
        return set()
    indexed = [(a, b) for a, b in pairs if a["status"] == b["status"] == "indexed"]
    own_of = {int(theirs["key"]): int(ours["key"]) for ours, theirs in indexed}
    ours = parts_of(target, tables(target), own_of.values())
    theirs = parts_of(source.session, source.tables, own_of)
    lacking = {key: ours[own].lacks(theirs[key]) for key, own in own_of.items()}
    lacking = {key: parts for key, parts in lacking.items() if parts.vectors or parts.slots}
    moved = dict(zip(lacking, new_keys(target, len(lacking)), strict=True))
    move_models(target, {own_of[key]: new for key, new in moved.items()})
    sketched = [moved[key] for key, parts in lacking.items() if parts.slots - {None}]
    target.execute(f"DELETE FROM slots WHERE recipe IS NULL AND model IN {THESE}", [sketched])
    take_parts(target, source, moved, lacking)
    own_of |= moved
    changed = {int(b["key"]): filled(a, b) for a, b in pairs if filled(a, b) != a}
    _fill(target, [{**row, "key": own_of.get(key, row["key"])} for key, row in changed.items()])
    return changed.keys() | moved.keys() | take_studies(target, source, own_of)


def _fill(target: Session, rows: Sequence[Row]) -> None:
    if not rows:
        return
    columns = ("key", *FILLED)
    schema = target.arrow(f"SELECT {', '.join(columns)} FROM models LIMIT 0").schema
    table = pa.Table.from_pylist([{c: row[c] for c in columns} for row in rows], schema=schema)
    assignments = ", ".join(f"{c} = f.{c}" for c in FILLED)
    with target.registered("filled_models", table):
        target.execute(
            f"UPDATE models SET {assignments} FROM filled_models f WHERE models.key = f.key"
        )


# vectors, slots and studies, copied bit for bit


def take_parts(
    target: Session, source: Source, keys: Mapping[int, int], parts: Mapping[int, Parts]
) -> None:
    """Copy vectors, slots and linear sketches of the source's models to the target's: key there →
    key here."""
    for id, (recipe, table) in source.recipes.items():
        own_keys = {key: keys[key] for key, part in parts.items() if id in part.vectors}
        if own_keys:
            sql = f"SELECT model, vector, norm FROM {table} WHERE model IN {THESE}"
            vectors = source.session.arrow(sql, [list(own_keys)])
            _insert(target, ensure_table(target, recipe), vectors, own_keys)
    wanted = {recipe for part in parts.values() for recipe in part.slots}
    for recipe_id in sorted(wanted, key=str):
        own_keys = {key: keys[key] for key, part in parts.items() if recipe_id in part.slots}
        for table in ("slots", "linear_sketches"):
            rows = source.session.arrow(
                f"SELECT * FROM {table} WHERE recipe IS NOT DISTINCT FROM ? AND model IN {THESE}",
                [recipe_id, list(own_keys)],
            )
            _insert(target, table, rows, own_keys)


def _insert(target: Session, table: str, rows: pa.Table, keys: Mapping[int, int]) -> None:
    """Add rows under the target's keys, bit for bit."""
    with (
        target.registered("merged_rows", rows),
        target.registered("merged_keys", key_pairs("model", "key", keys)),
    ):
        target.execute(
            f"INSERT INTO {table} BY NAME SELECT k.key AS model, r.* EXCLUDE (model) "
            "FROM merged_rows r JOIN merged_keys k USING (model)"
        )


def take_studies(target: Session, source: Source, keys: Mapping[int, int]) -> set[int]:
    """Copy the studies that the target has not; the source's keys of their models."""
    sql = f"SELECT * FROM studies WHERE model IN {THESE}"
    studies = source.session.arrow(sql, [list(keys)])
    if not studies.num_rows:
        return set()
    with (
        target.registered("merged_rows", studies),
        target.registered("merged_keys", key_pairs("model", "key", keys)),
    ):
        new = (
            "FROM merged_rows r JOIN merged_keys k USING (model) WHERE NOT EXISTS (FROM studies s "
            "WHERE s.model = k.key AND s.study = r.study AND s.settings = r.settings)"
        )
        models = target.execute(f"SELECT DISTINCT r.model {new}")
        target.execute(
            f"INSERT INTO studies BY NAME SELECT k.key AS model, r.* EXCLUDE (model) {new}"
        )
    return {int(key) for (key,) in models}


def parts_of(
    session: Session, recipes: Iterable[tuple[str, str]], keys: Iterable[int]
) -> dict[int, Parts]:
    """Which vectors and slots the models with these keys have."""
    parts = {int(key): Parts() for key in keys}
    for recipe, table in recipes:
        sql = f"SELECT model FROM {table} WHERE model IN {THESE}"
        for (key,) in session.execute(sql, [list(parts)]):
            parts[int(key)].vectors.add(recipe)
    sql = f"SELECT DISTINCT model, recipe FROM slots WHERE model IN {THESE}"
    for key, slots_of in session.execute(sql, [list(parts)]):
        parts[int(key)].slots.add(slots_of)
    return parts
