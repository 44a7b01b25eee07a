"""What the rows of a model may hold, wherever they come from: parts, other catalogs, this one.

Records are compared with the limits in Python (`check_outcome`), rows of a catalog by DuckDB
(`row_fault`, `model_faults`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from ..errors import REASONS
from ..records import (
    LINEAR_DIM,
    LINEAR_LAYER_DIM,
    LONGEST_TEXT,
    ROLES,
    STACKS,
    Fingerprint,
    Indexed,
    LinearSketch,
    Outcome,
    Recipe,
    SlotStats,
    Verification,
)
from .sketch_codes import WEIGHT, sketch_bytes

UNIT_TOLERANCE = 1e-3
"""By which a vector's length may differ from 1."""

LONGEST_LINE = 1 << 16
"""Characters of any other text than a name: a reason, a note, a signature."""

LONGEST_SHOWN = 120
"""Characters of an id in a message."""

_LARGEST = sys.float_info.max
_LONG, _INT = (1 << 63) - 1, (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` to `most`; NaN is none."""

    least: int | float = 0
    most: int | float = _LARGEST
    is_optional: bool = False

    def holds(self, value: object) -> bool:
        if value is None:
            return self.is_optional
        return isinstance(value, int | float) and self.least <= value <= self.most

    def sql(self, column: str) -> str:
        is_inside = f"{column} BETWEEN {self.least!r} AND {self.most!r}"
        return f"coalesce({is_inside}, {self.is_optional})"


@dataclass(frozen=True, slots=True)
class Text:
    """Texts of at most so many characters; those that are not optional are not empty."""

    most: int = LONGEST_LINE
    is_optional: bool = True

    def holds(self, value: object) -> bool:
        if value is None:
            return self.is_optional
        return isinstance(value, str) and (not self.is_optional) <= len(value) <= self.most

    def sql(self, column: str) -> str:
        least = int(not self.is_optional)
        is_short = f"length({column}) BETWEEN {least} AND {self.most}"
        return f"coalesce({is_short}, {self.is_optional})"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]
    is_optional: bool = False

    def holds(self, value: object) -> bool:
        return value in self.words or (value is None and self.is_optional)

    def sql(self, column: str) -> str:
        words = ", ".join(f"'{word}'" for word in self.words)
        return f"coalesce({column} IN ({words}), {self.is_optional})"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Lists of finite numbers of single precision, not below `least`."""

    least: float = -float(np.finfo(np.float32).max)

    def holds(self, value: object) -> bool:
        return isinstance(value, np.ndarray) and bool(
            (np.isfinite(value) & (value >= self.least)).all()
        )

    def sql(self, column: str) -> str:
        every = f"list_transform({column}, lambda x: isfinite(x) AND x >= {self.least!r})"
        return f"({column} IS NOT NULL AND coalesce(list_bool_and({every}), len({column}) = 0))"


@dataclass(frozen=True, slots=True)
class Notes:
    """Lists of lines."""

    def holds(self, value: object) -> bool:
        return isinstance(value, tuple) and all(_LINE.holds(line) for line in value)

    def sql(self, column: str) -> str:
        every = f"list_transform({column}, lambda x: {_LINE.sql('x')})"
        return f"coalesce(list_bool_and({every}), true)"


Limit = Range | Text | Choice | Numbers | Notes

_LINE = Text(is_optional=False)
_NAME = Text(LONGEST_TEXT, is_optional=False)
_SHARE = Range(0, 1, is_optional=True)

RECORD: Mapping[str, Limit] = {
    "id": _NAME,
    "base": _NAME,
    **dict.fromkeys(
        (
            *("base_raw", "revision", "signature", "content_sha256", "method", "source", "author"),
            *("run", "dataset", "dataset_raw", "label_source", "task", "license", "created_at"),
            *("duplicate_of", "dtype"),
        ),
        Text(),
    ),
    "kind": Choice(("full", "adapter")),
    "downloads": Range(0, _LONG, is_optional=True),
    "bytes_total": Range(0, _LONG),
    "layers": Range(1, _INT, is_optional=True),
    "vocabulary": Range(1, _INT, is_optional=True),
    "verified": Choice(get_args(Verification), is_optional=True),
    "notes": Notes(),
}
"""Columns of `models` that are fields of `ModelRecord`."""

OUTCOME: Mapping[str, Limit] = {"bytes_read": Range(0, _LONG), "seconds": Range()}

SLOT: Mapping[str, Limit] = {
    "stack": Choice(STACKS),
    "layer": Range(0, _INT),
    "role": Choice(ROLES),
    "rows": Range(1, _INT),
    "columns": Range(1, _INT),
    "fro_norm": Range(),
    "relative_norm": Range(is_optional=True),
    "sigma": Numbers(0.0),
    "energy": Range(0, 1),
    "stable_rank": Range(),
    "noise_floor": Range(),
    "zero_share": _SHARE,
}
"""Columns of `slots`; `sketch` depends on the recipe."""

NORM = Range()


def block_dims(recipe: Recipe) -> dict[str, int]:
    """Numbers of each block of a slot's sketch under a recipe; empty where it keeps none."""
    listed = dict(recipe.params).get("slot_blocks", "")
    pairs = (part.split(":") for part in listed.split(",") if part)
    return {block: int(dim) for block, dim in pairs}


def check_outcome(outcome: Outcome) -> None:
    """Compare all that a model's outcome would write with what the catalog's rows may hold;
    `ValueError` names the model and what is wrong of it, in one line."""
    fault = _fault_of(outcome)
    if fault:
        raise ValueError(f"model {short_id(outcome.model.id)}: {fault}")


def short_id(id: object) -> str:
    text = str(id)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def _fault_of(outcome: Outcome) -> str:
    fault = _first_fault(RECORD, outcome.model) or _first_fault(OUTCOME, outcome)
    if fault:
        return f"its {fault} is not what `deltadex index` writes"
    if not isinstance(outcome, Indexed):
        is_known = outcome.code in REASONS and _LINE.holds(outcome.reason)
        return "" if is_known else "a reason that this deltadex does not know"
    ids = [f.recipe.id for f in outcome.fingerprints]
    if not ids or len(set(ids)) < len(ids):
        return "no vector, or two of one recipe"
    if not outcome.slots or len({s.slot for s in outcome.slots}) < len(outcome.slots):
        return "no slots, or one twice"
    faults = (
        *map(wrong_vector, outcome.fingerprints),
        *map(_slot_fault, outcome.slots),
        _sketches_fault(outcome),
        _linear_fault(outcome.linear, ids),
    )
    return next(filter(None, faults), "")


def _first_fault(limits: Mapping[str, Limit], record: object) -> str:
    wrong = (name for name, limit in limits.items() if not limit.holds(getattr(record, name)))
    return next(wrong, "")


def wrong_vector(fingerprint: Fingerprint) -> str:
    """What is wrong of a vector; empty for a right one."""
    recipe, vector = fingerprint.recipe, fingerprint.vector
    if vector.shape != (recipe.dim,):
        return f"a vector of {vector.size} numbers, recipe {recipe.id} has {recipe.dim} dimensions"
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not abs(length - 1.0) <= UNIT_TOLERANCE:
        return f"a vector of recipe {recipe.id} has length {length}, not 1"
    return "" if NORM.holds(fingerprint.norm) else "the norm of a vector is out of range"


def _slot_fault(stats: SlotStats) -> str:
    values = {name: getattr(stats, name, None) for name in SLOT}
    slot = stats.slot
    values |= {"stack": slot.stack, "layer": slot.layer, "role": slot.role}
    values["rows"], values["columns"] = stats.shape
    wrong = (name for name, limit in SLOT.items() if not limit.holds(values[name]))
    return next((f"the {name} of a slot is out of range" for name in wrong), "")


def _sketches_fault(outcome: Indexed) -> str:
    """Whether slots have sketches where, and as, the recipe that keeps them says."""
    kept = [f.recipe for f in outcome.fingerprints if block_dims(f.recipe)]
    sketches = [stats.sketch for stats in outcome.slots if stats.sketch]
    if not kept:
        return ""
    if not sketches:
        return f"no sketches of recipe {kept[0].id}"
    dims = block_dims(kept[0])
    n_bytes = sketch_bytes(dims)
    for sketch in sketches:
        if len(sketch) != n_bytes:
            return f"a sketch of {len(sketch)} bytes, recipe {kept[0].id} has {n_bytes}"
        if not np.isfinite(np.frombuffer(sketch, WEIGHT, len(dims))).all():
            return "a sketch with numbers that are not finite"
    return ""


def _linear_fault(linear: LinearSketch | None, recipes: Sequence[str]) -> str:
    if linear is None:
        return ""
    parts = [(linear.pooled, LINEAR_DIM), *((n, LINEAR_LAYER_DIM) for n in linear.layers.values())]
    is_whole = linear.recipe in recipes and all(len(n) == dim for n, dim in parts)
    is_whole &= all(SLOT["stack"].holds(s) and SLOT["layer"].holds(at) for s, at in linear.layers)
    if not is_whole or not all(Numbers().holds(numbers) for numbers, _ in parts):
        return "a linear sketch of another length or recipe, or not finite"
    return ""


def row_fault(limits: Mapping[str, Limit], **more: str) -> str:
    """SQL for the first column of a row that is out of its limits, or out of the conditions on
    further columns; NULL for a row that is well."""
    conditions = {name: limit.sql(f'"{name}"') for name, limit in limits.items()} | more
    cases = " ".join(f"WHEN NOT ({sql}) THEN '{name}'" for name, sql in conditions.items())
    return f"CASE {cases} END"


def model_fault() -> str:
    """Of a row of `models`."""
    return row_fault({**RECORD, **OUTCOME})


def vector_fault() -> str:
    """Of a row of a table of vectors."""
    # NaN is above every number for DuckDB
    length = "sqrt(array_inner_product(vector, vector))"
    is_unit = f"coalesce(abs({length} - 1) <= {UNIT_TOLERANCE}, false)"
    return row_fault({"norm": NORM}, length=is_unit)


_NOT_FINITE_HALF = "^(.{4})*..[7F][C-F]"
"""Of the hexadecimal digits of float16 numbers, little-endian: an exponent of ones only."""


def slot_fault(recipes: Sequence[Recipe]) -> str:
    """Of a row of `slots`, whose sketch is of one of the recipes."""
    dims = {recipe.id: block_dims(recipe) for recipe in recipes}
    n_bytes = _by_recipe({id: sketch_bytes(of_recipe) for id, of_recipe in dims.items()})
    n_weights = _by_recipe({id: len(of_recipe) for id, of_recipe in dims.items()})
    weights = f"hex(sketch[1:{WEIGHT.itemsize} * {n_weights}])"
    sketch = (
        "recipe IS NULL OR sketch IS NULL OR (octet_length(sketch) > 0 "
        f"AND octet_length(sketch) = {n_bytes} "
        f"AND NOT regexp_matches({weights}, '{_NOT_FINITE_HALF}'))"
    )
    return row_fault(SLOT, sketch=sketch)


def _by_recipe(numbers: Mapping[str, int]) -> str:
    cases = " ".join(f"WHEN '{id}' THEN {number}" for id, number in numbers.items())
    return f"CASE recipe {cases} ELSE 0 END" if cases else "0"


def linear_faults(where: str = "true") -> str:
    """`model`, its key, of every model with a linear sketch that is damaged."""
    return (
        f"SELECT model FROM linear_sketches WHERE {where} GROUP BY model, recipe "
        "HAVING count(*) FILTER (layer IS NULL) <> 1 "
        "OR count(DISTINCT (stack, layer)) <> count(*) OR NOT bool_and("
        f"len(numbers) = CASE WHEN layer IS NULL THEN {LINEAR_DIM} ELSE {LINEAR_LAYER_DIM} END "
        f"AND {Numbers().sql('numbers')})"
    )


def repeated_slots(where: str = "true") -> str:
    """`model`, its key, of every model that has a slot twice under one recipe."""
    return (
        f"SELECT DISTINCT model FROM slots WHERE {where} "
        "GROUP BY model, recipe, stack, layer, role HAVING count(*) > 1"
    )


def model_faults(
    recipes: Mapping[str, tuple[Recipe, str]], keys: str, values: Sequence[object]
) -> tuple[str, list[object]]:
    """A query for the keys and faults of models whose rows are not what may be stored: those of a
    list of keys in SQL, whose parameters are `values`."""
    some = f"model IN {keys}"
    indexed = f"SELECT key AS model FROM models WHERE status = 'indexed' AND key IN {keys}"
    tables = [table for _, table in recipes.values()]
    every = " UNION ALL ".join(f"SELECT model FROM {table} WHERE {some}" for table in tables)
    queries = [
        f"SELECT key, {model_fault()} FROM models WHERE key IN {keys}",
        f"SELECT model, 'slot ' || {slot_fault([r for r, _ in recipes.values()])} FROM slots "
        f"WHERE {some}",
        f"SELECT model, 'linear sketch' FROM ({linear_faults(some)})",
        f"SELECT model, 'slots: one twice' FROM ({repeated_slots(some)})",
        f"SELECT model, 'slots: none' FROM ({indexed}) ANTI JOIN slots USING (model)",
    ]
    for id, (recipe, table) in recipes.items():
        queries += [
            f"SELECT model, {vector_fault()} FROM {table} WHERE {some}",
            f"SELECT model, 'vector: two of one recipe' FROM {table} WHERE {some} "
            "GROUP BY model HAVING count(*) > 1",
        ]
        if block_dims(recipe):
            queries.append(
                f"SELECT v.model, 'sketches: none' FROM {table} v ANTI JOIN slots s "
                f"ON s.model = v.model AND s.recipe = '{id}' WHERE v.{some}"
            )
    if tables:
        queries.append(
            f"SELECT model, 'vector: none' FROM ({indexed}) ANTI JOIN ({every}) v USING (model)"
        )
    union = " UNION ALL ".join(f"({query})" for query in queries)
    some = f"FROM ({union}) t(model, fault) WHERE fault IS NOT NULL GROUP BY model"
    return f"SELECT model, min(fault) {some}", [*values] * union.count("?")
