"""Access to a catalog file, which this or another process holds, and sessions on it: statements,
transactions, snapshots, DuckDB's errors, the next try when the process that held the file ended."""

from __future__ import annotations

import itertools
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from ..errors import HolderLost, StoreDamaged, StoreError, StoreFull, StoreLocked
from .sharing import UNSETTLED, Gone, LocalSession, RawSession

if TYPE_CHECKING:
    from .remote import Host

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import pyarrow as pa  # for annotations alone

T = TypeVar("T")
D = TypeVar("D")

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long to wait for a file whose holder accepts no guests: mostly a reading command."""

ENTERS_AGAIN_S = 0.05

NOW = "CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)"

HOLDERS_LOST = 20
"""Holders that may end, one after the other, while one question or change is repeated."""

SETTLE_TRIES = 5
"""Times that a snapshot is begun again because a change was committed meanwhile: what is cached
under its token is of exactly its moment. After that its token is one that nobody else has."""

BETWEEN_TRIES_S = 0.002

_UNIQUE = itertools.count()


class _MomentPassed(Exception):
    """The catalog changed between a question's first look at its token and its first statement."""


_HELD = ("conflicting lock", "could not set lock", "being used by", "unique file handle conflict")

_PATH = re.compile(r'"[^"\n]*/[^"\n]*"')
"""In DuckDB's messages: any word may be part of it."""

_NOT_WRITTEN = re.compile(r'could not (?:write|fsync|truncate|create)[^:\n]*: ([^\n"]+)')


class Access:
    """This process's access to a catalog file: it holds the file, or is a guest of the holder; its
    generation counts how often the file was opened or joined again."""

    def __init__(
        self,
        path: Path,
        open_own: Callable[[], LocalSession],
        check: Callable[[RawSession], None],
        shares: bool,
    ) -> None:
        """Open the file, or join the process that holds it.

        Args:
            open_own: Opens the file itself; raises `StoreLocked` while it is held.
            check: Raises what is wrong with the catalog of another process.
            shares: Whether others are let in while this process holds the file.

        Raises:
            StoreLocked: held for longer than `PATIENCE_S` by a process that accepts no guests.
            StoreError: whatever else opening raises.
        """
        self.path, self._file = path, path.resolve()
        self._open_own, self._check, self._shares = open_own, check, shares
        self._changing = threading.Lock()
        self._host: Host | None = None
        self._derived: dict[type, Any] = {}
        self.generation = 0
        self._root = self._enter()

    def session(self, after: int = -1) -> tuple[int, RawSession]:
        """A session, and the generation of what it is a session of. The file is opened or joined
        again where the generation `after` is the last."""
        with self._changing:
            if after == self.generation:
                self._reenter()
            while True:
                try:
                    return self.generation, self._root.session()
                except Gone:
                    self._reenter()

    def shed(self) -> None:
        """Give back the memory of the file's pages, if this process holds it and no guest is in."""
        with self._changing:
            if not isinstance(self._root, LocalSession):
                return
            with self._host.alone() if self._host else nullcontext(True) as is_alone:
                if is_alone:
                    self._root.shed()

    def derived(self, kind: type[D]) -> D:
        """The one object of that class that all readers of this file share; closed with it."""
        shared: D = self._derived.get(kind) or self._derived.setdefault(kind, kind())
        return shared

    def close(self) -> None:
        for derived in self._derived.values():
            derived.close()
        self._derived.clear()
        if self._host is not None:
            self._host.close()
            self._host = None
        if isinstance(self._root, LocalSession):
            self._root.leave()
        else:
            self._root.close()

    def _reenter(self) -> None:
        self._root.close()
        self._root = self._enter()
        self.generation += 1

    def _enter(self) -> RawSession:
        given_up_at, has_said = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                own = self._open_own()
                break
            except StoreLocked as err:
                from .remote import join

                if guest := join(self._file):
                    try:
                        self._check(guest)
                        return guest
                    except BaseException as fault:
                        guest.close()
                        # the holder ended just now: the file is free, or another's
                        if not isinstance(fault, Gone):
                            raise
                if time.monotonic() > given_up_at:
                    raise
                if not has_said:
                    log.info("waiting: %s", err)
                    has_said = True
            time.sleep(ENTERS_AGAIN_S)
        if self._shares and own.is_shared:
            from .remote import Host

            try:
                self._host = Host(self._file, own)
            except (OSError, StoreFull) as err:
                log.debug("%s is not shared: %s", self.path, err)
        return own


class Session:
    """One session on a catalog file; threads take turns.

    A statement outside a transaction is run again when the process that held the file ended.
    Inside one, the transaction is lost: `write` and `look` begin it again.

    Every method raises `StoreError` for what DuckDB refuses.
    """

    def __init__(self, access: Access, *, about: Path | None = None) -> None:
        """`about`: The file that errors name, if not the catalog."""
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
            return _while_holders_end(lambda: self._transact(change))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read the catalog of the moment of the block's first statement, or of the block around."""
        with self.turn():
            if self._is_inside or self._will_look:
                yield
                return
            self._will_look = True
            try:
                yield
            finally:
                try:
                    if self._is_inside:
                        # a holder that ended holds no snapshot
                        with suppress(HolderLost):
                            self._run(lambda raw: raw.rollback())
                finally:
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

            def answer() -> T:
                with self.snapshot():
                    return question()

            return _while_holders_end(answer)

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
                    f"{self.path}: the process that held the catalog ended meanwhile, and nothing "
                    "was changed; run the command again"
                ) from err
        return self._run(question)


def _while_holders_end(attempt: Callable[[], T]) -> T:
    for _ in range(HOLDERS_LOST):
        with suppress(HolderLost):
            return attempt()
    return attempt()


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
