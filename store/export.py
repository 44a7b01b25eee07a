"""The catalog's contents for other tools; files appear whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from ..arrays import Float32
from ..errors import StoreFull
from ..records import Recipe
from .sharing import Connection

_TABLES = {
    # `id` as before, for readers of older exports
    "models": "SELECT id AS model, * FROM models ORDER BY base, id",
    "slots": (
        "SELECT m.base, m.id AS model, s.* EXCLUDE (model, sketch) "
        "FROM slots s JOIN models m ON m.key = s.model ORDER BY ALL"
    ),
    "fingerprints": "SELECT * FROM fingerprints ORDER BY base, model, recipe",
}


def write_parquet(connection: Connection, folder: Path) -> list[Path]:
    """Each table as `folder/NAME.parquet`."""
    views = {row[0] for row in connection.execute("SELECT view_name FROM duckdb_views()")}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise StoreFull(f"{folder}: cannot be made: {err.strerror}") from err
    # whoever holds the file writes, maybe from another folder
    folder = folder.resolve()
    written = []
    for name, sql in _TABLES.items():
        if name == "fingerprints" and name not in views:
            continue
        target = folder / f"{name}.parquet"
        temporary = target.with_suffix(".partial")
        quoted = str(temporary).replace("'", "''")
        connection.execute(f"COPY ({sql}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
        os.replace(temporary, target)
        written.append(target)
    return written


def write_safetensors(
    target: Path,
    base: str,
    recipe: Recipe,
    ids: Sequence[str],
    vectors: Float32[np.ndarray, "models dim"],
) -> Path:
    """`vectors` (models, dim) float32, with base, recipe and ids as metadata."""
    metadata = {"base": base, "recipe": recipe.id, "ids": json.dumps(list(ids))}
    write_whole(target, save({"vectors": vectors}, metadata))
    return target


def write_whole(target: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one.

    Raises:
        StoreFull: the system refuses.
    """
    with whole(target) as temporary:
        temporary.write_bytes(data)


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A file to write that takes the place of `target` once it is complete and on the disk.

    Raises:
        StoreFull: the system refuses.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as err:
        raise StoreFull(f"{target}: {err.strerror}") from err
    finally:
        temporary.unlink(missing_ok=True)
