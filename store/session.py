"""A session on a catalog file: statements, transactions, snapshots; how the file is opened.

This module translates DuckDB's errors, gives threads their turns, and repeats a question when the
process that held the file ended.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from ..errors import (
    EmptyCatalog,
    HolderLost,
    OlderSchema,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
)
from .files import make_folder
from .recovery import Seen, log_path, repair
from .schema import SCHEMA_VERSION, check_schema, migrate
from .sharing import UNSETTLED, Access, Gone, Ledger, LocalSession, RawSession

log = logging.getLogger(__name__)

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import pyarrow as pa  # for annotations alone

T = TypeVar("T")

NEW = "STORAGE_VERSION 'v1.5.0'"
"""Files that DuckDB 1.5 and every later one can open."""

WRITING = "ROW_GROUP_SIZE 2048"
"""DuckDB rewrites the last group of a growing table; its default size is two gigabytes of
vectors."""

NO_EXTENSIONS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
"""A file of another kind must not make DuckDB download what reads it."""

OF_DUCKDB = "TYPE duckdb"
"""Of an attached file: DuckDB does not look what else it may be."""

LOGS_EVERYTHING = "auto_checkpoint_skip_wal_threshold = 9223372036854775807"
"""A large commit is logged before its checkpoint begins too: the log says that one was going on
(`recovery.py`)."""

NOT_FOR_SKETCHES = "dict_fsst,fsst,zstd"
"""Compression of text and bytes. To pack sketches saves a tenth of the file, for forty times the
time of writing it."""

NOW = "CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)"

SETTLE_TRIES = 5
"""Times that a snapshot is begun again because a change was committed meanwhile: what is cached
under its token is of exactly its moment. After that its token is one that nobody else has."""

BETWEEN_TRIES_S = 0.002

_UNIQUE = itertools.count()


class _MomentPassed(Exception):
    """The catalog changed between a question's first look at its token and its first statement."""


_HELD = ("conflicting lock", "could not set lock", "being used by", "unique file handle conflict")

CACHE_SHARE = "50%"
"""Of the memory; a search index of a large family needs the other half."""


def connect(
    path: Path,
    *,
    read_only: bool,
    create: bool,
    cache: str | None = None,
    migrates: bool = True,
) -> Access:
    """Access to the catalog at `path`, at this schema version: held, or through its holder.

    Args:
        migrates: Bring an older file up to date, and repair what a power loss left, also for one
            who only reads.

    Raises:
        EmptyCatalog: there is no file and none is to be made.
        StoreError: one of its subclasses, naming the file.
    """
    try:
        exists = path.exists()
    except OSError as err:
        raise StoreError(f"{path}: {(err.strerror or str(err)).lower()}") from err
    if not exists:
        if not create:
            raise EmptyCatalog(f"{path}: no catalog there yet; `deltadex index` makes one")
        make_folder(path.parent)
        read_only = False
    return Access(
        path,
        lambda: _open_up_to_date(
            path, read_only=read_only, cache=cache or CACHE_SHARE, migrates=migrates
        ),
        lambda guest, note: check_schema(guest, note, path),
        shares=not read_only,
    )


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


def memory_connection(**settings: str) -> duckdb.DuckDBPyConnection:
    """DuckDB without a file, which installs and loads no extension by itself."""
    config: dict[str, str | bool | int | float | list[str]] = {**NO_EXTENSIONS, **settings}
    return duckdb.connect(":memory:", config=config)


def _open_file(path: Path, *, read_only: bool, cache: str, repairs: bool = True) -> LocalSession:
    """A session whose default database is the file.

    Args:
        repairs: Repair what a power loss left, where it may be written; also for a reader.
    """
    connection = memory_connection(memory_limit=cache)
    connection.execute(f"SET disabled_compression_methods = '{NOT_FOR_SKETCHES}'")
    with suppress(duckdb.CatalogException):  # unknown to DuckDB 1.5
        connection.execute(f"SET {LOGS_EVERYTHING}")
    own = LocalSession(connection, Ledger(log_path(path)), cache)
    seen = Seen.of(path)
    quoted = str(path).replace("'", "''")
    options = "READ_ONLY" if read_only else WRITING if path.exists() else f"{WRITING}, {NEW}"
    options = f"{OF_DUCKDB}, {options}"
    try:
        with translated(path):
            own.execute(f"ATTACH '{quoted}' AS catalog ({options})")
            own.execute("USE catalog")
            if seen.has_begun_checkpoint:
                _read_metadata(own)
            migrate(own, path, read_only=read_only)
    except BaseException as err:
        own.close()
        is_damaged = repairs and isinstance(err, StoreDamaged)
        if is_damaged and repair(path, str(err.__cause__), seen):
            return _open_file(path, read_only=read_only, cache=cache)
        raise
    return own


def _read_metadata(own: LocalSession) -> None:
    """Read every block of metadata, most of which DuckDB reads when a query needs it."""
    sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'catalog'"
    for (table,) in own.execute(sql):
        own.execute("SELECT count(*) FROM pragma_storage_info(?)", [table])


