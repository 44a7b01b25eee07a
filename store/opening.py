"""Opening a catalog file: made, held or joined.

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
from glob import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import duckdb

from ..errors import (
    EmptyCatalog,
    ForeignDatabase,
    OtherSchema,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from .files import atomic_file, beside, make_folder, refuse_links, sync_folder
from .session import Access, Session, literal, translated
from .sharing import (
    CommitLog,
    Ledger,
    LocalSession,
    Losses,
    RawSession,
    Unwritten,
    signals_raised,
)

SCHEMA_VERSION = 9
"""A catalog of another one is not opened."""


def ensure_schema(own: LocalSession, path: Path, *, read_only: bool) -> None:
    """Make a file that this process holds, and that is empty, a catalog, in one transaction."""
    if has_schema(own, path):
        return
    if read_only:
        raise EmptyCatalog(f"{path}: an empty catalog; `deltadex index` fills it")
    own.begin()
    try:
        own.execute(schema())
        own.execute("UPDATE meta SET schema_version = ?", [SCHEMA_VERSION])
        own.commit()
    except BaseException:
        own.rollback()
        raise


def schema() -> str:
    """What makes an empty file a catalog."""
    return (files(__package__) / "schema.sql").read_text("utf-8")


def has_schema(session: RawSession, path: Path) -> bool:
    """Whether an open file is a catalog; False for a database that holds nothing.

    Raises:
        OtherSchema: of another version of deltadex.
        ForeignDatabase: it is not a catalog.
    """
    with suppress(duckdb.CatalogException, duckdb.BinderException):
        sql = "SELECT schema_version FROM meta WHERE application = 'deltadex'"
        for (version,) in session.execute(sql):
            if version != SCHEMA_VERSION:
                raise OtherSchema(
                    f"{path}: schema version {version}, this deltadex has {SCHEMA_VERSION}: "
                    "index again into another --db, or use the deltadex that made it"
                )
            return True
    sql = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'catalog'"
    if session.execute(sql) == [(0,)]:
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

OF_DUCKDB = "TYPE duckdb"
"""Of an attached file: DuckDB does not look what else it may be."""

NOTHING_ELSE = "SET enable_external_access = false"
"""From now on DuckDB opens no other file and no address."""

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
    repairs: bool = True,
) -> Access:
    """Access to the catalog at `path`: held, or through its holder.

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
        read_only = False

    def open_own() -> LocalSession:
        if create == "late" and not is_file(path):
            return _unwritten(path)
        own = _open_file(path, read_only=read_only, cache=cache or CACHE_SHARE, repairs=repairs)
        try:
            with translated(path):
                _warn_of(find_losses(own, path) if read_only else own.follow(path), path)
        except BaseException:
            own.close()
            raise
        return own

    def check_guest(guest: RawSession) -> None:
        has_schema(guest, path)
        _warn_of(find_losses(guest, path), path)

    return Access(path, open_own, check_guest, shares=not read_only)


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
    if not path.name:
        raise StoreError(f"{path}: a folder, not a file; a catalog is a single file")
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
    empty = LocalSession(connection, Ledger())
    empty.execute("ATTACH ':memory:' AS catalog")
    empty.execute("USE catalog")
    ensure_schema(empty, path, read_only=False)
    return Unwritten(connection, lambda: _make(target), lambda: is_file(path))


def _make(path: Path) -> None:
    """An empty catalog at `path`, unless another process has made one meanwhile."""
    make_folder(path.parent)
    options = f"{OF_DUCKDB}, {WRITING}, {NEW}"
    with atomic_file(path, replaces=False) as temporary, translated(path):
        try:
            with closing(_attached(temporary, options, CACHE_SHARE)) as own:
                ensure_schema(own, path, read_only=False)
                own.execute("CHECKPOINT")
        finally:
            log_path(temporary).unlink(missing_ok=True)


def _open_file(path: Path, *, read_only: bool, cache: str, repairs: bool = True) -> LocalSession:
    """A session on an existing file; a log that DuckDB refuses is set aside, where that is wanted
    and the file opens without it."""
    seen = _state(log_path(path))
    try:
        return _opened(path, read_only=read_only, cache=cache)
    except StoreDamaged:
        aside = _set_aside(path, seen) if repairs else None
        if aside is None:
            raise
    try:
        own = _opened(path, read_only=read_only, cache=cache, whole=True)
    except StoreDamaged:
        # the file is damaged, too
        with suppress(OSError):
            os.link(aside, log_path(path))
            aside.unlink()
        raise
    line = "%s: DuckDB refuses its log: opened as of its last checkpoint; the log is %s now"
    log.warning(line, path, aside.name)
    return own


def _opened(path: Path, *, read_only: bool, cache: str, whole: bool = False) -> LocalSession:
    """A session on an existing file; `whole`: all its metadata are read."""
    with translated(path):
        own = _attached(path, f"{OF_DUCKDB}, {'READ_ONLY' if read_only else WRITING}", cache)
        try:
            if whole:
                read_metadata(own.execute)
            ensure_schema(own, path, read_only=read_only)
        except BaseException:
            own.close()
            raise
    return own


def read_metadata(execute: Callable[..., list[tuple[Any, ...]]]) -> None:
    """Read every block of metadata: DuckDB reads most of them when a query needs them."""
    sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'catalog'"
    for (table,) in execute(sql):
        execute("SELECT count(*) FROM pragma_storage_info(?)", [table])


def _attached(path: Path, options: str, cache: str) -> LocalSession:
    """A session whose default database is the file."""
    connection = memory_connection(memory_limit=cache)
    own = LocalSession(connection, Ledger(log_path(path)), cache)
    try:
        with translated(path):
            own.execute(f"SET disabled_compression_methods = '{NOT_FOR_SKETCHES}'")
            own.execute(f"ATTACH {literal(path)} AS catalog ({options})")
            own.execute("USE catalog")
    except BaseException:
        own.close()
        raise
    return own


def log_path(catalog: Path) -> Path:
    """Where DuckDB has the log of a catalog."""
    return beside(catalog, ".wal")


def refused_logs(catalog: Path) -> list[Path]:
    """Logs that were set aside."""
    return sorted(catalog.parent.glob(f"{escape(log_path(catalog).name)}.refused-*"))


def _set_aside(catalog: Path, seen: tuple[int, int] | None) -> Path | None:
    """Give a log another name, if it is the one that was `seen` before DuckDB read it, and nobody
    has the catalog open; its name then.

    This process must not have the catalog open: a file that it closes loses the locks of all its
    others.
    """
    if not seen or not seen[1] or os.name != "posix":
        return None
    import fcntl

    wal = log_path(catalog)
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
