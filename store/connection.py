"""A DuckDB file opened as a catalog: locks, damage, strangers' files, migrations."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import duckdb

from ..errors import EmptyCatalog, HolderLost, StoreDamaged, StoreError, StoreFull, StoreLocked
from .schema import check_schema, migrate
from .sharing import Access, Connection, Ledger, Own

T = TypeVar("T")

NEW = "STORAGE_VERSION 'v1.5.0'"
"""Files that DuckDB 1.5 and every later one can open."""

WRITING = "ROW_GROUP_SIZE 2048"
"""DuckDB writes the last group of a growing table again and again; as many as it takes by itself
are two gigabytes of vectors."""

NOT_FOR_SKETCHES = "dict_fsst,fsst,zstd"
"""Compression of text and bytes. To pack sketches saves a tenth of the file, for forty times the
time of writing it."""

_HELD = ("conflicting lock", "could not set lock", "being used by", "unique file handle conflict")

CACHE_SHARE = "50%"
"""Of the memory; a search index of a large family stands beside DuckDB's pages."""


def connect(path: Path, *, read_only: bool, create: bool, cache: str = CACHE_SHARE) -> Access:
    """Access to the catalog at `path`, at this schema version: held, or through its holder.

    Raises:
        EmptyCatalog: there is no file and none is to be made.
        StoreError: one of its subclasses, naming the file.
    """
    if not _is_there(path):
        if not create:
            raise EmptyCatalog(f"{path}: no catalog there yet; `deltadex index` makes one")
        _make_folder(path)
        read_only = False
    return Access(
        path,
        lambda: _open_file(path, read_only=read_only, cache=cache),
        lambda guest: check_schema(guest, path),
        shares=not read_only,
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as err:
        raise StoreError(f"{path}: {(err.strerror or str(err)).lower()}") from err


def _open_file(path: Path, *, read_only: bool, cache: str) -> Own:
    """A session whose default database is the file."""
    connection = duckdb.connect(":memory:", config={"memory_limit": cache})
    connection.execute(f"SET disabled_compression_methods = '{NOT_FOR_SKETCHES}'")
    own = Own(connection, Ledger(), cache)
    quoted = str(path).replace("'", "''")
    options = "READ_ONLY" if read_only else WRITING if path.exists() else f"{WRITING}, {NEW}"
    try:
        with translated(path):
            own.execute(f"ATTACH '{quoted}' AS catalog ({options})")
            own.execute("USE catalog")
            migrate(own, path, read_only=read_only)
    except BaseException:
        own.close()
        raise
    return own


def write(connection: Connection, path: Path, change: Callable[[Connection], T]) -> T:
    """Make all of a change, or none; once more where the file's holder ended in the middle.

    Returns:
        What the change gives.

    Raises:
        StoreError: it was not made.
    """
    with translated(path):
        try:
            return _transact(connection, change)
        except HolderLost:
            return _transact(connection, change)


def _transact(connection: Connection, change: Callable[[Connection], T]) -> T:
    with connection.transaction():
        return change(connection)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """DuckDB's errors about the file, as ours."""
    try:
        yield
    except duckdb.Error as err:
        raise _as_store_error(err, path) from err


def _as_store_error(err: duckdb.Error, path: Path) -> StoreError:
    text = str(err)
    line = text.splitlines()[0][:300]
    lowered = text.lower()
    if any(phrase in lowered for phrase in _HELD):
        holder = re.search(r"held in (.+?) \(PID (\d+)\)", text)
        who = f"process {holder[2]} ({Path(holder[1]).name})" if holder else "another process"
        return StoreLocked(f"{path}: {who} holds this catalog; try again when it has ended")
    if (
        "no space left" in lowered
        or "disk is full" in lowered
        or errno.errorcode[errno.ENOSPC] in text
    ):
        return StoreFull(f"{path}: no space left on the disk; what was recorded before stays")
    if "permission denied" in lowered or "read-only file system" in lowered:
        return StoreFull(f"{path}: the system refuses to write there")
    damage = ("not a valid duckdb", "corrupt", "checksum", "not read enough bytes")
    if any(phrase in lowered for phrase in damage):
        return StoreDamaged(f"{path}: not a readable catalog ({line}); nothing was changed in it")
    if "version number" in lowered or "serialization" in lowered or "wal" in lowered:
        return StoreDamaged(f"{path}: cannot be opened by DuckDB {duckdb.__version__}: {line}")
    return StoreError(f"{path}: {line}")


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise StoreFull(f"{path.parent}: cannot be made: {err.strerror}") from err
