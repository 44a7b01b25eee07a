"""Models' keys. What is derived from a catalog knows models by them: one whose vectors or slots
change gets a new key."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ..errors import StoreError
from .sharing import Connection
from .vectors import tables


def new_keys(connection: Connection, n: int) -> list[int]:
    """Keys that no model has had; rising."""
    found = connection.execute(f"SELECT nextval('model_keys') FROM range({int(n)})")
    return sorted(int(key) for (key,) in found)


def require_model(connection: Connection, key: int) -> None:
    """See that there is a model of that key.

    Raises:
        StoreError: it was removed, or indexed again.
    """
    if not connection.execute("SELECT 1 FROM models WHERE key = ?", [key]):
        raise StoreError("the model was removed or indexed again meanwhile")


def move_models(connection: Connection, keys: Mapping[int, int]) -> None:
    """Give models and all that belongs to them other keys: old → new."""
    if not keys:
        return
    with connection.registered("moved_keys", key_pairs("old", "new", keys)):
        connection.execute("UPDATE models SET key = k.new FROM moved_keys k WHERE key = k.old")
        for table in ("slots", "studies", *(table for _, table in tables(connection))):
            connection.execute(
                f"UPDATE {table} SET model = k.new FROM moved_keys k WHERE model = k.old"
            )


def key_pairs(first: str, second: str, keys: Mapping[int, int]) -> pa.Table:
    """Keys and what they stand for, as a table of two columns of these names."""
    return pa.table(
        {
            first: pa.array(list(keys), pa.int64()),
            second: pa.array(list(keys.values()), pa.int64()),
        }
    )
