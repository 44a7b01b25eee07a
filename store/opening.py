"""Opening a catalog file: made, brought to this schema version, held or joined."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from typing import Literal

import duckdb

from ..errors import (
    EmptyCatalog,
    ForeignDatabase,
    NewerSchema,
    OlderSchema,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
)
from .files import atomic_file, make_folder, refuse_links
from .recovery import Seen, log_path, repair
from .session import Access, Session, literal, translated
from .sharing import CommitLog, HolderFile, Ledger, LocalSession, Losses, RawSession, Unwritten

SCHEMA_VERSION = 7


def migrate(own: LocalSession, path: Path, *, read_only: bool) -> None:
    """Bring a file that this process holds up to this version, in one transaction; `OlderSchema`
    where it is opened read-only."""
    version = schema_version(own, path)
    if version == 0 and read_only:
        raise EmptyCatalog(f"{path}: an empty catalog; `deltadex index` fills it")
    if read_only and version < SCHEMA_VERSION:
        raise OlderSchema(
            f"{path}: schema version {version}, this deltadex has {SCHEMA_VERSION}; "
            "`deltadex doctor` brings a file that may be written up to date"
        )
    if version == SCHEMA_VERSION:
        return
    own.begin()
    try:
        for script in migrations()[version:] if version else [schema()]:
            own.execute(script)
        own.execute("UPDATE meta SET schema_version = ?", [SCHEMA_VERSION])
        own.commit()
    except BaseException:
        own.rollback()
        raise


def check_schema(guest: RawSession, note: HolderFile, path: Path) -> None:
    """Refuse a catalog of another version that another process holds: a guest migrates nothing."""
    if schema_version(guest, path) < SCHEMA_VERSION:
        raise StoreLocked(
            f"{path}: process {note.pid}, of an older deltadex, holds this catalog; end it first"
        )


def schema() -> str:
    """The script that makes an empty file a catalog of this version; as all `migrations` do."""
    return (files(__package__) / "schema.sql").read_text("utf-8")


def migrations() -> list[str]:
    """A script a version, each from the one before."""
    folder = files(__package__) / "migrations"
    numbers = range(1, SCHEMA_VERSION + 1)
    return [(folder / f"{number:04}.sql").read_text("utf-8") for number in numbers]


def schema_version(session: RawSession, path: Path) -> int:
    """The version of an open file; 0 for a database that holds nothing.

    Raises:
        NewerSchema: of a later deltadex.
        ForeignDatabase: it is not a catalog.
    """
    with suppress(duckdb.CatalogException, duckdb.BinderException):
        sql = "SELECT schema_version FROM meta WHERE application = 'deltadex'"
        for (version,) in session.execute(sql):
            if version > SCHEMA_VERSION:
                raise NewerSchema(
                    f"{path}: schema version {version}, this deltadex knows up to "
                    f"{SCHEMA_VERSION}; upgrade it"
                )
            return int(version)
    sql = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'catalog'"
    if session.execute(sql) == [(0,)]:
        return 0
    raise ForeignDatabase(
        f"{path}: a DuckDB database, but not a deltadex catalog; choose another --db"
    )


log = logging.getLogger(__name__)

Create = bool | Literal["late"]

NEW = "STORAGE_VERSION 'v1.5.0'"
"""Files that DuckDB 1.5 and every later one can open."""

WRITING = "ROW_GROUP_SIZE 2048"
"""DuckDB rewrites the last group of a growing table; its default size is two gigabytes of
vectors."""

NO_EXTENSIONS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
"""A file of another kind must not make DuckDB download what reads it."""

OF_DUCKDB = "TYPE duckdb"
"""Of an attached file: DuckDB does not look what else it may be."""

NOTHING_ELSE = "SET enable_external_access = false"
"""From now on DuckDB opens no other file and no address."""

LOGS_EVERYTHING = "auto_checkpoint_skip_wal_threshold = 9223372036854775807"
"""A large commit is logged before its checkpoint begins too: the log says that one was going on
(`recovery.py`)."""

NOT_FOR_SKETCHES = "dict_fsst,fsst,zstd"
"""Compression of text and bytes. To pack sketches saves a tenth of the file, for forty times the
time of writing it."""

CACHE_SHARE = "50%"
"""Of the memory; a search index of a large family needs the other half."""


def connect(
    path: Path,
    *,
    read_only: bool,
    create: Create,
    cache: str | None = None,
    migrates: bool = True,
) -> Access:
    """Access to the catalog at `path`, at this schema version: held, or through its holder.

    A new catalog appears under its name once it is complete.

    Args:
        create: Whether a file that is not there is made; `late` makes it with the first change.
        migrates: Bring an older file up to date, and repair what a power loss left, also for one
            who only reads.

    Raises:
        EmptyCatalog: there is no file and none is to be made.
        StoreError: one of its subclasses, naming the file.
    """
    if not is_file(path):
        if not create:
            raise EmptyCatalog(f"{path}: no catalog there yet; `deltadex index` makes one")
        if create != "late":
            _make(path.resolve())
        read_only = False

    def open_own() -> LocalSession:
        if create == "late" and not is_file(path):
            return _unwritten(path)
        own = _open_up_to_date(
            path, read_only=read_only, cache=cache or CACHE_SHARE, migrates=migrates
        )
        try:
            with translated(path):
                _warn_of(find_losses(own, path) if read_only else own.follow(path), path)
        except BaseException:
            own.close()
            raise
        return own

    def check_guest(guest: RawSession, note: HolderFile) -> None:
        check_schema(guest, note, path)
        _warn_of(find_losses(guest, path), path)

    return Access(path, open_own, check_guest, shares=not read_only)


def memory_connection(**settings: str) -> duckdb.DuckDBPyConnection:
    """DuckDB without a file, which loads no extension by itself, and prints nothing."""
    config: dict[str, str | bool | int | float | list[str]] = {**NO_EXTENSIONS, **settings}
    connection = duckdb.connect(":memory:", config=config)
    # on where Python has no main file, as in a notebook; refused as one of the settings above
    connection.execute("SET enable_progress_bar = false")
    return connection


def find_losses(session: RawSession | Session, path: Path) -> Losses:
    """Commits that were reported and are not in the catalog."""
    noted = CommitLog(path).read()
    # a commit is in the catalog before it is in its log
    [(catalog, commits)] = session.execute("SELECT catalog, commits FROM meta")
    return noted.losses_of(str(catalog), int(commits))


def _warn_of(losses: Losses, path: Path) -> None:
    if losses:
        log.warning("%s: %s; `deltadex doctor` lists them", path, losses)


def is_file(path: Path) -> bool:
    """Whether a file is there; `StoreError` for anything else, for which DuckDB may wait for ever,
    and for symbolic links there or beside it."""
    refuse_links(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as err:
        raise StoreError(f"{path}: {(err.strerror or str(err)).lower()}") from err
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise StoreError(f"{path}: {what}, not a file; a catalog is a single file")
    return True


def _unwritten(path: Path) -> Unwritten:
    """A session on a catalog that is still to be made; `StoreFull` where nothing can be."""
    target = path.resolve()
    folder = next(place for place in target.parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise StoreFull(f"{path}: cannot be made: {folder} is no folder that can be written to")
    connection = memory_connection()
    connection.execute("ATTACH ':memory:' AS catalog")
    connection.execute("USE catalog")
    migrate(LocalSession(connection, Ledger()), path, read_only=False)
    return Unwritten(connection, lambda: _make(target), lambda: is_file(path))


def _make(path: Path) -> None:
    """An empty catalog at `path`, unless another process has made one meanwhile."""
    make_folder(path.parent)
    options = f"{OF_DUCKDB}, {WRITING}, {NEW}"
    with atomic_file(path, replaces=False) as temporary, translated(path):
        try:
            with closing(_attached(temporary, options, CACHE_SHARE)) as own:
                migrate(own, path, read_only=False)
                own.execute("CHECKPOINT")
        finally:
            log_path(temporary).unlink(missing_ok=True)


def _open_up_to_date(path: Path, *, read_only: bool, cache: str, migrates: bool) -> LocalSession:
    """As `_open_file`; a reader of an older file that may be written migrates it first."""
    try:
        return _open_file(path, read_only=read_only, cache=cache, repairs=migrates)
    except OlderSchema:
        if not migrates or not os.access(path, os.W_OK):
            raise
    _open_file(path, read_only=False, cache=cache).close()
    log.info("%s: brought to schema version %d", path, SCHEMA_VERSION)
    return _open_file(path, read_only=read_only, cache=cache)


def _open_file(path: Path, *, read_only: bool, cache: str, repairs: bool = True) -> LocalSession:
    """A session on an existing file, at this schema version; what a power loss left is repaired,
    where that is wanted and the file may be written."""
    seen = Seen.of(path)
    try:
        with translated(path):
            own = _attached(path, f"{OF_DUCKDB}, {'READ_ONLY' if read_only else WRITING}", cache)
            try:
                if seen.has_begun_checkpoint:
                    _read_metadata(own)
                migrate(own, path, read_only=read_only)
            except BaseException:
                own.close()
                raise
    except StoreDamaged as err:
        if repairs and repair(path, str(err.__cause__), seen):
            return _open_file(path, read_only=read_only, cache=cache)
        raise
    return own


def _read_metadata(own: LocalSession) -> None:
    """Read every block of metadata: DuckDB reads most of them when a query needs them."""
    sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'catalog'"
    for (table,) in own.execute(sql):
        own.execute("SELECT count(*) FROM pragma_storage_info(?)", [table])


def _attached(path: Path, options: str, cache: str) -> LocalSession:
    """A session whose default database is the file."""
    connection = memory_connection(memory_limit=cache)
    with suppress(duckdb.CatalogException):  # unknown to DuckDB 1.5
        connection.execute(f"SET {LOGS_EVERYTHING}")
    own = LocalSession(connection, Ledger(log_path(path)), cache)
    try:
        with translated(path):
            connection.execute(f"SET disabled_compression_methods = '{NOT_FOR_SKETCHES}'")
            own.execute(f"ATTACH {literal(path)} AS catalog ({options})")
            own.execute("USE catalog")
    except BaseException:
        own.close()
        raise
    return own
