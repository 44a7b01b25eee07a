"""Opening a catalog file, or making it.

DuckDB syncs its log before it reports a commit, and refuses a log in which the power was lost
between two pages. Such a log is set aside under another name, and the catalog opens as it was at
its last checkpoint; the commit log says which models that costs.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from glob import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import duckdb

from ..errors import EmptyCatalog, ForeignDatabase, OtherSchema, StoreDamaged, StoreError, StoreFull
from .commit_log import CommitLog, Losses
from .files import atomic_file, beside, make_folder, refuse_special_files, sync_folder
from .holding import Access, OpenFile, run, signals_raised
from .session import literal, translated

DuckDB = duckdb.DuckDBPyConnection

SCHEMA_VERSION = 9
"""A catalog of another one is not opened."""


def ensure_schema(connection: DuckDB, path: Path, *, read_only: bool) -> None:
    """Make a file that is empty a catalog, in one transaction."""
    if has_schema(connection, path):
        return
    if read_only:
        raise EmptyCatalog(f"{path}: an empty catalog; `deltadex index` fills it")
    run(connection, "BEGIN TRANSACTION")
    try:
        run(connection, schema())
        run(connection, "UPDATE meta SET schema_version = ?", [SCHEMA_VERSION])
        run(connection, "COMMIT")
    except BaseException:
        with suppress(duckdb.Error):
            run(connection, "ROLLBACK")
        raise


def schema() -> str:
    """What makes an empty file a catalog."""
    return (files(__package__) / "schema.sql").read_text("utf-8")


def has_schema(connection: DuckDB, path: Path) -> bool:
    """Whether an open file is a catalog; False for a database that holds nothing.

    Raises:
        OtherSchema: of another version of deltadex.
        ForeignDatabase: it is not a catalog.
    """
    with suppress(duckdb.CatalogException, duckdb.BinderException):
        sql = "SELECT schema_version FROM meta WHERE application = 'deltadex'"
        for (version,) in run(connection, sql):
            if version != SCHEMA_VERSION:
                raise OtherSchema(
                    f"{path}: schema version {version}, this deltadex has {SCHEMA_VERSION}: "
                    "index again into another --db, or use the deltadex that made it"
                )
            return True
    sql = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'catalog'"
    if run(connection, sql) == [(0,)]:
        return False
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

READING = "READ_ONLY"

OF_DUCKDB = "TYPE duckdb"
"""Of an attached file: DuckDB does not look what else it may be."""

NOT_FOR_SKETCHES = "dict_fsst,fsst,zstd"
"""Compression of text and bytes. To pack sketches saves a tenth of the file, for forty times the
time of writing it."""

CACHE_SHARE = "50%"
"""Of the memory; a search index of a large family needs the other half."""


def connect(
    path: Path, *, read_only: bool, create: Create, cache: str | None = None, repairs: bool = True
) -> Access:
    """Access to the catalog at `path`; of this process, where it has it open already.

    A new catalog appears under its name once it is complete.

    Args:
        create: Whether a file that is not there is made; `late` makes it with the first change.
        repairs: Set a log aside that DuckDB refuses, also for one who only reads.

    Raises:
        EmptyCatalog: there is no file and none is to be made.
        StoreError: one of its subclasses, naming the file.
    """
    if not is_file(path):
        if not create:
            raise EmptyCatalog(f"{path}: no catalog there yet; `deltadex index` makes one")
        if create != "late":
            _make(path.resolve())
    opening = _Opening(path, cache or CACHE_SHARE, makes=create == "late", repairs=repairs)
    return Access.shared(path, opening.open, writes=not read_only and is_file(path))


class _Opening:
    """How the file of one catalog is opened, each time that this process needs it."""

    def __init__(self, path: Path, cache: str, *, makes: bool, repairs: bool) -> None:
        self._path, self._cache, self._makes, self._repairs = path.absolute(), cache, makes, repairs
        self._told = Losses()

    def open(self, writes: bool) -> OpenFile:
        """The file; an empty catalog in its place, where it is made with the first change."""
        path = self._path
        if self._makes and not is_file(path):
            if not writes:
                return _unwritten(path)
            _make(path.resolve())
        file = _open_file(path, writes=writes, cache=self._cache, repairs=self._repairs)
        try:
            with translated(path):
                self._follow(file, writes=writes)
        except BaseException:
            file.close()
            raise
        return file

    def _follow(self, file: OpenFile, *, writes: bool) -> None:
        """Note every commit from now on; say once what was lost before."""
        [(catalog, commits)] = run(file.connection, "SELECT catalog, commits FROM meta")
        commit_log = CommitLog(self._path)
        if writes:
            losses = commit_log.begin(str(catalog), int(commits))
            file.note_commits(self._path, commit_log)
        else:
            losses = commit_log.read().losses_of(str(catalog), int(commits))
        if losses and losses != self._told:
            log.warning("%s: %s; `deltadex doctor` lists them", self._path, losses)
        self._told = losses


def memory_connection(**settings: str) -> duckdb.DuckDBPyConnection:
    """DuckDB without a file, which loads no extension by itself, and prints nothing."""
    config: dict[str, str | bool | int | float | list[str]] = {**NO_EXTENSIONS, **settings}
    connection = duckdb.connect(":memory:", config=config)
    is_on = "SELECT current_setting('enable_progress_bar')"
    # on where Python has no main file; refused as one of the settings above, and in a notebook
    # without ipywidgets, where it is off
    with signals_raised():
        if connection.execute(is_on).fetchone() == (True,):
            connection.execute("SET enable_progress_bar = false")
    return connection


def is_file(path: Path) -> bool:
    """Whether a file is there; `StoreError` for anything else, for which DuckDB may wait for ever,
    and for symbolic links there or beside it."""
    if not path.name:
        raise StoreError(f"{path}: a folder, not a file; a catalog is a single file")
    refuse_special_files(path)
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


def _unwritten(path: Path) -> OpenFile:
    """An empty catalog in place of a file that is still to be made; `StoreFull` where it cannot
    be."""
    target = path.resolve()
    folder = next(place for place in target.parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise StoreFull(f"{path}: cannot be made: {folder} is no folder that can be written to")
    connection = memory_connection()
    run(connection, "ATTACH ':memory:' AS catalog")
    run(connection, "USE catalog")
    ensure_schema(connection, path, read_only=False)
    return OpenFile(connection, CACHE_SHARE, is_writable=False, stands_for=target)


def _make(path: Path) -> None:
    """An empty catalog at `path`, unless another process has made one meanwhile."""
    make_folder(path.parent)
    options = f"{WRITING}, {NEW}"
    with atomic_file(path, replaces=False) as temporary, translated(path):
        try:
            with closing(_attached(temporary, path, options, CACHE_SHARE)) as connection:
                run(connection, "CHECKPOINT")
        finally:
            beside(temporary, ".wal").unlink(missing_ok=True)


def _open_file(path: Path, *, writes: bool, cache: str, repairs: bool) -> OpenFile:
    """An existing file; a log that DuckDB refuses is set aside, where that is wanted and the file
    opens without it."""
    seen = _state(beside(path, ".wal"))
    try:
        return _opened(path, writes=writes, cache=cache)
    except StoreDamaged:
        aside = _set_aside(path, seen) if repairs else None
        if aside is None:
            raise
    try:
        file = _opened(path, writes=writes, cache=cache, whole=True)
    except StoreDamaged:
        # the file is damaged, too
        with suppress(OSError):
            os.link(aside, beside(path, ".wal"))
            aside.unlink()
        raise
    line = "%s: DuckDB refuses its log: opened as of its last checkpoint; the log is %s now"
    log.warning(line, path, aside.name)
    return file


def _opened(path: Path, *, writes: bool, cache: str, whole: bool = False) -> OpenFile:
    options = WRITING if writes else READING
    return OpenFile(_attached(path, path, options, cache, whole=whole), cache, is_writable=writes)


def read_metadata(execute: Callable[..., list[tuple[Any, ...]]]) -> None:
    """Read every block of metadata: DuckDB reads most of them when a query needs them."""
    sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'catalog'"
    for (table,) in execute(sql):
        execute("SELECT count(*) FROM pragma_storage_info(?)", [table])


def _attached(path: Path, about: Path, options: str, cache: str, *, whole: bool = False) -> DuckDB:
    """A connection whose default database is the file, a catalog that errors name so; `whole`: all
    its metadata are read."""
    connection = memory_connection(memory_limit=cache)
    try:
        with translated(about):
            run(connection, f"SET disabled_compression_methods = '{NOT_FOR_SKETCHES}'")
            run(connection, f"ATTACH {literal(path)} AS catalog ({OF_DUCKDB}, {options})")
            run(connection, "USE catalog")
            if whole:
                read_metadata(partial(run, connection))
            ensure_schema(connection, about, read_only=options == READING)
    except BaseException:
        connection.close()
        raise
    return connection


def refused_logs(catalog: Path) -> list[Path]:
    """Logs that were set aside."""
    return sorted(catalog.parent.glob(f"{escape(beside(catalog, '.wal').name)}.refused-*"))


def _set_aside(catalog: Path, seen: tuple[int, int] | None) -> Path | None:
    """Give a log another name, if it is the one that was `seen` before DuckDB read it, and nobody
    has the catalog open; its name then.

    This process must not have the catalog open: a file that it closes loses the locks of all its
    others.
    """
    if not seen or not seen[1] or os.name != "posix":
        return None
    import fcntl

    wal = beside(catalog, ".wal")
    aside = wal.with_name(f"{wal.name}.refused-{time.time_ns()}")
    try:
        with catalog.open("rb+") as held:
            # DuckDB's own lock: nobody else has the catalog open now, or opens it
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _state(wal) != seen:
                return None
            os.rename(wal, aside)
            sync_folder(wal.parent)
    except OSError as err:
        log.info("%s: the log is not set aside: %s", catalog, err)
        return None
    return aside


def _state(path: Path) -> tuple[int, int] | None:
    """Inode and size of a file that is there."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size
    return None
