"""A session on a catalog file, whoever holds it; found again when that process ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import duckdb
import pyarrow as pa

from ...errors import HolderLost, StoreLocked
from .guest import Guest, join
from .host import Host, Own
from .wire import Gone

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long a file is waited for whose holder lets nobody in: a reading command, mostly."""

BETWEEN_TRIES_S = 0.05

T = TypeVar("T")


@runtime_checkable
class Derived(Protocol):
    """What was derived from a catalog and is held open with it."""

    def close(self) -> None: ...


D = TypeVar("D", bound=Derived)


class Access:
    """A catalog file as this process reaches it: it holds the file, or is let in."""

    def __init__(
        self, path: Path, open_own: Callable[[], Own], check: Callable[[Guest], None], shares: bool
    ) -> None:
        """Open the file, or join the process that holds it.

        Args:
            open_own: Opens the file itself; raises `StoreLocked` while it is held.
            check: Of a session at another process, whether its catalog can be used.
            shares: Whether others are let in while this process holds the file.

        Raises:
            StoreLocked: held for longer than `PATIENCE_S` by one that lets nobody in.
            StoreError: whatever else opening raises.
        """
        self._path = path.resolve()
        self._open_own, self._check, self._shares = open_own, check, shares
        self._changing = threading.Lock()
        self._host: Host | None = None
        self._derived: dict[type[Derived], Any] = {}
        self.generation = 0
        self._root = self._enter()

    def session(self, after: int = -1) -> tuple[int, Own | Guest]:
        """A session, and the generation of what it is a session of.

        Args:
            after: A generation that is gone; the file is entered anew unless that was done.
        """
        with self._changing:
            if after == self.generation:
                self._enter_anew()
            while True:
                try:
                    return self.generation, self._root.session()
                except Gone:
                    self._enter_anew()

    def shed(self) -> None:
        """Give back the memory of the file's pages, if this process holds it and no guest is in."""
        with self._changing:
            if isinstance(self._root, Guest):
                return
            with self._host.alone() if self._host else nullcontext(True) as is_alone:
                if is_alone:
                    self._root.shed()

    def derived(self, kind: type[D]) -> D:
        """The one object of that class that all readers of this file share."""
        held: D = self._derived.get(kind) or self._derived.setdefault(kind, kind())
        return held

    def close(self) -> None:
        for held in self._derived.values():
            held.close()
        self._derived.clear()
        if self._host is not None:
            self._host.close()
            self._host = None
        self._root.close()

    def _enter_anew(self) -> None:
        self._root.close()
        self._root = self._enter()
        self.generation += 1

    def _enter(self) -> Own | Guest:
        given_up_at, has_said = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                return self._hold(self._open_own())
            except StoreLocked as err:
                guest = join(self._path)
                if guest is not None:
                    try:
                        self._check(guest)
                        return guest
                    except Gone:
                        # the holder ended just now: the file is free, or another's
                        guest.close()
                    except BaseException:
                        guest.close()
                        raise
                if time.monotonic() > given_up_at:
                    raise
                if not has_said:
                    log.info("waiting: %s", err)
                    has_said = True
            time.sleep(BETWEEN_TRIES_S)

    def _hold(self, own: Own) -> Own:
        if self._shares:
            try:
                self._host = Host(self._path, own)
            except OSError as err:
                log.debug("%s is not shared: %s", self._path, err)
        return own


class Connection:
    """One session. One thread at a time.

    A statement outside a transaction is asked again when the holder ended; inside one, the
    transaction is lost and `HolderLost` says so: nothing of it was done.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._generation, self._session = access.session()
        self._registered: dict[str, pa.Table] = {}
        self._is_inside = self._will_look = False

    def reader(self) -> Connection:
        """Another session on the same file, for another thread."""
        return Connection(self._access)

    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        self._begin_to_look()
        return self._asked(lambda session: session.execute(sql, values))

    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table:
        """The same as a table."""
        self._begin_to_look()
        return self._asked(lambda session: session.arrow(sql, values))

    @contextmanager
    def registered(self, name: str, table: pa.Table) -> Iterator[None]:
        """`table` under that name, for statements of the block."""
        self._asked(lambda session: session.register(name, table))
        self._registered[name] = table
        try:
            yield
        except BaseException:
            del self._registered[name]
            # an aborted transaction refuses this too; what aborted it is to be told
            with suppress(duckdb.Error):
                self._asked(lambda session: session.unregister(name))
            raise
        del self._registered[name]
        self._asked(lambda session: session.unregister(name))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block's changes, or none; one writer at a time."""
        self._asked(lambda session: session.begin())
        self._is_inside = True
        try:
            yield
            self._asked(lambda session: session.commit())
        except BaseException:
            if self._is_inside:
                self._asked(lambda session: session.rollback())
            raise
        finally:
            self._is_inside = False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """The catalog of one moment, that of its first question, for all that the block reads; a
        block inside one is part of it."""
        if self._is_inside or self._will_look:
            yield
            return
        self._will_look = True
        try:
            yield
        finally:
            if self._is_inside:
                self._asked(lambda session: session.rollback())
            self._is_inside = self._will_look = False

    def looked(self, question: Callable[[], T]) -> T:
        """What a question finds in a snapshot; asked again where the holder ended, unless it is
        part of a larger one."""
        is_part = self._is_inside or self._will_look
        try:
            with self.snapshot():
                return question()
        except HolderLost:
            if is_part:
                raise
        with self.snapshot():
            return question()

    def changes(self) -> str:
        """Another word after every change of the catalog, whoever made it."""
        return self._asked(lambda session: session.changes())

    def close(self) -> None:
        self._session.close()

    def _begin_to_look(self) -> None:
        """Begin the snapshot that a block has asked for, if it has not begun."""
        if self._will_look and not self._is_inside:
            self._asked(lambda session: session.look())
            self._will_look, self._is_inside = False, True

    def _asked(self, question: Callable[[Own | Guest], T]) -> T:
        try:
            return question(self._session)
        except Gone as err:
            self._session.close()
            was_inside, self._is_inside = self._is_inside, False
            self._generation, self._session = self._access.session(self._generation)
            for name, table in self._registered.items():
                self._asked(lambda session, n=name, t=table: session.register(n, t))  # type: ignore[misc]
            if was_inside:
                raise HolderLost(
                    "the process that held the catalog ended, and what was not committed is lost"
                ) from err
        return self._asked(question)
