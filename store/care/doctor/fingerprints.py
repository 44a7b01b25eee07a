"""Recipes and their vectors: of unit length, finite, as long as promised."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ....records import Recipe
from ...tables.vectors import UNIT_TOLERANCE
from .finding import Finding, counted, some
from .patient import Patient, quoted

AGAIN = "`deltadex rm` each of them, then index it again"


def check_recipes(patient: Patient) -> Iterator[Finding]:
    """Each recipe has the identity that it is known by, and its table."""
    recipes = patient.ask("SELECT id, name, rank, dim, seed, version, params, vectors FROM recipes")
    types = dict(
        patient.ask(
            "SELECT table_name, data_type FROM duckdb_columns() "
            "WHERE database_name = 'catalog' AND column_name = 'vector'"
        )
    )
    is_well = True
    for id, name, rank, dim, seed, version, params, table in recipes:
        fault = ""
        if types.get(table) != f"FLOAT[{dim}]":
            fault = f"its vectors are not there as FLOAT[{dim}] in {table}"
        elif _identity(name, rank, dim, seed, version, params) != id:
            fault = "its settings are not those that its id stands for"
        if fault:
            is_well = False
            advice = "put a backup in the catalog's place: its vectors cannot be told from others"
            yield Finding("recipes", "problem", f"{id}: {fault}", advice)
    known = {row[-1] for row in recipes}
    lone = [t for t in patient.tables() if t.startswith("vectors_") and t not in known]
    if lone:
        advice = "nothing reads them; with DuckDB: " + " ".join(f"DROP TABLE {t};" for t in lone)
        yield Finding("recipes", "problem", f"vectors of no recipe: {', '.join(lone)}", advice)
    elif is_well:
        yield Finding("recipes", "ok", counted(len(recipes), "recipe"))


def check_vectors(patient: Patient) -> Iterator[Finding]:
    """The length of every vector."""
    there = set(patient.tables())
    tables = [str(t) for (t,) in patient.ask("SELECT vectors FROM recipes") if t in there]
    parts = [part for table in tables for part in patient.parts(table)]
    wrong: list[str] = []
    n_vectors = 0
    for table, first, last in patient.track(parts, "measuring vectors"):
        rows = patient.ask(
            f"SELECT coalesce(m.id, '(no model)'), is_unit FROM "
            f"(SELECT model, {_IS_UNIT} AS is_unit FROM {quoted(table)} v "
            "WHERE v.rowid BETWEEN ? AND ?) LEFT JOIN models m ON m.key = model "
            "WHERE NOT is_unit",
            first,
            last,
        )
        wrong.extend(str(id) for id, _ in rows)
        n_vectors += patient.ask(
            f"SELECT count(*) FROM {quoted(table)} v WHERE v.rowid BETWEEN ? AND ?", first, last
        )[0][0]
    if wrong:
        detail = f"{counted(len(wrong), 'vector')} not of unit length, or not finite: {some(wrong)}"
        yield Finding("vectors", "problem", detail, AGAIN)
    else:
        yield Finding("vectors", "ok", f"{counted(n_vectors, 'vector')} of unit length")


_IS_UNIT = (
    f"coalesce(abs(sqrt(array_inner_product(vector, vector)) - 1) <= {UNIT_TOLERANCE} "
    "AND isfinite(norm) AND norm >= 0, false)"
)
"""NaN is above every number for DuckDB."""


def _identity(name: str, rank: int, dim: int, seed: int, version: int, params: str) -> str | None:
    """The id of a recipe of these settings; None where they cannot be read."""
    try:
        pairs = tuple((str(key), str(value)) for key, value in json.loads(params))
    except (ValueError, TypeError):
        return None
    recipe = Recipe(name=name, rank=rank, dim=dim, seed=seed, version=version, params=pairs)
    return recipe.id
