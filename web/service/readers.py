"""The catalog as requests reach it: a session for each thread, ids and filters that are safe."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...database import Database, open
from ...errors import BadFilter
from .names import Names

log = logging.getLogger(__name__)

CACHE = "10%"
"""Of the memory, for DuckDB: a service searches files beside the catalog, and those are better
held by the system."""

_TEXT = re.compile(r"'(?:[^']|'')*'")
_CLOSED_COLUMNS = re.compile(r"\b(source|base_raw|base)\b", re.IGNORECASE)


class Readers:
    """Sessions on one catalog: one for each thread at work, one for the only writer.

    The file is held for writing even by a service that changes nothing: who holds a file lets
    other processes in, so that models can be added while it serves. A file that cannot be
    written is opened for reading, unless the service is `writable`.
    """

    def __init__(self, path: Path, *, writable: bool, engine: str = "faiss") -> None:
        read_only = False if writable else None
        self._catalog = open(path, create=False, read_only=read_only, memory=CACHE, engine=engine)
        # asked from the event loop, so that it must never wait for a query
        self._watching = self._catalog.reader()
        self._idle: deque[Database] = deque()
        self._all: list[Database] = []
        self._writing = threading.Lock()

    @contextmanager
    def catalog(self) -> Iterator[Database]:
        """A catalog for one thread, for as long as the block; it searches the last indexes
        that were made ready."""
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = self._catalog.reader(waits_for_index=False)
            self._all.append(reader)
        try:
            yield reader
        finally:
            self._idle.append(reader)

    @contextmanager
    def writing(self) -> Iterator[Database]:
        """The catalog, for the only writer; the next search sees what it wrote."""
        with self._writing:
            yield self._catalog
            _prepare(self._catalog, lambda: True)

    def prepare(self, goes_on: Callable[[], bool]) -> None:
        """Make every index ready for what the catalog holds now."""
        with self._catalog.reader() as reader:
            _prepare(reader, goes_on)

    def bring_into_memory(self) -> None:
        """Have the system read ahead what searches will read."""
        self._catalog.bring_into_memory()

    def state(self) -> str:
        """A token that changes with every commit."""
        return self._watching.changes

    @property
    def path(self) -> Path:
        return self._catalog.path

    def close(self) -> None:
        for reader in (*self._all, self._watching):
            reader.close()
        self._catalog.close()


def _prepare(catalog: Database, goes_on: Callable[[], bool]) -> None:
    for refusal in catalog.prepare_searches(goes_on):
        log.warning("searches read the catalog itself: %s", refusal)


def names_of(catalog: Database) -> Names:
    """The families as they are shown now."""
    return Names(catalog.bases, catalog.path)


def find_base(catalog: Database, base: str | None) -> str | None:
    """The base that a request names, as the catalog has it; None for None.

    Raises:
        RequestError: there is none.
    """
    return base and catalog.find_base(names_of(catalog).meant(base))


def find_family(catalog: Database, base: str | None) -> str:
    """The same, or the only one there is; raises also where there are several."""
    return catalog.find_family(find_base(catalog, base))


def check_where(where: str | None) -> None:
    """Refuse a filter over columns that hold paths of this machine.

    Raises:
        BadFilter: one of them is named.
    """
    closed = _CLOSED_COLUMNS.search(_TEXT.sub("''", where or ""))
    if closed:
        raise BadFilter(
            f"where: {closed[0]} may hold a path of the server and cannot be used here; "
            "the parameter base chooses a family"
        )
