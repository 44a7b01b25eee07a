"""Vector tables: one a recipe, `FLOAT[dim]`, and the view over all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ..arrays import Float32, Int64
from ..errors import RecipeMismatch
from ..records import Fingerprint, Recipe
from .sharing import Connection

UNIT_TOLERANCE = 1e-3
BATCH = 8_192


def ensure_table(connection: Connection, recipe: Recipe) -> str:
    """The name of the table of a recipe's vectors, made if it is new."""
    known = _table(connection, recipe)
    if known is not None:
        return known
    table = _name(recipe)
    # no primary key: DuckDB goes through the last rows of a table with an index at every commit
    connection.execute(
        f"CREATE TABLE {table} "
        f"(model BIGINT NOT NULL, vector FLOAT[{recipe.dim}] NOT NULL, norm DOUBLE NOT NULL)"
    )
    connection.execute(
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
    refresh_view(connection)
    return table


def insert_vector(connection: Connection, key: int, fingerprint: Fingerprint) -> None:
    """Write one model's vector.

    Raises:
        RecipeMismatch: the vector is not what its recipe promises.
    """
    recipe, vector = fingerprint.recipe, fingerprint.vector
    if vector.shape != (recipe.dim,):
        raise RecipeMismatch(f"recipe {recipe.id} has {recipe.dim} dimensions, got {vector.shape}")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not abs(length - 1.0) <= UNIT_TOLERANCE:
        raise RecipeMismatch(f"a vector of recipe {recipe.id} has length {length}, not 1")
    table = ensure_table(connection, recipe)
    row = pa.table(
        {
            "model": pa.array([key], pa.int64()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vector), recipe.dim),
            "norm": pa.array([fingerprint.norm], pa.float64()),
        }
    )
    with connection.registered("new_vector", row):
        connection.execute(f"INSERT INTO {table} SELECT * FROM new_vector")


def delete_vector(connection: Connection, key: int, recipe: Recipe) -> None:
    """Remove the vector that a model has under a recipe, if any."""
    table = _table(connection, recipe)
    if table is not None:
        connection.execute(f"DELETE FROM {table} WHERE model = ?", [key])


def carry_over(connection: Connection, old: int, new: int, but: set[str]) -> None:
    """Move a model's vectors under recipes other than `but` from key `old` to `new`."""
    for recipe, table in tables(connection):
        if recipe not in but:
            connection.execute(
                f"INSERT INTO {table} SELECT ?, vector, norm FROM {table} WHERE model = ?",
                [new, old],
            )


def delete_vectors(connection: Connection, key: int) -> None:
    for _, table in tables(connection):
        connection.execute(f"DELETE FROM {table} WHERE model = ?", [key])


def tables(connection: Connection) -> list[tuple[str, str]]:
    """(recipe id, table) of every recipe."""
    return connection.execute("SELECT id, vectors FROM recipes ORDER BY id")


def fetch_vectors(
    connection: Connection, sql: str, values: list[object], dim: int
) -> tuple[list[object], Float32[np.ndarray, "models dim"]]:
    """The rows of a query for (name, vector): names, and vectors as one matrix."""
    table = connection.arrow(sql, values)
    if table.num_rows == 0:
        return [], np.zeros((0, dim), dtype=np.float32)
    column = table.column(1).combine_chunks()
    flat = (
        column.flatten()
        if isinstance(column, pa.Array)
        else pa.concat_arrays(column.chunks).flatten()
    )
    matrix = np.asarray(flat, dtype=np.float32).reshape(table.num_rows, dim)
    return table.column(0).to_pylist(), matrix


