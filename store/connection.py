"""A DuckDB file opened as a catalog: locks, damage, strangers' files, migrations."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import duckdb

from ..errors import (
    EmptyCatalog,
    ForeignDatabase,
    NewerSchema,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
)

log = logging.getLogger(__name__)

SCHEMA_VERSION = 3
STORAGE_VERSION = "v1.5.0"
"""Files that DuckDB 1.5 and every later one can open."""

CACHE_SHARE = "50%"
"""Of the memory; a search index of a large family stands beside DuckDB's pages."""


def connect(path: Path, *, read_only: bool, create: bool) -> duckdb.DuckDBPyConnection:
    """A connection whose default database is the catalog at `path`, at this schema version.

    Raises:
        EmptyCatalog: there is no file and none is to be made.
        StoreError: one of its subclasses, naming the file.
    """
    is_new = not path.exists()
    if is_new:
        if not create:
            raise EmptyCatalog(f"{path}: no catalog there yet; `deltadex index` makes one")
        _make_folder(path)
        read_only = False
    connection = duckdb.connect(":memory:", config={"memory_limit": CACHE_SHARE})
    quoted = str(path).replace("'", "''")
    options = (
        f" (STORAGE_VERSION '{STORAGE_VERSION}')" if is_new else " (READ_ONLY)" if read_only else ""
    )
    try:
        with translated(path):
            connection.execute(f"ATTACH '{quoted}' AS catalog{options}")
            connection.execute("USE catalog")
            _migrate(connection, path, read_only=read_only)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """All of the block's changes, or none."""
    with translated(path):
        connection.execute("BEGIN TRANSACTION")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            # a full disk or a fatal error has ended the transaction already
            try:
                connection.execute("ROLLBACK")
            except duckdb.Error:
                log.debug("nothing to roll back")
            raise


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
    if (
        "conflicting lock" in lowered
        or "could not set lock" in lowered
        or "being used by" in lowered
    ):
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
    if "not a valid duckdb" in lowered or "corrupt" in lowered or "checksum" in lowered:
        return StoreDamaged(f"{path}: not a readable catalog ({line}); nothing was changed in it")
    if "version number" in lowered or "serialization" in lowered or "wal" in lowered:
        return StoreDamaged(f"{path}: cannot be opened by DuckDB {duckdb.__version__}: {line}")
    return StoreError(f"{path}: {line}")


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise StoreFull(f"{path.parent}: cannot be made: {err.strerror}") from err


def _migrate(connection: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool) -> None:
    version = _schema_version(connection, path)
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{path}: schema version {version}, this deltadex knows up to {SCHEMA_VERSION}; "
            "upgrade it"
        )
    if version == 0 and read_only:
        raise EmptyCatalog(f"{path}: an empty catalog; `deltadex index` fills it")
    if read_only and version < SCHEMA_VERSION:
        raise StoreError(
            f"{path}: schema version {version}; any writing command brings it up to date"
        )
    for number in range(version + 1, SCHEMA_VERSION + 1):
        script = (files(__package__) / "migrations" / f"{number:04}.sql").read_text("utf-8")
        with transaction(connection, path):
            connection.execute(script)
            connection.execute("UPDATE meta SET schema_version = ?", [number])


def _schema_version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    tables = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'catalog'"
    ).fetchall()
    if not tables:
        return 0
    if ("meta",) in tables:
        try:
            found = connection.execute(
                "SELECT schema_version FROM meta WHERE application = 'deltadex'"
            ).fetchall()
        except duckdb.Error:
            found = []
        if found:
            return int(found[0][0])
    raise ForeignDatabase(
        f"{path}: a DuckDB database, but not a deltadex catalog; choose another --db"
    )
