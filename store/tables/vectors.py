"""Vector tables: one a recipe, `FLOAT[dim]`, and the view over all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...arrays import Float32, Int64
from ...errors import RecipeMismatch, StoreDamaged
from ...records import Fingerprint, Recipe
from ..model_rows import wrong_vector
from ..session import Session, not_finite
from .recipes import tables


def ensure_table(session: Session, recipe: Recipe) -> str:
    """The name of the table of a recipe's vectors, made if it is new."""
    known = _table(session, recipe)
    if known is not None:
        return known
    table = _name(recipe)
    # no primary key: DuckDB goes through the last rows of a table with an index at every commit
    session.execute(
        f"CREATE TABLE {table} "
        f"(model BIGINT NOT NULL, vector FLOAT[{recipe.dim}] NOT NULL, norm DOUBLE NOT NULL)"
    )
    session.execute(
        "INSERT INTO recipes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            recipe.id,
            recipe.name,
            recipe.rank,
            recipe.dim,
            recipe.seed,
            recipe.version,
            json.dumps(recipe.params),
            table,
            recipe.share,
        ],
    )
    refresh_view(session)
    return table


def insert_vectors(session: Session, fingerprints: Sequence[tuple[int, Fingerprint]]) -> None:
    """Write models' vectors, each under its model's key.

    Raises:
        RecipeMismatch: a vector is not what its recipe promises.
    """
    by_recipe: dict[Recipe, list[tuple[int, Fingerprint]]] = {}
    for key, fingerprint in fingerprints:
        if fault := wrong_vector(fingerprint):
            raise RecipeMismatch(fault)
        by_recipe.setdefault(fingerprint.recipe, []).append((key, fingerprint))
    for recipe, rows in by_recipe.items():
        table = ensure_table(session, recipe)
        numbers = np.concatenate([fingerprint.vector for _, fingerprint in rows])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), recipe.dim)
        new = pa.table(
            {
                "model": pa.array([key for key, _ in rows], pa.int64()),
                "vector": vectors,
                "norm": pa.array([fingerprint.norm for _, fingerprint in rows], pa.float64()),
            }
        )
        with session.registered("new_vectors", new):
            session.execute(f"INSERT INTO {table} SELECT * FROM new_vectors")


def delete_vector(session: Session, key: int, recipe: Recipe) -> None:
    """Remove the vector that a model has under a recipe, if any."""
    table = _table(session, recipe)
    if table is not None:
        session.execute(f"DELETE FROM {table} WHERE model = ?", [key])


def carry_over(session: Session, old: int, new: int, but: set[str]) -> None:
    """Move a model's vectors under recipes other than `but` from key `old` to `new`."""
    for recipe, table in tables(session):
        if recipe not in but:
            session.execute(
                f"INSERT INTO {table} SELECT ?, vector, norm FROM {table} WHERE model = ?",
                [new, old],
            )


def delete_vectors(session: Session, key: int) -> None:
    for _, table in tables(session):
        session.execute(f"DELETE FROM {table} WHERE model = ?", [key])


def fetch_vectors(
    session: Session, sql: str, values: list[object], dim: int
) -> tuple[list[object], Float32[np.ndarray, "models dim"]]:
    """The rows of a query for (name, vector): names, and vectors as one matrix.

    Raises:
        StoreDamaged: a number is not finite.
    """
    table = session.arrow(sql, values)
    if table.num_rows == 0:
        return [], np.zeros((0, dim), dtype=np.float32)
    # not flatten(), which imports pyarrow.compute
    matrix, row = np.empty((table.num_rows, dim), dtype=np.float32), 0
    for chunk in table.column(1).chunks:
        matrix[row : row + len(chunk)] = np.asarray(chunk.values, np.float32).reshape(-1, dim)
        row += len(chunk)
    # of numbers below 1 a sum is finite if all are
    is_finite = np.isfinite(matrix.sum(axis=1))
    if not is_finite.all():
        raise StoreDamaged(not_finite(session.path, f"{int((~is_finite).sum())} vectors"))
    return table.column(0).to_pylist(), matrix


def fetch_keys(
    session: Session, base: str, recipe: Recipe, after: int
) -> list[tuple[int, str, str]]:
    """(key, id, kind) of a family's models above a key that have a vector, by key."""
    table = _table(session, recipe)
    if table is None:
        return []
    return session.execute(
        f"SELECT m.key, m.id, m.kind FROM {table} v JOIN models m ON m.key = v.model "
        "WHERE m.base = ? AND v.model > ? ORDER BY m.key",
        [base, after],
    )


def count_vectors(session: Session, base: str, recipe: Recipe) -> int:
    """How many of a family's models have a vector."""
    table = _table(session, recipe)
    if table is None:
        return 0
    source = f"FROM {table} v JOIN models m ON m.key = v.model"
    return int(session.execute(f"SELECT count(*) {source} WHERE m.base = ?", [base])[0][0])


def fetch_vectors_of(
    session: Session, recipe: Recipe, keys: Int64[np.ndarray, " keys"]
) -> tuple[Int64[np.ndarray, " present"], Float32[np.ndarray, "present dim"]]:
    """Keys, rising, and vectors of those of some models that have a vector."""
    table = _table(session, recipe) if len(keys) else None
    if table is None:
        return np.zeros(0, dtype=np.int64), np.zeros((0, recipe.dim), dtype=np.float32)
    first, last = int(keys.min()), int(keys.max())
    is_dense = len(keys) == last - first + 1
    values: list[object] = [first, last] if is_dense else [keys.tolist()]
    condition = "BETWEEN ? AND ?" if is_dense else "IN (SELECT unnest(?::BIGINT[]))"
    sql = f"SELECT model, vector FROM {table} WHERE model {condition} ORDER BY model"
    names, matrix = fetch_vectors(session, sql, values, recipe.dim)
    return np.array(names, dtype=np.int64), matrix


def fetch_norm(session: Session, recipe: Recipe, key: int) -> float:
    """The length that a model's vector had before normalisation."""
    rows = session.execute(f"SELECT norm FROM {_name(recipe)} WHERE model = ?", [key])
    return float(rows[0][0])


def _name(recipe: Recipe) -> str:
    """What the table of a recipe's vectors is called."""
    return f"vectors_{recipe.id.rsplit('-', 1)[-1]}_{recipe.dim}"


def _table(session: Session, recipe: Recipe) -> str | None:
    """The table of a recipe's vectors; None while there is none."""
    rows = session.execute("SELECT vectors FROM recipes WHERE id = ?", [recipe.id])
    return str(rows[0][0]) if rows else None


def refresh_view(session: Session) -> None:
    """`fingerprints`: every vector with its model's name and recipe, for people and tools."""
    selects = [
        f"SELECT m.base, m.id AS model, '{recipe}' AS recipe, v.norm, v.vector::FLOAT[] AS vector "
        f"FROM {table} v JOIN models m ON m.key = v.model"
        for recipe, table in tables(session)
    ]
    session.execute(f"CREATE OR REPLACE VIEW fingerprints AS {' UNION ALL '.join(selects)}")
