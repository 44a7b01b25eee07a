"""Sessions on a catalog file: what every one does, and those of the process that holds the file."""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import duckdb

from ..files import sync_folder
from .beside import Commit, CommitLog, Gone, Losses

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import pyarrow as pa  # for annotations alone

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


class Ledger:
    """Shared by all sessions of an open file: the lock of its only writer, which counts changes."""

    def __init__(self, log: Path | None = None) -> None:
        """`log`: The file that DuckDB writes commits to; None where nothing is written."""
        self.writing = threading.Lock()
        self._log, self._lasting_log = log, UNKNOWN
        self._epoch = secrets.token_hex(4)
        self.n_changes, self.is_committing = 0, False
        self.commit_log: CommitLog | None = None
        self._last_key = 0

    def follow(self, connection: duckdb.DuckDBPyConnection, path: Path) -> Losses:
        """Note every commit of a catalog in its commit log, from now on; what was lost before."""
        (catalog, commits) = connection.execute("SELECT catalog, commits FROM meta").fetchall()[0]
        [(last,)] = connection.execute("SELECT coalesce(max(key), 0) FROM models").fetchall()
        self.commit_log, self._last_key = CommitLog(path), int(last)
        return self.commit_log.begin(str(catalog), int(commits))

    def count(self, connection: duckdb.DuckDBPyConnection) -> Commit | None:
        """Count a transaction before it is committed; None where no log is kept."""
        if self.commit_log is None:
            return None
        sql = "UPDATE meta SET commits = commits + 1 RETURNING commits"
        [(number,)] = connection.execute(sql).fetchall()
        sql = "SELECT key, base, id FROM models WHERE key > ? ORDER BY key"
        rows = connection.execute(sql, [self._last_key]).fetchall()
        if rows:
            self._last_key = int(rows[-1][0])
        models = tuple((str(base), str(id)) for _, base, id in rows)
        return Commit(number=int(number), models=models)

    def changes(self) -> str:
        """A token that differs after every committed change, whichever process made it; it ends in
        `UNSETTLED` while a change is being committed."""
        return f"{self._epoch}-{self.n_changes}{UNSETTLED if self.is_committing else ''}"

    def begin_log(self) -> None:
        """Before the first commit, sync what an earlier process did to the log's name.

        Raises:
            duckdb.IOException: the disk refuses.
        """
        if self._lasting_log == UNKNOWN:
            self.keep_log()

    def keep_log(self) -> None:
        """After a commit, sync the log's folder, if the log is a new file or is gone.

        DuckDB syncs the log, but not its name, and removes it at every checkpoint. Without its
        name, what was committed is lost with the power; a log from before the last checkpoint but
        one is refused.

        Raises:
            duckdb.IOException: the disk refuses; what was committed last may be lost.
        """
        if self._log is None:
            return
        try:
            inode = self._log.stat().st_ino
        except FileNotFoundError:
            inode = NO_LOG
        try:
            if inode == NO_LOG or inode != self._lasting_log:
                sync_folder(self._log.parent)
                self._lasting_log = inode
        except OSError as err:
            raise duckdb.IOException(f"cannot sync {self._log.parent}: {err.strerror}") from err


class LocalSession:
    """A session on a file that this process holds. One thread at a time.

    Attributes:
        is_shared: Whether other processes may be let in.
    """

    is_shared = True

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, ledger: Ledger, cache: str = "50%"
    ) -> None:
        """`cache`: How much memory DuckDB may take for all sessions, as it has it."""
        self._connection = connection
        self.ledger = ledger
        self._cache = cache
        self._is_writing = self._is_reading = False

    def session(self) -> LocalSession:
        """Another session, for another thread."""
        cursor = self._connection.cursor()
        with _ctrl_c():
            cursor.execute("USE catalog")
        return LocalSession(cursor, self.ledger, self._cache)

    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        with _ctrl_c():
            return self._connection.execute(sql, values).fetchall()

    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table:
        """The same as a table; of no columns, for a statement that gives none."""
        with _ctrl_c():
            relation = self._connection.sql(sql, params=values)
            if relation is None:
                import pyarrow as pa

                return pa.table({})
            return relation.to_arrow_table()

    def register(self, name: str, table: pa.Table) -> None:
        self._connection.register(name, table)

    def unregister(self, name: str) -> None:
        self._connection.unregister(name)

    def begin(self) -> None:
        """Begin a transaction, once no other session writes."""
        self.ledger.writing.acquire()
        self._is_writing = True
        try:
            self.ledger.begin_log()
            with _ctrl_c():
                self._connection.execute("BEGIN TRANSACTION")
        except BaseException:
            self._end()
            raise

    def look(self) -> None:
        """Begin to read: until `rollback`, nothing that others commit is seen."""
        with _ctrl_c():
            self._connection.execute("BEGIN TRANSACTION READ ONLY")
        self._is_reading = True

    def commit(self) -> None:
        with _ctrl_c():
            counted = self.ledger.count(self._connection)
        self.ledger.is_committing = True
        try:
            with _ctrl_c():
                self._connection.execute("COMMIT")
        finally:
            # an interrupted commit may have been made
            self.ledger.n_changes += 1
            self.ledger.is_committing = False
        self.ledger.keep_log()
        if counted is not None and self.ledger.commit_log is not None:
            self.ledger.commit_log.append(counted)
        self._end()

    def follow(self, path: Path) -> Losses:
        """Note every commit, of all sessions on the file at `path`; what was lost before."""
        with _ctrl_c():
            return self.ledger.follow(self._connection, path)

    def rollback(self) -> None:
        """End the transaction, if there is one; undo it, if it writes."""
        if self._is_writing or self._is_reading:
            self._is_reading = False
            try:
                # a full disk or a fatal error has ended it already
                with contextlib.suppress(duckdb.Error), _ctrl_c():
                    self._connection.execute("ROLLBACK")
            finally:
                if self._is_writing:
                    self._end()

    def changes(self) -> str:
        return self.ledger.changes()

    def shed(self) -> None:
        """Free the memory of pages that no statement uses.

        For a moment no session has more than `SHED_TO`.
        """
        try:
            with contextlib.suppress(duckdb.OutOfMemoryException), _ctrl_c():
                self._connection.execute(f"SET memory_limit = '{SHED_TO}'")
        finally:
            with _ctrl_c():
                self._connection.execute(f"SET memory_limit = '{self._cache}'")

    def interrupt(self) -> None:
        """Stop what another thread runs here, if it runs something."""
        with contextlib.suppress(duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        self.rollback()
        self._connection.close()

    def leave(self) -> None:
        """Close the file as its holder, with an empty WAL if no session reads any more."""
        try:
            self.rollback()
            commit_log = self.ledger.commit_log
            if commit_log is not None:
                # a checkpoint of an empty log would write, and the log would not tell of it
                if commit_log.has_wal:
                    with contextlib.suppress(duckdb.Error), _ctrl_c():
                        self._connection.execute("CHECKPOINT")
                commit_log.end()
        finally:
            self._connection.close()

    def _end(self) -> None:
        self._is_writing = False
        self.ledger.writing.release()


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
        cursor = self._connection.cursor()
        cursor.execute("USE catalog")
        return Unwritten(cursor, self._make, self._is_made)

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
def _ctrl_c() -> Iterator[None]:
    """Raise again what a signal's handler raised: DuckDB replaces it while it works."""
    try:
        yield
    except RuntimeError as err:
        if str(err) == "Query interrupted":
            raise KeyboardInterrupt from err
        raise
