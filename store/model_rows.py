"""What the rows of a model may hold, wherever they come from: parts, other catalogs, this one.

DuckDB compares rows with these limits (`row_fault`, `model_faults`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from .. import records
from ..errors import REASONS
from .session import Session
from .sketch_codes import WEIGHT, sketch_bytes

UNIT_TOLERANCE = 1e-3
"""By which a vector's length may differ from 1."""

LONGEST_LINE = 1 << 16
"""Characters of any other text than a name: a reason, a note, a signature."""

LONGEST_SHOWN = 120
"""Characters of an id in a message."""

_LARGEST = sys.float_info.max
_LONG, _INT = (1 << 63) - 1, (1 << 31) - 1


Limit = str
"""SQL for whether a column, `{0}`, holds what it may."""


def _range(
    least: int | float = 0, most: int | float = _LARGEST, *, is_optional: bool = False
) -> Limit:
    """Numbers from `least` to `most`; NaN is none."""
    return f"coalesce({{0}} BETWEEN {least!r} AND {most!r}, {is_optional})"


def _text(most: int = LONGEST_LINE, *, is_optional: bool = True) -> Limit:
    """Texts of at most so many characters; those that are not optional are not empty."""
    return f"coalesce(length({{0}}) BETWEEN {int(not is_optional)} AND {most}, {is_optional})"


def _choice(words: Sequence[str], *, is_optional: bool = False) -> Limit:
    listed = ", ".join(f"'{word}'" for word in words)
    return f"coalesce({{0}} IN ({listed}), {is_optional})"


def _matching(pattern: re.Pattern[str]) -> Limit:
    """Texts that a pattern describes from end to end."""
    written = pattern.pattern.replace("{", "{{").replace("}", "}}")
    return f"coalesce(regexp_full_match({{0}}, '{written}'), false)"


def _numbers(least: float = -float(np.finfo(np.float32).max)) -> Limit:
    """Lists of finite numbers of single precision, not below `least`."""
    every = f"list_transform({{0}}, lambda x: isfinite(x) AND x >= {least!r})"
    return f"({{0}} IS NOT NULL AND coalesce(list_bool_and({every}), len({{0}}) = 0))"


_LINE, _NAME = _text(is_optional=False), _text(records.LONGEST_TEXT, is_optional=False)
_LINES = f"coalesce(list_bool_and(list_transform({{0}}, lambda x: {_LINE.format('x')})), true)"

RECORD: Mapping[str, Limit] = {
    "id": _NAME,
    "base": _NAME,
    **dict.fromkeys(
        (
            *("base_raw", "revision", "signature", "content_sha256", "method", "source", "author"),
            *("run", "dataset", "dataset_raw", "label_source", "task", "license", "created_at"),
            *("duplicate_of", "dtype"),
        ),
        _text(),
    ),
    "kind": _choice(("full", "adapter")),
    "downloads": _range(0, _LONG, is_optional=True),
    "bytes_total": _range(0, _LONG),
    "layers": _range(1, _INT, is_optional=True),
    "vocabulary": _range(1, _INT, is_optional=True),
    "verified": _choice(get_args(records.Verification), is_optional=True),
    "notes": _LINES,
}
"""Columns of `models` that are fields of `ModelRecord`."""

SLOT: Mapping[str, Limit] = {
    "stack": _matching(records.STACK_NAME),
    "layer": _range(0, _INT),
    "role": _matching(records.ROLE_NAME),
    "rows": _range(1, _INT),
    "columns": _range(1, _INT),
    "fro_norm": _range(),
    "relative_norm": _range(is_optional=True),
    "sigma": _numbers(0.0),
    "energy": _range(0, 1),
    "stable_rank": _range(),
    "noise_floor": _range(),
    "zero_share": _range(0, 1, is_optional=True),
}
"""Columns of `slots`; `sketch` depends on the recipe."""


def block_dims(recipe: records.Recipe) -> dict[str, int]:
    """Numbers of each block of a slot's sketch under a recipe; empty where it keeps none."""
    listed = dict(recipe.params).get("slot_blocks", "")
    pairs = (part.split(":") for part in listed.split(",") if part)
    return {block: int(dim) for block, dim in pairs}


