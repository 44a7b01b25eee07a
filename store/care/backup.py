"""Copies of a catalog: a backup, tables and vectors for other tools; a hash of the contents."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import RequestError, StoreError, StoreFull
from ...records import Recipe
from ...results import JsonRecord, size
from .. import files
from ..catalog import Catalog
from ..opening import NEW, WRITING
from ..session import Session, literal
from ..tables.recipes import tables

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResult(JsonRecord):
    """The result of a backup."""

    written: str
    models: int
    bytes: int
    sha256: str
    seconds: float


def back_up(catalog: Catalog, target: Path, *, replace: bool = False) -> BackupResult:
    """Copy the catalog of one moment into a file, which is a catalog itself.

    Other processes read meanwhile. The file appears whole or not at all. What a killed backup to
    this target left is removed.
    Models recorded in the copy get keys that the catalog will not give: files derived from one
    are not mistaken for the other's.

    Args:
        replace: Replace an existing file.

    Raises:
        RequestError: the target is there, is the catalog itself, or has no folder.
        StoreError: it cannot be written, or is a symbolic link.
    """
    target, started = target.absolute(), time.perf_counter()
    _check_target(catalog.path, target, replace)
    for leftover in files.abandoned(target.parent, target.name):
        leftover.unlink(missing_ok=True)
    with files.atomic_file(target) as temporary:
        models, sha256 = _copied(catalog, target, temporary), files.file_sha256(temporary)
    return _made(target, models, sha256, started)


def receive_backup(
    target: Path, receive: Callable[[Path], str], *, replace: bool = False
) -> BackupResult:
    """Write a backup that was made elsewhere; as `back_up`.

    Args:
        receive: Writes the file, and returns the SHA-256 that was sent with it, in hexadecimal.

    Raises:
        RequestError: as `back_up`.
        StoreError: the file cannot be written, is not what was sent, or is no catalog.
    """
    target, started = target.absolute(), time.perf_counter()
    _check_target(None, target, replace)
    with files.atomic_file(target) as temporary:
        wanted = receive(temporary)
        if (sha256 := files.file_sha256(temporary)) != wanted:
            raise StoreError(f"{target}: what came is not what was sent (SHA-256 differs)")
        with Catalog.open(temporary, read_only=True, create=False, repairs=False) as received:
            models = sum(int(base["models"]) for base in received.stats()["bases"])
    return _made(target, models, sha256, started)


def _made(target: Path, models: int, sha256: str, started: float) -> BackupResult:
    return BackupResult(
        written=str(target),
        models=models,
        bytes=target.stat().st_size,
        sha256=sha256,
        seconds=time.perf_counter() - started,
    )


def _check_target(catalog: Path | None, target: Path, replace: bool) -> None:
    if not target.parent.is_dir():
        raise RequestError(f"{target.parent}: no such folder; make it first")
    if target.is_dir():
        raise RequestError(f"{target}: a folder; name the file to be written in it")
    if catalog is not None and target.exists() and target.samefile(catalog):
        raise RequestError(f"{target}: this is the catalog itself; choose another file")
    files.refuse_special_files(target)
    if target.exists() and not replace:
        raise RequestError(f"{target}: is there already; --force replaces it")


def _copied(catalog: Catalog, target: Path, temporary: Path) -> int:
    """How many models were copied."""
    name = f"backup_{os.getpid()}_{secrets.token_hex(4)}"
    with closing(Session(catalog.access, about=target)) as session, session.turn():
        _check_space(session, target)
        session.execute(f"ATTACH {literal(temporary)} AS {name} ({WRITING}, {NEW})")
        try:
            models = _fill(session, name)
            session.execute(f"DETACH {name}")
        except BaseException:
            for statement in ("ROLLBACK", f"DETACH DATABASE IF EXISTS {name}"):
                with suppress(StoreError):
                    session.execute(statement)
            raise
        finally:
            files.beside(temporary, ".wal").unlink(missing_ok=True)
    return models


def _check_space(session: Session, target: Path) -> None:
    """Refuse before the disk is full: the catalog may be on the same disk."""
    [(needed,)] = session.execute(
        "SELECT used_blocks * block_size FROM pragma_database_size() "
        "WHERE database_name = 'catalog'"
    )
    if (free := shutil.disk_usage(target.parent).free) < needed:
        raise StoreFull(f"{target}: {size(free)} are free there, the catalog takes {size(needed)}")


def _fill(session: Session, name: str) -> int:
    """Copy everything in one transaction; how many models."""
    session.execute("BEGIN TRANSACTION")
    session.execute(f"COPY FROM DATABASE catalog TO {name}")
    models, last = session.execute(f"SELECT count(*), max(key) FROM {name}.models")[0]
    # every backup's keys begin above those of all earlier ones, and of the catalog's next years
    next_key = max(time.time_ns() // 1000, int(last or 0) + 1)
    session.execute(f"CREATE OR REPLACE SEQUENCE {name}.model_keys START {next_key}")
    # the commit log beside the catalog is not of this file
    session.execute(f"UPDATE {name}.meta SET catalog = CAST(uuid() AS VARCHAR)")
    session.execute("COMMIT")
    return int(models)


OTHER_FILES = {".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".safetensors", ".duckdb"}
"""Endings that nobody gives a folder."""

_OF_MODELS = (
    "SELECT m.base, m.id AS model, t.* EXCLUDE ({}) FROM {} t JOIN models m ON m.key = t.model"
)

_TABLES = {
    # `id` as before, for readers of older exports
    "models": "SELECT id AS model, * FROM models ORDER BY base, id",
    "slots": _OF_MODELS.format("model, sketch", "slots") + " ORDER BY ALL",
    "linear_sketches": _OF_MODELS.format("model", "linear_sketches") + " ORDER BY ALL",
    "footprints": _OF_MODELS.format("model, tokens", "footprints") + " ORDER BY ALL",
    "data_sets": "SELECT * FROM data_sets ORDER BY base, name",
    "data_sketches": "SELECT * FROM data_sketches ORDER BY ALL",
    "base_signatures": "SELECT * EXCLUDE (runs, invariants) FROM base_signatures ORDER BY base",
    "fingerprints": "SELECT * FROM fingerprints ORDER BY base, model, recipe",
}


def write_parquet(catalog: Catalog, target: Path) -> list[Path]:
    """Each table as `target/NAME.parquet`; of a target that is named as a file, the models alone;
    `RequestError` where that is of another kind."""
    ending = target.suffix.lower()
    if ending in OTHER_FILES and not target.is_dir():
        raise RequestError(
            f"{target}: tables are Parquet; name a folder for all of them, or a file that ends in "
            ".parquet for the models alone"
            + ("; vectors: --format safetensors" if ending == ".safetensors" else "")
        )
    is_file = ending == ".parquet" and not target.is_dir()
    folder = target.parent if is_file else target
    files.make_folder(folder)
    folder, written = folder.resolve(), []
    with closing(Session(catalog.access, about=folder)) as session:
        views = {row[0] for row in session.execute("SELECT view_name FROM duckdb_views()")}
        for name, sql in _TABLES.items():
            if (name == "fingerprints" and name not in views) or (is_file and name != "models"):
                continue
            file = folder / (target.name if is_file else f"{name}.parquet")
            with files.user_file(file) as temporary:
                options = "FORMAT parquet, COMPRESSION zstd"
                session.execute(f"COPY ({sql}) TO {literal(temporary)} ({options})")
            written.append(file)
    return written


def write_tables(target: Path, tables: Iterable[pa.Table]) -> Path:
    """Tables of the same columns, at least one, as one Parquet file; a row group each."""
    from pyarrow import parquet

    remaining = iter(tables)
    first = next(remaining)
    with (
        files.user_file(target) as temporary,
        parquet.ParquetWriter(temporary, first.schema, compression="zstd") as writer,
    ):
        writer.write_table(first)
        for table in remaining:
            writer.write_table(table)
    return target


def write_safetensors(catalog: Catalog, target: Path, base: str, recipe: Recipe) -> Path:
    """The vectors of a family under a recipe (models, dim), float32; base, recipe and ids are
    metadata."""
    from safetensors.numpy import save

    ids, vectors = catalog.look(lambda: catalog.family(base, recipe).by_id())
    metadata = {"base": base, "recipe": recipe.id, "ids": json.dumps(ids)}
    files.write_user_file(target, save({"vectors": vectors}, metadata))
    return target


OF_A_RUN = ("key", "indexed_at", "seconds", "bytes_read")
"""Columns of `models` that tell of the run and not of the model."""

_AT_ONCE = 512


def content_sha256(catalog: Catalog) -> str:
    """SHA-256 over every model's row, vectors, slots and linear sketches, ordered by base and id.

    Equal for two catalogs whose models have the same files and labels under the same recipes, on
    the same processor: in whatever order, by however many processes they were read.
    """
    digest = hashlib.sha256()
    with catalog.snapshot():
        keys = catalog.column("SELECT key FROM models ORDER BY base, id")
        for start in range(0, len(keys), _AT_ONCE):
            for sql in _statements(catalog):
                for row in catalog.execute(sql, [keys[start : start + _AT_ONCE]]):
                    digest.update(repr(row).encode())
    return digest.hexdigest()


def _statements(session: Session) -> Iterator[str]:
    these = "m.key IN (SELECT unnest(?::BIGINT[])) ORDER BY ALL"
    yield f"SELECT m.base, m.id, m.* EXCLUDE ({', '.join(OF_A_RUN)}) FROM models m WHERE {these}"
    for id, table in tables(session):
        yield (
            f"SELECT m.base, m.id, '{id}', t.norm, md5(CAST(t.vector AS VARCHAR)) "
            f"FROM {table} t JOIN models m ON m.key = t.model WHERE {these}"
        )
    for table in ("slots", "linear_sketches", "footprints"):
        yield f"{_OF_MODELS.format('model', table)} WHERE {these}"
