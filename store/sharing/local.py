"""Sessions on a catalog file: what every one does, and those of the process that holds the file."""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import duckdb

from ..files import sync_folder

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
    """A session on a file that this process holds. One thread at a time."""

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
        self.ledger.is_committing = True
        try:
            with _ctrl_c():
                self._connection.execute("COMMIT")
        finally:
            # an interrupted commit may have been made
            self.ledger.n_changes += 1
            self.ledger.is_committing = False
        self.ledger.keep_log()
        self._end()

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
            with contextlib.suppress(duckdb.OutOfMemoryException):
                self._connection.execute(f"SET memory_limit = '{SHED_TO}'")
        finally:
            self._connection.execute(f"SET memory_limit = '{self._cache}'")

    def interrupt(self) -> None:
        """Stop what another thread runs here, if it runs something."""
        with contextlib.suppress(duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        self.rollback()
        self._connection.close()

    def _end(self) -> None:
        self._is_writing = False
        self.ledger.writing.release()


@contextmanager
def _ctrl_c() -> Iterator[None]:
    """Raise again what a signal's handler raised: DuckDB replaces it while it works."""
    try:
        yield
    except RuntimeError as err:
        if str(err) == "Query interrupted":
            raise KeyboardInterrupt from err
        raise
