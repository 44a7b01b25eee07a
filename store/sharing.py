"""One catalog file, many processes: sessions of the process that holds the file, and the two files
by which they share it, the holder file and the commit log.

DuckDB opens a write-ahead log (WAL) that was cut short at the last whole transaction of what is
left, without a word. Therefore every transaction adds 1 to `meta.commits`, and the process that
holds the catalog then appends a line to the commit log, with the models that the transaction
recorded. A line with a later number than the catalog's own is a commit that the WAL has lost. A
line has a checksum; one that was cut off does not count. The file is not flushed: where power
fails, it may know less than the catalog, never more.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import duckdb

from ..errors import StoreFull
from .files import atomic_file, beside, file_size, sync_folder

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import pyarrow as pa  # for annotations alone

log = logging.getLogger(__name__)

LONGEST_NOTE = 4096
"""Bytes of a holder file; a longer one is not read."""


class Gone(ConnectionError):
    """The other side has ended, or is not who it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderFile:
    """The process that holds a catalog, and its machine: a port of another machine's loopback is no
    use here. Both sides prove to know the key; the note is readable by its owner alone."""

    pid: int
    machine: str
    port: int
    key: bytes


def holder_path(catalog: Path) -> Path:
    """Where the note of a catalog is."""
    return beside(catalog, ".holder")


def write_holder(catalog: Path, note: HolderFile) -> None:
    """Write the note, readable by its owner only; `StoreFull` where the folder refuses writes."""
    body = asdict(note) | {"key": note.key.hex()}
    with atomic_file(holder_path(catalog), lasts=False) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(body, file)


