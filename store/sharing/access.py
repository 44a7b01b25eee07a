"""Access of a process to a catalog file, which it or another process holds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from ...errors import StoreFull, StoreLocked
from .beside import Gone, HolderFile
from .local import LocalSession, RawSession

if TYPE_CHECKING:
    from .remote import Host

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long to wait for a file whose holder accepts no guests: mostly a reading command."""

BETWEEN_TRIES_S = 0.05


@runtime_checkable
class Derived(Protocol):
    """Something derived from a catalog, open for as long as the catalog is."""

    def close(self) -> None: ...


D = TypeVar("D", bound=Derived)


class Access:
    """This process's access to a catalog file: it holds the file, or is a guest of the holder.

    Attributes:
        path: As the user named it.
        generation: How often the file was opened or joined again.
    """

    def __init__(
        self,
        path: Path,
        open_own: Callable[[], LocalSession],
        check: Callable[[RawSession, HolderFile], None],
        shares: bool,
    ) -> None:
        """Open the file, or join the process that holds it.

        Args:
            open_own: Opens the file itself; raises `StoreLocked` while it is held.
            check: Raises what is wrong with the catalog of another process, by its note.
            shares: Whether others are let in while this process holds the file.

        Raises:
            StoreLocked: held for longer than `PATIENCE_S` by a process that accepts no guests.
            StoreError: whatever else opening raises.
        """
        self.path, self._file = path, path.resolve()
        self._open_own, self._check, self._shares = open_own, check, shares
        self._changing = threading.Lock()
        self._host: Host | None = None
        self._derived: dict[type[Derived], Any] = {}
        self.generation = 0
        self._root = self._enter()

    def session(self, after: int = -1) -> tuple[int, RawSession]:
        """A session, and the generation of what it is a session of.

        Args:
            after: A generation that has ended; the file is opened or joined again, once.
        """
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
        """The one object of that class that all readers of this file share."""
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

                guest = join(self._file)
                if guest is not None:
                    try:
                        self._check(guest, guest.note)
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
        if self._shares and own.is_shared:
            from .remote import Host

            try:
                self._host = Host(self._file, own)
            except (OSError, StoreFull) as err:
                log.debug("%s is not shared: %s", self.path, err)
        return own