class Session:
    """One session on a catalog file; threads take turns.

    A statement outside a transaction is run again when the process that held the file ended.
    Inside one, the transaction is lost: `write` and `look` begin it again, once.

    Every method raises `StoreError` for what DuckDB refuses.
    """

    def __init__(self, access: Access, *, about: Path | None = None) -> None:
        """A session of its own.

        Args:
            about: The file that errors name, if not the catalog.
        """
        self.access, self.path = access, about or access.path
        self._lock = threading.RLock()
        self._registered: dict[str, pa.Table] = {}
        self._is_inside = self._will_look = False
        self._changes_seen: str | None = None
        self._may_assume = False
        self._assumed: str | None = None
        with translated(self.path):
            self._generation, self._session = access.session()

    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self._read(lambda raw: raw.execute(sql, values))

    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table:
        """The rows as a table."""
        return self._read(lambda raw: raw.arrow(sql, values))

    @contextmanager
    def registered(self, name: str, table: pa.Table) -> Iterator[None]:
        """`table` under that name, for statements of the block."""
        with self.turn():
            self._run(lambda raw: raw.register(name, table))
            self._registered[name] = table
            try:
                yield
            except BaseException:
                del self._registered[name]
                # an aborted transaction refuses this too; the first error is the one to raise
                with suppress(duckdb.Error):
                    self._run(lambda raw: raw.unregister(name))
                raise
            del self._registered[name]
            self._run(lambda raw: raw.unregister(name))

    def write(self, change: Callable[[Session], T]) -> T:
        """Make all of a change, or none; one writer at a time. Returns what the change gives."""
        with self.turn():
            try:
                return self._transact(change)
            except HolderLost:
                return self._transact(change)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read the catalog of one moment, that of the block's first statement; a block inside
        another is part of it."""
        with self.turn():
            if self._is_inside or self._will_look:
                yield
                return
            self._will_look = True
            try:
                yield
            finally:
                if self._is_inside:
                    self._run(lambda raw: raw.rollback())
                self._is_inside = self._will_look = self._may_assume = False
                self._changes_seen = self._assumed = None

    def look(self, question: Callable[[], T]) -> T:
        """The answer to a question in a snapshot of its own, or in the one it is part of.

        Its own snapshot begins with the first statement: a question that is answered from memory
        executes none. It is taken again where the process that held the file ended, or where the
        catalog changed between the question's first look at `changes` and its first statement.
        """
        with self.turn():
            if self._is_inside or self._will_look:
                return question()
            with suppress(HolderLost, _MomentPassed), self.snapshot():
                self._may_assume = True
                return question()
            with self.snapshot():
                return question()

    @property
    def changes(self) -> str:
        """A token that differs after every change of the catalog, whichever process made it; in a
        snapshot, that of its moment."""
        with self.turn():
            if self._may_assume and self._will_look:
                token = self._assumed or self._run(lambda raw: raw.changes())
                if not token.endswith(UNSETTLED):
                    self._assumed = token
                    return token
            self._begin_to_look()
            return self._changes_seen or self._run(lambda raw: raw.changes())

    def close(self) -> None:
        with self.turn():
            self._session.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The session for this thread alone; DuckDB's errors in the block become deltadex's."""
        with self._lock, translated(self.path):
            yield

    def _transact(self, change: Callable[[Session], T]) -> T:
        self._run(lambda raw: raw.begin())
        self._is_inside = True
        try:
            result = change(self)
            self._run(lambda raw: raw.commit())
            return result
        except BaseException:
            if self._is_inside:
                self._run(lambda raw: raw.rollback())
            raise
        finally:
            self._is_inside = False

    def _read(self, question: Callable[[RawSession], T]) -> T:
        with self.turn():
            self._begin_to_look()
            return self._run(question)

    def _begin_to_look(self) -> None:
        """Begin the snapshot that a block has announced, and learn the token of its moment."""
        if not self._will_look or self._is_inside:
            return
        for tries_left in reversed(range(SETTLE_TRIES + 1)):
            token = self._run(lambda raw: raw.changes())
            self._run(lambda raw: raw.look())
            self._is_inside = True
            # DuckDB's moment is that of the first statement which touches the file
            self._run(lambda raw: raw.execute("SELECT schema_version FROM meta"))
            is_settled = not token.endswith(UNSETTLED)
            is_exact = is_settled and token == self._run(lambda raw: raw.changes())
            if is_exact or not tries_left:
                break
            self._run(lambda raw: raw.rollback())
            self._is_inside = False
            time.sleep(BETWEEN_TRIES_S)
        self._changes_seen = token if is_exact else f"{token}{UNSETTLED}{next(_UNIQUE)}"
        self._will_look = False
        if self._assumed not in (None, self._changes_seen):
            raise _MomentPassed

    def _run(self, question: Callable[[RawSession], T]) -> T:
        try:
            return question(self._session)
        except Gone as err:
            self._session.close()
            was_inside, self._is_inside = self._is_inside, False
            self._generation, self._session = self.access.session(self._generation)
            for name, table in self._registered.items():
                self._run(lambda raw, n=name, t=table: raw.register(n, t))  # type: ignore[misc]
            if was_inside:
                raise HolderLost(
                    "the process that held the catalog ended, and what was not committed is lost"
                ) from err
        return self._run(question)


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
        return StoreLocked(f"{path}: {who} holds this catalog; wait until it ends")
    if any(phrase in lowered for phrase in ("no space left", "disk is full", "enospc")):
        return StoreFull(f"{path}: disk full; models recorded before are saved")
    if "permission denied" in lowered or "read-only file system" in lowered:
        return StoreFull(f"{path}: not writable: check the folder's permissions")
    damage = ("not a valid duckdb", "corrupt", "checksum", "not read enough bytes")
    if any(phrase in lowered for phrase in damage):
        return StoreDamaged(f"{path}: not a readable catalog ({line}); nothing was changed in it")
    if "version number" in lowered or "serialization" in lowered or "wal" in lowered:
        return StoreDamaged(f"{path}: cannot be opened by DuckDB {duckdb.__version__}: {line}")
    return StoreError(f"{path}: {line}")