def fetch_family(
    connection: Connection,
    base: str,
    recipe: Recipe,
    keys: Sequence[int] | None,
) -> tuple[list[str], Float32[np.ndarray, "models dim"], list[float]]:
    """Ids, vectors and their lengths before normalisation, by id; of all models or of some."""
    table = _table(connection, recipe)
    if table is None or (keys is not None and not keys):
        return [], np.zeros((0, recipe.dim), dtype=np.float32), []
    some = f" AND m.key IN ({', '.join(map(str, keys))})" if keys is not None else ""
    source = f"FROM {table} v JOIN models m ON m.key = v.model WHERE m.base = ?{some} ORDER BY m.id"
    names, matrix = fetch_vectors(connection, f"SELECT m.id, v.vector {source}", [base], recipe.dim)
    norms = connection.execute(f"SELECT v.norm {source}", [base])
    return [str(n) for n in names], matrix, [float(n) for (n,) in norms]


def fetch_keys(
    connection: Connection, base: str, recipe: Recipe, after: int
) -> list[tuple[int, str, str]]:
    """(key, id, kind) of a family's models above a key that have a vector, by key."""
    table = _table(connection, recipe)
    if table is None:
        return []
    return connection.execute(
        f"SELECT m.key, m.id, m.kind FROM {table} v JOIN models m ON m.key = v.model "
        "WHERE m.base = ? AND v.model > ? ORDER BY m.key",
        [base, after],
    )


def count_vectors(connection: Connection, base: str, recipe: Recipe) -> int:
    """How many of a family's models have a vector."""
    table = _table(connection, recipe)
    if table is None:
        return 0
    source = f"FROM {table} v JOIN models m ON m.key = v.model"
    return int(connection.execute(f"SELECT count(*) {source} WHERE m.base = ?", [base])[0][0])


def fetch_vectors_after(
    connection: Connection, base: str, recipe: Recipe, after: int
) -> Iterator[tuple[list[int], Float32[np.ndarray, "models dim"]]]:
    """Keys of a family's models above `after`, and their vectors, by key, a batch at a time."""
    table = _table(connection, recipe)
    if table is None:
        return
    rows = connection.arrow(
        f"SELECT m.key FROM {table} v JOIN models m ON m.key = v.model "
        "WHERE m.base = ? AND m.key > ? ORDER BY m.key",
        [base, after],
    )
    keys = rows.column("key").to_numpy()
    for start in range(0, len(keys), BATCH):
        yield fetch_vectors_of(connection, recipe, keys[start : start + BATCH])


def fetch_vectors_of(
    connection: Connection, recipe: Recipe, keys: Int64[np.ndarray, " keys"]
) -> tuple[list[int], Float32[np.ndarray, "models dim"]]:
    """Some models' keys and vectors, by key, of a recipe that has some; one key is looked up
    rather than searched for."""
    if not len(keys):
        return [], np.zeros((0, recipe.dim), dtype=np.float32)
    table = _name(recipe)
    one = len(keys) == 1
    asked: list[object] = keys.tolist() if one else [keys.tolist()]
    condition = "= ?" if one else "IN (SELECT unnest(?::BIGINT[]))"
    sql = f"SELECT model, vector FROM {table} WHERE model {condition} ORDER BY model"
    names, matrix = fetch_vectors(connection, sql, asked, recipe.dim)
    return [int(str(key)) for key in names], matrix


def _name(recipe: Recipe) -> str:
    """What the table of a recipe's vectors is called."""
    return f"vectors_{recipe.id.rsplit('-', 1)[-1]}_{recipe.dim}"


def _table(connection: Connection, recipe: Recipe) -> str | None:
    """The table of a recipe's vectors; None while there is none."""
    found = connection.execute("SELECT vectors FROM recipes WHERE id = ?", [recipe.id])
    return str(found[0][0]) if found else None


def refresh_view(connection: Connection) -> None:
    """`fingerprints`: every vector with its model's name and recipe, for people and tools."""
    selects = [
        f"SELECT m.base, m.id AS model, '{recipe}' AS recipe, v.norm, v.vector::FLOAT[] AS vector "
        f"FROM {table} v JOIN models m ON m.key = v.model"
        for recipe, table in tables(connection)
    ]
    connection.execute(f"CREATE OR REPLACE VIEW fingerprints AS {' UNION ALL '.join(selects)}")