def short_id(id: object) -> str:
    text = str(id)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def wrong_vector(fingerprint: records.Fingerprint) -> str:
    """What is wrong of a vector; empty for a right one."""
    recipe, vector = fingerprint.recipe, fingerprint.vector
    if vector.shape != (recipe.dim,):
        return f"a vector of {vector.size} numbers, recipe {recipe.id} has {recipe.dim} dimensions"
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not abs(length - 1.0) <= UNIT_TOLERANCE:
        return f"a vector of recipe {recipe.id} has length {length}, not 1"
    return "" if 0 <= fingerprint.norm <= _LARGEST else "the norm of a vector is out of range"


def row_fault(limits: Mapping[str, Limit], **more: str) -> str:
    """SQL for the first column of a row that is out of its limits, or out of the conditions on
    further columns; NULL for a row that is well."""
    conditions = {name: limit.format(f'"{name}"') for name, limit in limits.items()} | more
    cases = " ".join(f"WHEN NOT ({sql}) THEN '{name}'" for name, sql in conditions.items())
    return f"CASE {cases} END"


def model_fault() -> str:
    """Of a row of `models`."""
    known = ", ".join(f"('{reason.status}', '{code}')" for code, reason in REASONS.items())
    status = f"CASE WHEN code IS NULL THEN status = 'indexed' ELSE (status, code) IN ({known}) END"
    cost = {"bytes_read": _range(0, _LONG), "seconds": _range()}
    return row_fault({**RECORD, **cost, "reason": _text()}, status=status)


def vector_fault() -> str:
    """Of a row of a table of vectors."""
    # NaN is above every number for DuckDB
    length = "sqrt(array_inner_product(vector, vector))"
    is_unit = f"coalesce(abs({length} - 1) <= {UNIT_TOLERANCE}, false)"
    return row_fault({"norm": _range()}, length=is_unit)


_NOT_FINITE_HALF = "^(.{4})*..[7F][C-F]"
"""Of the hexadecimal digits of float16 numbers, little-endian: an exponent of ones only."""


def slot_fault(recipes: Sequence[records.Recipe]) -> str:
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


def linear_faults(where: str) -> str:
    """`model`, its key, of every model with a linear sketch that is damaged."""
    return (
        f"SELECT model FROM linear_sketches WHERE {where} GROUP BY model, recipe "
        "HAVING count(*) FILTER (layer IS NULL) <> 1 "
        "OR count(DISTINCT (stack, layer)) <> count(*) OR NOT bool_and("
        f"len(numbers) = CASE WHEN layer IS NULL THEN {records.LINEAR_DIM} "
        f"ELSE {records.LINEAR_LAYER_DIM} END "
        f"AND {_numbers().format('numbers')})"
    )


def model_faults(
    session: Session,
    recipes: Mapping[str, tuple[records.Recipe, str]],
    where: str,
    values: Sequence[object],
) -> list[tuple[int, str, str]]:
    """Key, id and fault of the models whose rows are not what may be stored, by id: of those whose
    key, `{0}`, passes a condition, whose parameters are `values`."""
    some, of_models = where.format("model"), where.format("key")
    indexed = f"SELECT key AS model FROM models WHERE status = 'indexed' AND {of_models}"
    tables = [table for _, table in recipes.values()]
    every = " UNION ALL ".join(f"SELECT model FROM {table} WHERE {some}" for table in tables)
    queries = [
        f"SELECT key, {model_fault()} FROM models WHERE {of_models}",
        f"SELECT model, 'slot ' || {slot_fault([r for r, _ in recipes.values()])} FROM slots "
        f"WHERE {some}",
        f"SELECT model, 'linear sketch' FROM ({linear_faults(some)})",
        f"SELECT DISTINCT model, 'slots: one twice' FROM slots WHERE {some} "
        "GROUP BY model, recipe, stack, layer, role HAVING count(*) > 1",
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
                f"ON s.model = v.model AND s.recipe = '{id}' AND s.sketch IS NOT NULL "
                f"WHERE {where.format('v.model')}"
            )
    if tables:
        queries.append(
            f"SELECT model, 'vector: none' FROM ({indexed}) ANTI JOIN ({every}) v USING (model)"
        )
    union = " UNION ALL ".join(f"({query})" for query in queries)
    return session.execute(
        f"SELECT m.key, m.id, min(fault) FROM ({union}) t(model, fault) "
        "JOIN models m ON m.key = t.model WHERE fault IS NOT NULL GROUP BY m.key, m.id ORDER BY 2",
        [*values] * (union.count("?") // len(values)),
    )