def read_holder(catalog: Path) -> HolderFile | None:
    """The note; None where none can be read, or where it is of another machine."""
    try:
        # without waiting, where a pipe is in the note's place
        flag = getattr(os, "O_NONBLOCK", 0)
        with open(holder_path(catalog), "rb", opener=lambda p, f: os.open(p, f | flag)) as file:
            body = json.loads(file.read(LONGEST_NOTE))
        note = HolderFile(
            pid=int(body["pid"]),
            machine=str(body["machine"]),
            port=int(body["port"]),
            key=bytes.fromhex(body["key"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return note if note.machine == socket.gethostname() and 0 < note.port < 2**16 else None


def remove_holder(catalog: Path, note: HolderFile) -> None:
    """Remove the note, unless another holder has written its own. A note that stays names a process
    that has ended, and hinders nobody."""
    if read_holder(catalog) == note:
        with suppress(OSError):
            holder_path(catalog).unlink(missing_ok=True)


Name = tuple[str, str]
"""Base and id of a model."""

NAMES_SHOWN = 3
"""Names that a message lists; it counts the others."""


def listed(names: Sequence[str], n_all: int | None = None) -> str:
    """`a, b, c and 5 more`."""
    more = (n_all or len(names)) - min(NAMES_SHOWN, len(names))
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


class Commit(NamedTuple):
    """A transaction: its number, from 1, and the models that it recorded, if any."""

    number: int
    models: tuple[Name, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Commits that were reported and are not in the catalog, and the models that they recorded and
    no later commit recorded again."""

    commits: int = 0
    models: tuple[Name, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.commits)

    def __str__(self) -> str:
        models = f" ({listed([id for _, id in self.models])})" if self.models else ""
        lost = f"{self.commits} changes that were saved are missing"
        if self.commits == 1:
            lost = "1 change that was saved is missing"
        return f"{lost}: the write-ahead log was cut short{models}"

    def without(self, models: Iterable[Name]) -> Losses:
        """The rest, once these models are recorded again; nothing without a model of them."""
        again = set(models)
        rest = tuple(model for model in self.models if model not in again)
        return replace(self, models=rest) if rest or not self.models else Losses()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What the file says of the catalog of that name: its commits since DuckDB emptied its WAL, and
    the losses that an earlier opening noticed."""

    catalog: str = ""
    commits: tuple[Commit, ...] = ()
    losses: Losses = Losses()

    def losses_of(self, catalog: str, commits: int) -> Losses:
        """What was lost of the catalog of that name: noticed before, or after its last commit."""
        if self.catalog != catalog:
            return Losses()
        lost = [commit for commit in self.commits if commit.number > commits]
        models = (*self.losses.models, *(name for commit in lost for name in commit.models))
        return Losses(commits=self.losses.commits + len(lost), models=tuple(dict.fromkeys(models)))


class CommitLog:
    """The file of one catalog; written by the process that holds it, one thread at a time.

    Where the system refuses the file, commits are not noted.
    """

    def __init__(self, catalog: Path) -> None:
        self.path, self._wal = beside(catalog, ".commits"), beside(catalog, ".wal")
        self._noted, self._wal_bytes = Noted(), 0
        self._is_written = False

    def begin(self, catalog: str, commits: int) -> Losses:
        """Go on with the file of a catalog of that name and so many commits, which this process
        holds from now on; what was lost."""
        noted, self._wal_bytes = self.read(), self.wal_bytes
        is_needed = noted.catalog == catalog and self._wal_bytes > 0
        kept = [commit for commit in noted.commits if is_needed and commit.number <= commits]
        losses = noted.losses_of(catalog, commits)
        self._noted = Noted(catalog=catalog, commits=tuple(kept), losses=losses)
        self._is_written = self._noted == noted
        if losses != noted.losses:
            self._write()
        return losses

    def append(self, commit: Commit) -> None:
        """Note a commit that was made."""
        n_bytes, before = self.wal_bytes, self._noted
        was_emptied, self._wal_bytes = n_bytes < self._wal_bytes, n_bytes
        self._noted = replace(
            before,
            commits=(*(() if was_emptied else before.commits), commit),
            losses=before.losses.without(commit.models),
        )
        if was_emptied or not self._is_written or self._noted.losses != before.losses:
            self._write()
            return
        try:
            with self.path.open("ab") as file:
                file.write(b"\n" + _line(commit))
        except OSError as err:
            log.debug("%s: %s", self.path, err)

    def end(self) -> None:
        """Remove the file where it has nothing to tell: nothing was lost, and the WAL is empty."""
        if not self._noted.losses and not self.wal_bytes:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def read(self) -> Noted:
        """What the file says; nothing where it cannot be read."""
        try:
            header, *others = map(_document, self.path.read_bytes().split(b"\n"))
            return Noted(
                catalog=str(header["catalog"]),
                commits=tuple(
                    Commit(int(document[0]), _names(document[1]))
                    for document in others
                    if document is not None
                ),
                losses=Losses(commits=int(header["lost"]), models=_names(header["models"])),
            )
        except (OSError, KeyError, TypeError, ValueError, IndexError):
            return Noted()

    def _write(self) -> None:
        noted = self._noted
        lost, models = noted.losses.commits, noted.losses.models
        header = {"catalog": noted.catalog, "lost": lost, "models": models}
        try:
            with atomic_file(self.path, lasts=False) as temporary:
                temporary.write_bytes(b"\n".join(map(_line, (header, *noted.commits))))
            self._is_written = True
        except StoreFull as err:
            log.debug("%s", err)

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log; 0 without one."""
        return file_size(self._wal)


def _line(document: object) -> bytes:
    body = json.dumps(document, separators=(",", ":")).encode()
    return b"%08x %s" % (zlib.crc32(body), body)


def _document(line: bytes) -> Any:
    """What a line says; None where it is damaged."""
    checksum, _, body = line.partition(b" ")
    try:
        return json.loads(body) if int(checksum, 16) == zlib.crc32(body) else None
    except ValueError:
        return None


def _names(pairs: Iterable[Iterable[object]]) -> tuple[Name, ...]:
    return tuple((str(base), str(id)) for base, id in pairs)


UNSETTLED = "~"

SHED_TO = "64MB"

UNKNOWN, NO_LOG = -1, 0
"""In place of the log's inode."""


@runtime_checkable
class RawSession(Protocol):
    """A session here or at the process that holds the file; one thread at a time."""

    def session(self) -> RawSession: ...
    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]: ...
    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table: ...
    def register(self, name: str, table: pa.Table) -> None: ...
    def unregister(self, name: str) -> None: ...
    def begin(self) -> None: ...
    def look(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def changes(self) -> str: ...
    def close(self) -> None: ...


CHECKPOINT_EVERY_S = 60.0
"""Of a process that writes: DuckDB makes one for 16 MiB, and a log that a power loss damaged is not
read."""


class Ledger:
    """Shared by all sessions of an open file: the lock of its only writer, which counts changes."""

    def __init__(self, log: Path | None = None) -> None:
        """`log`: The file that DuckDB writes commits to; None where nothing is written."""
        self.writing = threading.Lock()
        self._log, self.lasting_log = log, UNKNOWN
        self._epoch = secrets.token_hex(4)
        self.n_changes, self.is_committing = 0, False
        self.commit_log: CommitLog | None = None
        self.last_key = 0
        self.checkpoint_at = time.monotonic() + CHECKPOINT_EVERY_S

    def count(self, connection: duckdb.DuckDBPyConnection) -> Commit | None:
        """Count a transaction before it is committed; None where no log is kept."""
        if self.commit_log is None:
            return None
        sql = "UPDATE meta SET commits = commits + 1 RETURNING commits"
        [(number,)] = connection.execute(sql).fetchall()
        sql = "SELECT key, base, id FROM models WHERE key > ? ORDER BY key"
        rows = connection.execute(sql, [self.last_key]).fetchall()
        if rows:
            self.last_key = int(rows[-1][0])
        return Commit(int(number), _names((base, id) for _, base, id in rows))

    def changes(self) -> str:
        """A token that differs after every committed change, whichever process made it; it ends in
        `UNSETTLED` while a change is being committed."""
        return f"{self._epoch}-{self.n_changes}{UNSETTLED if self.is_committing else ''}"

    def keep_log(self) -> None:
        """After a commit, sync the log's folder, if the log is a new file or is gone.

        DuckDB syncs the log, but not its name, and removes it at every checkpoint. Without its
        name, what was committed is lost with the power; a log from before the last checkpoint but
        one is refused. Where the disk refuses (`duckdb.IOException`), the last commit may be lost.
        """
        if self._log is None:
            return
        try:
            inode = self._log.stat().st_ino
        except FileNotFoundError:
            inode = NO_LOG
        try:
            if inode == NO_LOG or inode != self.lasting_log:
                sync_folder(self._log.parent)
                self.lasting_log = inode
        except OSError as err:
            raise duckdb.IOException(f"cannot sync {self._log.parent}: {err.strerror}") from err


class LocalSession:
    """A session on a file that this process holds. One thread at a time."""

    is_shared = True
    """Whether other processes may be let in."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, ledger: Ledger, cache: str = "50%"
    ) -> None:
        """`cache`: How much memory DuckDB may take for all sessions, as it has it."""
        self._connection, self.ledger, self._cache = connection, ledger, cache
        self._is_writing = self._is_reading = False

    def session(self) -> LocalSession:
        """Another session, for another thread."""
        return LocalSession(self._cursor(), self.ledger, self._cache)

    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self._run(sql, values)

    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table:
        """The same as a table; of no columns, for a statement that gives none."""
        with signals_raised():
            relation = self._connection.sql(sql, params=values)
            if relation is None:
                import pyarrow as pa

                return pa.table({})
            return relation.to_arrow_table()

    def register(self, name: str, table: pa.Table) -> None:
        with signals_raised():
            self._connection.register(name, table)

    def unregister(self, name: str) -> None:
        with signals_raised():
            self._connection.unregister(name)

    def begin(self) -> None:
        """Begin a transaction, once no other session writes."""
        self.ledger.writing.acquire()
        self._is_writing = True
        try:
            if self.ledger.lasting_log == UNKNOWN:
                # what an earlier process did to the log's name
                self.ledger.keep_log()
            self._run("BEGIN TRANSACTION")
        except BaseException:
            self._end()
            raise

    def look(self) -> None:
        """Begin to read: until `rollback`, nothing that others commit is seen."""
        self._run("BEGIN TRANSACTION READ ONLY")
        self._is_reading = True

    def commit(self) -> None:
        with signals_raised():
            counted = self.ledger.count(self._connection)
        self.ledger.is_committing = True
        try:
            self._run("COMMIT")
        finally:
            # an interrupted commit may have been made
            self.ledger.n_changes += 1
            self.ledger.is_committing = False
        if counted is not None and time.monotonic() > self.ledger.checkpoint_at:
            self.ledger.checkpoint_at = time.monotonic() + CHECKPOINT_EVERY_S
            with suppress(duckdb.Error):  # another session reads
                self._run("CHECKPOINT")
        self.ledger.keep_log()
        if counted is not None and self.ledger.commit_log is not None:
            self.ledger.commit_log.append(counted)
        self._end()

    def follow(self, path: Path) -> Losses:
        """Note every commit, of all sessions on the file at `path`; what was lost before."""
        [(catalog, commits)] = self._run("SELECT catalog, commits FROM meta")
        [(last,)] = self._run("SELECT coalesce(max(key), 0) FROM models")
        self.ledger.commit_log, self.ledger.last_key = CommitLog(path), int(last)
        return self.ledger.commit_log.begin(str(catalog), int(commits))

    def rollback(self) -> None:
        """End the transaction, if there is one; undo it, if it writes."""
        if self._is_writing or self._is_reading:
            self._is_reading = False
            try:
                # a full disk or a fatal error has ended it already
                with suppress(duckdb.Error):
                    self._run("ROLLBACK")
            finally:
                if self._is_writing:
                    self._end()

    def changes(self) -> str:
        return self.ledger.changes()

    def shed(self) -> None:
        """Free the memory of pages that no statement uses: for a moment no session has more than
        `SHED_TO`."""
        try:
            with suppress(duckdb.OutOfMemoryException):
                self._run(f"SET memory_limit = '{SHED_TO}'")
        finally:
            self._run(f"SET memory_limit = '{self._cache}'")

    def interrupt(self) -> None:
        """Stop what another thread runs here, if it runs something."""
        with suppress(duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        self.rollback()
        self._connection.close()

    def leave(self) -> None:
        """Close the file as its holder, with an empty WAL if no session reads any more."""
        try:
            self.rollback()
            if commit_log := self.ledger.commit_log:
                # a checkpoint of an empty log would write, and the log would not tell of it
                if commit_log.wal_bytes:
                    with suppress(duckdb.Error):
                        self._run("CHECKPOINT")
                commit_log.end()
        finally:
            self._connection.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own, to the same catalog."""
        cursor = self._connection.cursor()
        with signals_raised():
            cursor.execute("USE catalog")
        return cursor

    def _end(self) -> None:
        self._is_writing = False
        self.ledger.writing.release()

    def _run(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        with signals_raised():
            return self._connection.execute(sql, values).fetchall()


class Unwritten(LocalSession):
    """A session on an empty catalog, whose file is made with its first change.

    Once there is a file, by whomever, every method raises `Gone`: the file is to be opened.
    """

    is_shared = False

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        make: Callable[[], None],
        is_made: Callable[[], bool],
    ) -> None:
        super().__init__(connection, Ledger())
        self._make, self._is_made = make, is_made

    def session(self) -> Unwritten:
        return Unwritten(self._cursor(), self._make, self._is_made)

    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        self._end_if_made()
        return super().execute(sql, values)

    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table:
        self._end_if_made()
        return super().arrow(sql, values)

    def changes(self) -> str:
        self._end_if_made()
        return super().changes()

    def begin(self) -> None:
        self._make()
        raise Gone

    def _end_if_made(self) -> None:
        if self._is_made():
            raise Gone


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raise again what a signal's handler raised: DuckDB replaces it while it works."""
    try:
        yield
    except RuntimeError as err:
        if str(err) == "Query interrupted":
            raise KeyboardInterrupt from err
        raise
