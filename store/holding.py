"""A catalog file in this process: open while it is used, closed when another process waits for it.

DuckDB lets one process write a file, or several read it. Who finds it locked makes a file
`….duckdb.wanted` beside it and tries again. The process that has the catalog open sees that file,
ends what it has begun, closes the catalog, and opens it again when it next needs it. The system
ends the lock of a process that is killed.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from ..errors import StoreLocked
from ..records import storable
from .commit_log import Commit, CommitLog
from .files import beside, sync_folder

D = TypeVar("D")

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long a file is waited for; `WRITER_PATIENCE_S` by a process that has written: it waits for
long questions of others, and its models are to be recorded."""

WRITER_PATIENCE_S = 3600.0

POLL_S = 0.05
"""Between two tries to open, and between two looks whether another process waits."""

HELD_AT_LEAST_S = 0.2
"""Before it is given up for another process: opening and closing take a fifth of that."""

SAID_AFTER_S = 2.0

CHECKPOINT_EVERY_S = 60.0
"""Of a process that writes: DuckDB makes one for 16 MiB, and a log that a power loss damaged is not
read."""

SHED_TO = "64MB"

UNKNOWN, NO_LOG = -1, 0
"""In place of the log's inode."""


class OpenFile:
    """The file as DuckDB has it open, for all sessions of this process."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        cache: str,
        *,
        is_writable: bool,
        stands_for: Path | None = None,
    ) -> None:
        """`cache`: How much memory DuckDB may take, as it has it; `stands_for`: the file that is
        not there yet, and that an empty catalog stands for."""
        self.connection, self._cache = connection, cache
        self._is_writable, self._stands_for = is_writable, stands_for
        self.writing, self.since = threading.Lock(), time.monotonic()
        self.is_closed = threading.Event()
        self._cursors: list[duckdb.DuckDBPyConnection] = []
        self._commit_log: CommitLog | None = None
        self._wal, self._lasting_log, self._last_key = Path(), UNKNOWN, 0
        self._checkpoint_at = self.since + CHECKPOINT_EVERY_S

    def serves(self, *, writes: bool) -> bool:
        """Whether it need not be opened again."""
        is_there = self._stands_for is None or not self._stands_for.exists()
        return is_there and (self._is_writable or not writes)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection for one more session; closed with the file."""
        cursor = self.connection.cursor()
        run(cursor, "USE catalog")
        self._cursors.append(cursor)
        return cursor

    def note_commits(self, path: Path, commit_log: CommitLog) -> None:
        """Keep the commit log of the file at `path`, which this process may write."""
        [(last,)] = run(self.connection, "SELECT coalesce(max(key), 0) FROM models")
        self._commit_log, self._last_key = commit_log, int(last)
        self._wal = beside(path, ".wal")

    def commit(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Commit a session's transaction, and note it."""
        if self._lasting_log == UNKNOWN:
            # what an earlier process did to the log's name
            self._keep_log()
        counted = self._count(cursor)
        run(cursor, "COMMIT")
        if time.monotonic() > self._checkpoint_at:
            self._checkpoint_at = time.monotonic() + CHECKPOINT_EVERY_S
            with suppress(duckdb.Error):  # another session reads
                run(cursor, "CHECKPOINT")
        self._keep_log()
        if self._commit_log is not None:
            self._commit_log.append(counted)

    def shed(self) -> None:
        """Free the memory of pages that no statement uses: for a moment no session has more than
        `SHED_TO`."""
        try:
            with suppress(duckdb.OutOfMemoryException):
                run(self.connection, f"SET memory_limit = '{SHED_TO}'")
        finally:
            run(self.connection, f"SET memory_limit = '{self._cache}'")

    def close(self) -> None:
        """Close it, with an empty log where it was written; no session may use it."""
        self.is_closed.set()
        for cursor in self._cursors:
            cursor.close()
        try:
            if self._commit_log is not None:
                # a checkpoint of an empty log would write, and the log would not tell of it
                if self._commit_log.wal_bytes:
                    with suppress(duckdb.Error):
                        run(self.connection, "CHECKPOINT")
                self._commit_log.end()
        finally:
            self.connection.close()

    def _count(self, cursor: duckdb.DuckDBPyConnection) -> Commit:
        """Count a transaction before it is committed."""
        [(number,)] = run(cursor, "UPDATE meta SET commits = commits + 1 RETURNING commits")
        sql = "SELECT key, base, id FROM models WHERE key > ? ORDER BY key"
        rows = run(cursor, sql, [self._last_key])
        if rows:
            self._last_key = int(rows[-1][0])
        return Commit(int(number), tuple((str(base), str(id)) for _, base, id in rows))

    def _keep_log(self) -> None:
        """Sync the log's folder, if the log is a new file or is gone.

        DuckDB syncs the log, but not its name, and removes it at every checkpoint. Without its
        name, what was committed is lost with the power; a log from before the last checkpoint but
        one is refused. Where the disk refuses (`duckdb.IOException`), the last commit may be lost.
        """
        try:
            inode = self._wal.stat().st_ino
        except FileNotFoundError:
            inode = NO_LOG
        try:
            if inode == NO_LOG or inode != self._lasting_log:
                sync_folder(self._wal.parent)
                self._lasting_log = inode
        except OSError as err:
            raise duckdb.IOException(f"cannot sync {self._wal.parent}: {err.strerror}") from err


_SHARING = threading.Lock()
_ACCESSES: dict[Path, Access] = {}
"""By the real path: DuckDB opens a file once in a process."""


class Access:
    """This process's access to a catalog file, for all its threads.

    A thread that is inside `use` may use the file again; others wait while it is being closed.
    """

    def __init__(self, path: Path, open_file: Callable[[bool], OpenFile]) -> None:
        """`open_file`: Opens the file, for writing or for reading; `StoreLocked` while another
        process has it."""
        self.path, self._key, self._n_users = path, path.resolve(), 0
        self._open_file, self._wanted = open_file, beside(self._key, ".wanted")
        self._changed = threading.Condition()
        self._file: OpenFile | None = None
        self._watch: threading.Thread | None = None
        self._is_closing = self._has_written = False
        self._inside: dict[int, int] = {}
        self._derived: dict[type, Any] = {}

    @classmethod
    def shared(cls, path: Path, open_file: Callable[[bool], OpenFile], *, writes: bool) -> Access:
        """That of all who use the file in this process; opened at once. Each closes it."""
        with _SHARING:
            access = _ACCESSES.setdefault(path.resolve(), cls(path, open_file))
            access._n_users += 1
        try:
            with access.use(writes=writes):
                return access
        except BaseException:
            access.close()
            raise

    @property
    def is_shared(self) -> bool:
        """Whether something else in this process has the file open."""
        return self._n_users > 1

    @contextmanager
    def use(self, *, writes: bool = False) -> Iterator[OpenFile]:
        """The open file; it stays open during the block.

        Raises:
            StoreLocked: another process had it for longer than `PATIENCE_S`.
            StoreError: whatever else opening raises.
        """
        thread = threading.get_ident()
        depth = self._inside.get(thread, 0)
        try:
            with self._changed:
                if not depth:
                    self._changed.wait_for(lambda: not self._is_closing)
                file = self._fitting(writes)
                self._inside[thread] = depth + 1
            yield file
        finally:
            with self._changed:
                if depth:
                    self._inside[thread] = depth
                else:
                    self._inside.pop(thread, None)
                    self._changed.notify_all()

    def shed(self) -> None:
        """Give back the memory of the file's pages."""
        with self._changed:
            if self._file is not None:
                self._file.shed()

    def derived(self, kind: type[D]) -> D:
        """The one object of that class that all readers of this file share; closed with it."""
        shared: D = self._derived.get(kind) or self._derived.setdefault(kind, kind())
        return shared

    def close(self) -> None:
        """Close it, as the last of its users."""
        with _SHARING:
            self._n_users -= 1
            if self._n_users:
                return
            del _ACCESSES[self._key]
        for derived in self._derived.values():
            derived.close()
        self._derived.clear()
        self._leave()

    def _leave(self) -> None:
        """Close the file, and end the thread that watches it: not within a call of DuckDB."""
        with self._changed:
            self._end(self._file)
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.join()

    def _fitting(self, writes: bool) -> OpenFile:
        """The file, opened again where it has to be for this use."""
        is_inside = threading.get_ident() in self._inside
        if self._file is not None and not self._file.serves(writes=writes):
            assert not (is_inside and writes), "a change within a question"
            if not is_inside:
                self._end(self._file)
        if self._file is None:
            self._file = self._opened(writes)
            self._has_written |= writes
            self._watch = threading.Thread(
                target=self._give_way, args=(self._file,), name="catalog-watch", daemon=True
            )
            self._watch.start()
        return self._file

    def _opened(self, writes: bool) -> OpenFile:
        """The file, once no other process is in the way."""
        started, has_said, is_asked_for = time.monotonic(), False, False
        patience = WRITER_PATIENCE_S if self._has_written else PATIENCE_S
        while True:
            try:
                file = self._open_file(writes)
                break
            except StoreLocked as err:
                waited = time.monotonic() - started
                if waited > patience:
                    raise
                if waited > SAID_AFTER_S and not has_said:
                    log.info("waiting: %s", err)
                    has_said = True
            with suppress(OSError):
                self._wanted.touch()
                is_asked_for = True
            time.sleep(POLL_S)
        if is_asked_for:
            self._wanted.unlink(missing_ok=True)
        return file

    def _give_way(self, file: OpenFile) -> None:
        """Close the file when another process wants it."""
        while not file.is_closed.wait(POLL_S):
            is_due = time.monotonic() - file.since > HELD_AT_LEAST_S
            if is_due and self._wanted.exists():
                with self._changed:
                    self._end(file, rest=2 * POLL_S)

    def _end(self, file: OpenFile | None, rest: float = 0.0) -> None:
        """Close the file once no thread uses it, if nobody else has; nobody opens it before the
        rest is over."""
        self._changed.wait_for(lambda: not self._is_closing)
        if file is None or file is not self._file:
            return
        self._is_closing = True
        try:
            own = {threading.get_ident()}
            self._changed.wait_for(lambda: self._inside.keys() <= own)
            self._file = None
            file.close()
            if rest:
                with suppress(OSError):
                    self._wanted.unlink(missing_ok=True)
                self._changed.wait_for(lambda: False, rest)
        finally:
            self._is_closing = False
            self._changed.notify_all()


@atexit.register
def _leave_all() -> None:
    """What a program has not closed, and does not use."""
    for access in list(_ACCESSES.values()):
        if not access._inside:
            access._leave()


def run(
    connection: duckdb.DuckDBPyConnection, sql: str, values: list[Any] | None = None
) -> list[tuple[Any, ...]]:
    """The rows that a statement gives; of texts among the values the form in which they are stored,
    where they are none in Unicode."""
    with signals_raised():
        return connection.execute(sql, _stored_form(values)).fetchall()


def _stored_form(value: Any) -> Any:
    if isinstance(value, list):
        return [_stored_form(one) for one in value]
    return storable(value) if isinstance(value, str) else value


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raise again what a signal's handler raised: DuckDB replaces it while it works."""
    try:
        yield
    except RuntimeError as err:
        if str(err) == "Query interrupted":
            raise KeyboardInterrupt from err
        raise
