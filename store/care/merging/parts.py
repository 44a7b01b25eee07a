"""What belongs to models beside their rows: vectors, slots, studies, copied bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ....errors import RecipeMismatch
from ....records import Recipe
from ...session import Session
from ...tables.models import key_pairs
from ...tables.vectors import UNIT_TOLERANCE, ensure_table

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


def take_parts(
    target: Session, source: Source, keys: Mapping[int, int], parts: Mapping[int, Parts]
) -> None:
    """Copy vectors and slots of the source's models to the target's: key there → key here."""
    for id, (recipe, table) in source.recipes.items():
        some = {key: keys[key] for key, part in parts.items() if id in part.vectors}
        if some:
            sql = f"SELECT model, vector, norm FROM {table} WHERE model IN {THESE}"
            vectors = source.session.arrow(sql, [list(some)])
            _check(vectors, recipe, source)
            _insert(target, ensure_table(target, recipe), vectors, some)
    wanted = {recipe for part in parts.values() for recipe in part.slots}
    for recipe_id in sorted(wanted, key=str):
        some = {key: keys[key] for key, part in parts.items() if recipe_id in part.slots}
        slots = source.session.arrow(
            f"SELECT * FROM slots WHERE recipe IS NOT DISTINCT FROM ? AND model IN {THESE}",
            [recipe_id, list(some)],
        )
        _insert(target, "slots", slots, some)


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


# reading


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


def _check(vectors: pa.Table, recipe: Recipe, source: Source) -> None:
    column = vectors.column("vector").combine_chunks()
    flat = np.asarray(column.flatten(), dtype=np.float64)
    if flat.size == vectors.num_rows * recipe.dim:
        lengths = np.linalg.norm(flat.reshape(vectors.num_rows, recipe.dim), axis=1)
        if (np.abs(lengths - 1.0) <= UNIT_TOLERANCE).all():
            return
    raise RecipeMismatch(
        f"{source.name}: a vector of recipe {recipe.id} is not of unit length in {recipe.dim} "
        "dimensions: the catalog is damaged, and no more of it is merged"
    )
