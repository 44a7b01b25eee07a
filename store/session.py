"""Sessions on a catalog file: statements, snapshots and changes in one transaction each; DuckDB's
errors as deltadex's."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from ..errors import StoreDamaged, StoreError, StoreFull, StoreLocked
from .holding import Access, OpenFile, run, signals_raised

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import pyarrow as pa  # for annotations alone

T = TypeVar("T")

Track = Callable[..., Iterator[Any]]
"""Passes on the things that it is given with a word for them, and shows how far they are."""

NOW = "CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)"

_HELD = ("conflicting lock", "could not set lock", "being used by", "unique file handle conflict")

_PATH = re.compile(r'"[^"\n]*/[^"\n]*"')
"""In DuckDB's messages: any word may be part of it."""

_NOT_WRITTEN = re.compile(r'could not (?:write|fsync|truncate|create)[^:\n]*: ([^\n"]+)')


class Session:
    """One session on a catalog file; threads take turns.

    Every method raises `StoreError` for what DuckDB refuses.
    """

    def __init__(
        self, access: Access, *, about: Path | None = None, read_only: bool = False
    ) -> None:
        """`about`: The file that errors name, if not the catalog."""
        self.access, self.path, self.read_only = access, about or access.path, read_only
        self._lock = threading.RLock()
        self._file: OpenFile | None = None
        self._cursor: duckdb.DuckDBPyConnection
        self._is_inside = False
        self._moment = ""

    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        with self.turn():
            return run(self._cursor, sql, values)

    def rows(self, sql: str, values: list[Any] | None = None) -> list[dict[str, Any]]:
        """The rows that a statement gives, by column."""
        with self.turn():
            found = run(self._cursor, sql, values)
            names = [name for name, *_ in self._cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found]

    def column(self, sql: str, values: list[Any] | None = None) -> list[Any]:
        """The first value of each row."""
        return [first for first, *_ in self.execute(sql, values)]

    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table:
        """The rows that a SELECT gives, as a table."""
        with self.turn(), signals_raised():
            return self._cursor.sql(sql, params=values).to_arrow_table()

    @contextmanager
    def registered(self, name: str, table: pa.Table) -> Iterator[None]:
        """`table` under that name, for statements of the block."""
        with self.turn():
            with signals_raised():
                self._cursor.register(name, table)
            try:
                yield
            finally:
                # an aborted transaction refuses this too; the first error is the one to raise
                with suppress(duckdb.Error), signals_raised():
                    self._cursor.unregister(name)

    def write(self, change: Callable[[Session], T]) -> T:
        """Make all of a change, or none; one writer at a time. Returns what the change gives."""
        if self.read_only:
            raise StoreError(f"{self.path}: opened for reading only")
        with self.turn(writes=True) as file, file.writing:
            run(self._cursor, "BEGIN TRANSACTION")
            self._is_inside = True
            try:
                result = change(self)
                file.commit(self._cursor)
                return result
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._is_inside = False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read the catalog of one moment, or of that of the block around."""
        with self.turn():
            if self._is_inside:
                yield
                return
            run(self._cursor, "BEGIN TRANSACTION READ ONLY")
            try:
                # DuckDB's moment is that of the first statement which touches the file
                self._moment = self._read_moment()
                self._is_inside = True
                yield
            finally:
                self._is_inside, self._moment = False, ""
                self._roll_back()

    def look(self, question: Callable[[], T]) -> T:
        """The answer to a question in a snapshot of its own, or in the one it is part of."""
        with self.snapshot():
            return question()

    @property
    def changes(self) -> str:
        """A token that differs after every change of the catalog, whichever process made it; in a
        snapshot, that of its moment."""
        with self.turn():
            return self._moment or self._read_moment()

    def close(self) -> None:
        with self._lock, translated(self.path):
            if self._file is not None:
                self._cursor.close()
                self._file = None

    @contextmanager
    def turn(self, *, writes: bool = False) -> Iterator[OpenFile]:
        """The session for this thread alone, on the open file; DuckDB's errors in the block become
        deltadex's."""
        # a thread that waits for the file has no lock that one which uses it may want
        with translated(self.path), self.access.use(writes=writes) as file, self._lock:
            if file is not self._file:
                self._cursor, self._file = file.cursor(), file
            yield file

    def _read_moment(self) -> str:
        [(catalog, commits)] = run(self._cursor, "SELECT catalog, commits FROM meta")
        return f"{catalog}-{commits}"

    def _roll_back(self) -> None:
        # a full disk or a fatal error has ended it already
        with suppress(duckdb.Error):
            run(self._cursor, "ROLLBACK")


def replace_row(
    session: Session, table: str, row: Mapping[str, Any], key: Sequence[str], at: str | None = None
) -> None:
    """Write a row in place of those of its key, part of a transaction; `at`: the column that says
    when."""
    where = " AND ".join(f"{name} = ?" for name in key)
    session.execute(f"DELETE FROM {table} WHERE {where}", [row[name] for name in key])
    names, marks = (*row, at) if at else row, ["?"] * len(row) + [NOW] * bool(at)
    session.execute(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(marks)})", [*row.values()]
    )


def literal(text: object) -> str:
    """A text as SQL has it, in quotes."""
    return "'" + str(text).replace("'", "''") + "'"


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
    if isinstance(err, duckdb.OutOfMemoryException):
        return StoreError(f"{path}: not enough memory ({line})")
    lowered = _PATH.sub("", text).lower()
    if any(phrase in lowered for phrase in _HELD):
        holder = re.search(r"held in (.+?) \(PID (\d+)\)", text)
        who = f"process {holder[2]} ({Path(holder[1]).name})" if holder else "another process"
        return StoreLocked(f"{path}: {who} holds this catalog; wait until it ends")
    if any(phrase in lowered for phrase in ("no space left", "disk is full", "enospc")):
        return StoreFull(f"{path}: disk full, no space left; what was saved before stays")
    if "permission denied" in lowered or "read-only file system" in lowered:
        return StoreFull(f"{path}: not writable: check the folder's permissions")
    if refused := _NOT_WRITTEN.search(lowered):
        return StoreFull(f"{path}: cannot be written: {refused[1]}; what was saved before stays")
    damage = ("not a valid duckdb", "corrupt", "checksum", "not read enough bytes")
    if any(phrase in lowered for phrase in damage):
        return StoreDamaged(
            f"{path}: not a readable catalog ({line}); nothing was changed in it; "
            "`deltadex doctor` says what is damaged"
        )
    if "version number" in lowered or "serialization" in lowered or "wal " in lowered:
        return StoreDamaged(f"{path}: cannot be opened by DuckDB {duckdb.__version__}: {line}")
    return StoreError(f"{path}: {line}")


def not_finite(path: Path, what: str) -> str:
    """The message where the catalog holds numbers that are not finite."""
    return (
        f"{path}: damaged: {what} with NaN or infinity, from which no answer can be computed; "
        "`deltadex doctor` names the models"
    )
