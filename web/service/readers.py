"""How a request gets at the catalog, and what it asks of it by id, filter and page."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...errors import BadFilter, RequestError, StoreFull, UnknownModel
from ...search import StoredQuery, prepare_search
from ...store import Catalog, ModelFilter, ModelRow, Page, SketchFiles
from .names import Names

log = logging.getLogger(__name__)

CACHE = "10%"
"""Of the memory, for DuckDB: a service searches files beside the catalog, and those are better
held by the system."""

Open = Callable[[], Catalog]

_TEXT = re.compile(r"'(?:[^']|'')*'")
_CLOSED_COLUMNS = re.compile(r"\b(source|base_raw|base)\b", re.IGNORECASE)


def open_catalog(path: Path, *, writable: bool) -> Catalog:
    """The catalog that the service uses while it runs.

    Held for writing even by a service that changes nothing: who holds a file lets other
    processes in, so that models can be added while it serves. A file that cannot be written is
    opened for reading.
    """
    try:
        return Catalog.open(path, create=False, cache=CACHE)
    except StoreFull:
        if writable:
            raise
        return Catalog.open(path, create=False, read_only=True, cache=CACHE)


class Readers:
    """Sessions on one catalog: one for each thread at work, one for the only writer."""

    def __init__(self, open: Open) -> None:
        self._catalog = open()
        # asked from the event loop, so that it must never wait for a query
        self._watching = self._catalog.reader()
        self._idle: list[Catalog] = []
        self._all: list[Catalog] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """A catalog for one thread, for as long as the block; it searches the last indexes
        that were made ready."""
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        if reader is None:
            reader = self._catalog.reader(waits_for_index=False)
            with self._lock:
                self._all.append(reader)
        try:
            yield reader
        finally:
            with self._lock:
                self._idle.append(reader)

    @contextmanager
    def writing(self) -> Iterator[Catalog]:
        """The catalog, for the only writer; what it wrote is found by the next search."""
        with self._writing:
            yield self._catalog
            prepare_searches(self._catalog, lambda: True)

    @contextmanager
    def preparing(self) -> Iterator[Catalog]:
        """A catalog that waits for its indexes to be as new as it is."""
        with self._catalog.reader() as reader:
            yield reader

    def bring_into_memory(self) -> None:
        """Have the system read ahead what searches will read."""
        self._catalog.access.derived(SketchFiles).bring_into_memory()

    def state(self) -> str:
        """What is another word after every change of the catalog."""
        return self._watching.changes

    @property
    def path(self) -> Path:
        return self._catalog.path

    def close(self) -> None:
        for reader in (*self._all, self._watching):
            reader.close()
        self._catalog.close()


def prepare_searches(catalog: Catalog, goes_on: Callable[[], bool]) -> None:
    """Make every index ready for what the catalog holds now."""
    for group in catalog.stats()["recipes"]:
        recipe = catalog.recipes()[group["id"]]
        try:
            prepare_search(catalog, group["base"], recipe, goes_on=goes_on)
        except StoreFull as err:
            log.warning("searches read the catalog itself: %s", err)


def names_of(catalog: Catalog) -> Names:
    """The families as they are shown now."""
    return Names(catalog.bases(), catalog.path)


def find_model(catalog: Catalog, id: str, base: str | None) -> ModelRow:
    """The model of exactly that id; a folder's path finds nothing.

    Args:
        base: As the catalog has it.

    Raises:
        UnknownModel: there is none.
        RequestError: several families have one.
    """
    found, _ = catalog.page_of_models(ModelFilter(id=id, base=base), Page())
    if not found:
        raise UnknownModel(f"no model {id!r}; GET models?q=… finds ids by a part of them")
    found = [row for row in found if row.status == "indexed"] or found
    if len(found) > 1:
        names = names_of(catalog)
        bases = ", ".join(sorted(names.shown(row.base) for row in found))
        raise RequestError(f"{id}: several families have it; give base, one of: {bases}")
    return found[0]


def find_query(catalog: Catalog, id: str, base: str | None) -> StoredQuery:
    """A search from the model of exactly that id; raises as `find_model`."""
    found = catalog.stored_models(id, base)
    if len(found) == 1:
        return StoredQuery(found[0].id, found[0].base)
    row = find_model(catalog, id, base)
    return StoredQuery(row.id, row.base)


def check_where(where: str | None) -> None:
    """Refuse a filter over columns that hold paths of this machine.

    Raises:
        BadFilter: one of them is named.
    """
    closed = _CLOSED_COLUMNS.search(_TEXT.sub("''", where or ""))
    if closed:
        raise BadFilter(
            f"where: {closed[0]} may hold a path of the server and is not asked here; "
            "the parameter base chooses a family"
        )


def page_of_models(
    catalog: Catalog, asked: ModelFilter, page: Page, names: Names
) -> tuple[list[ModelRow], int]:
    """One page of the models that pass, and how many pass altogether.

    Args:
        asked: Its base as it is shown.

    Raises:
        BadFilter: `where` is not understood, or asks for a path.
        RequestError: there is no such base.
    """
    check_where(asked.where)
    base = asked.base and names.meant(asked.base)
    return catalog.page_of_models(replace(asked, base=base), page)
