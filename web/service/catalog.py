"""The catalog as requests reach it: sessions of threads, fresh indexes, names without paths."""

from __future__ import annotations

import gc
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from ...database import Database, open, serving
from ...errors import BadFilter, DeltadexError, RequestError, offered

_PATH = re.compile(r"(?<![\w.:/~@-])(?:~?(?:/[\w.@+=,~-]+){2,}/?|[A-Za-z]:\\[^\s'\",;]+)")
_OPEN_SOURCES = ("", "hub", "upload")
_SHOWN_SOURCES = {"": "hub"}
_OPTIONS = re.compile(r"--(base|where|recipe|exclude|dataset|author)\b")


class Names:
    """Families by the names that are shown: a folder by its last parts, as few as tell it."""

    def __init__(self, bases: Sequence[str], catalog_path: Path) -> None:
        self._catalog_path = catalog_path
        self._shown = _short_names(bases)
        self._meant = {shown: base for base, shown in self._shown.items()}

    @property
    def bases(self) -> list[str]:
        """The families as they are shown, sorted."""
        return sorted(self._meant)

    def shown(self, base: str) -> str:
        """A base's name without its folder's place."""
        return self._shown.get(base) or _last_part(base)

    def meant(self, base: str) -> str:
        """The base that a shown name stands for; any other name stays as it is.

        Raises:
            RequestError: it is a path, which no request needs.
        """
        if base in self._meant:
            return self._meant[base]
        if base.startswith(("/", "~", ".")) or "\\" in base:
            raise RequestError(f"no family of {base!r}{offered(base, self.bases)}")
        return base

    def redact(self, text: str, source: str = "") -> str:
        """A sentence with every path of this machine cut to its last part."""
        for place in (source, str(self._catalog_path), *self._shown):
            if len(place) > 1 and place.startswith("/"):
                below = re.compile(re.escape(place) + r"(?:/[^\s'\",:;]+|(?![\w.-]))")
                text = below.sub(lambda match: self.shown(match[0]), text)
        return _PATH.sub(lambda match: self.shown(match[0]), text)

    def problem_text(self, text: str) -> str:
        """An error's message as a client may read it: no paths, no options of commands."""
        return _OPTIONS.sub(r"\1", self.redact(text))

    def model(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """A model's document as `ls --json` has it, without paths."""
        source = model["source"]
        document = dict(model)
        document["base"] = self.shown(model["base"])
        document["source"] = (
            _SHOWN_SOURCES.get(source, source) if source in _OPEN_SOURCES else "local"
        )
        if model["base_raw"] is not None:
            document["base_raw"] = self.base_raw(model["base_raw"])
        if model["reason"] is not None:
            document["reason"] = self.redact(model["reason"], source)
        document["notes"] = [self.redact(note, source) for note in model["notes"]]
        return document

    def base_raw(self, name: str) -> str:
        """The base as a model names it; a path by its last part."""
        is_path = name.startswith(("/", "~", ".")) or "\\" in name
        return self.shown(name) if is_path else name

    def with_bases(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A small document with every `base` in it as it is shown."""
        return {key: self._value(key, value) for key, value in document.items()}

    def _value(self, key: str, value: Any) -> Any:
        if key == "base" and isinstance(value, str):
            return self.shown(value)
        if key == "by_base" and isinstance(value, Mapping):
            return {self.shown(base): group for base, group in value.items()}
        if isinstance(value, Mapping):
            return self.with_bases(value)
        if isinstance(value, list):
            return [self.with_bases(v) if isinstance(v, Mapping) else v for v in value]
        return value


def _short_names(bases: Sequence[str]) -> dict[str, str]:
    """Folders by their last part; by one more, and one more, while two share a name."""
    parts = {base: _parts(base) for base in bases}
    length = dict.fromkeys(bases, 1)

    def name(base: str) -> str:
        return "/".join(parts[base][-length[base] :]) if parts[base] else base

    for _ in range(max((len(p) for p in parts.values()), default=0)):
        for base in _clashing(bases, name):
            length[base] = min(length[base] + 1, len(parts[base]) or 1)
    taken: dict[str, str] = {}
    for base in bases:
        shown, number = name(base), 2
        while shown in taken.values():
            shown, number = f"{name(base)} ({number})", number + 1
        taken[base] = shown
    return taken


def _clashing(bases: Sequence[str], name: Callable[[str], str]) -> list[str]:
    shown = [name(base) for base in bases]
    return [base for base in bases if shown.count(name(base)) > 1]


def _parts(base: str) -> tuple[str, ...]:
    """The parts of a folder's path; none for a name, which is shown as it is."""
    return PurePosixPath(base).parts[1:] if base.startswith("/") else ()


def _last_part(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1] or path


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
        serving.bring_into_memory(self._catalog)

    def state(self) -> str:
        """A token that changes with every commit."""
        return serving.changes(self._watching)

    @property
    def path(self) -> Path:
        return self._catalog.path

    def close(self) -> None:
        for reader in (*self._all, self._watching):
            reader.close()
        self._catalog.close()


def _prepare(catalog: Database, goes_on: Callable[[], bool]) -> None:
    for refusal in serving.prepare_searches(catalog, goes_on):
        log.warning("searches read the catalog itself: %s", refusal)


def names_of(catalog: Database) -> Names:
    """The families as they are shown now."""
    return Names(catalog.bases, catalog.path)


def find_base(catalog: Database, base: str | None) -> str | None:
    """The base that a request names, as the catalog has it; None for None.

    Raises:
        RequestError: there is none.
    """
    return base and serving.find_base(catalog, names_of(catalog).meant(base))


def find_family(catalog: Database, base: str | None) -> str:
    """The same, or the only one there is; raises also where there are several."""
    return serving.find_family(catalog, find_base(catalog, base))


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


SOONEST_S = 1.0
"""Between two looks at the catalog."""

REST = 4.0
"""Time without work after work, as a multiple of what it took: requests come first."""


class Freshness:
    """Looks for changes, whoever makes them, and has the indexes caught up."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._ready = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deltadex-freshness")
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether every family can be searched."""
        return self._ready.is_set()

    def wait_until_ready(self, seconds: float) -> bool:
        """Whether it became ready in that time."""
        return self._ready.wait(seconds)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        collect_again()

    def _run(self) -> None:
        seen, rest = "", 0.0
        while not self._ending.wait(rest):
            started = time.monotonic()
            try:
                state = self._readers.state()
                if state != seen:
                    self._readers.prepare(lambda: not self._ending.is_set())
                    rest_from_collecting()
            except DeltadexError as err:
                log.warning("the indexes are not caught up: %s", err)
            except Exception:
                # it is not ready: GET ready says so
                log.exception("a defect in deltadex: the catalog cannot be searched")
            else:
                self._ready.set()
                if state != seen:
                    self._readers.bring_into_memory()
                seen = state
            rest = max(SOONEST_S, REST * (time.monotonic() - started))


def rest_from_collecting() -> None:
    """Exclude the present objects from garbage collection, such as the names of all models."""
    gc.collect()
    gc.freeze()


def collect_again() -> None:
    """Undo `rest_from_collecting`, so that the process ends in order."""
    gc.unfreeze()
