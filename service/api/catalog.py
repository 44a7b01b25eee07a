"""The catalog as requests reach it: sessions of threads, fresh indexes, names without paths."""

from __future__ import annotations

import gc
import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from ...errors import BadFilter, DeltadexError, UnknownBase, offered
from ...questions.face import opened, serving
from ...questions.face.database import Database, open

_PATH = re.compile(r"(?<![\w.:/~@-])(?:~?(?:/[\w.@+=,~-]+){2,}/?|[A-Za-z]:\\[^\s'\",;]+)")
_SHOWN_SOURCES = {"": "hub", "hub": "hub", "upload": "upload"}
"""Any other is a path of this machine."""

_SENTENCES = ("detail", "note", "notes", "reason", "sentence")
"""Keys whose texts may name a file."""

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
        return self._shown.get(base) or re.split(r"[/\\]", base.rstrip("/\\"))[-1] or base

    def meant(self, base: str) -> str:
        """The base that a shown name stands for; another name stays, and a path is refused."""
        if base in self._meant:
            return self._meant[base]
        if _is_path(base):
            raise UnknownBase(f"no family of {base!r}{offered(base, self.bases)}")
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

    def named(self, base: str | None) -> str | None:
        """A base as a model's files name it, without paths."""
        return self.shown(base) if base is not None and _is_path(base) else base

    def with_bases(self, document: Mapping[str, Any], source: str = "") -> dict[str, Any]:
        """A document with every `base` in it as it is shown, and sentences without paths. `source`:
        where the model lies that it is of; a model's own document says so itself."""
        if "base_raw" in document:
            source = document.get("source", source)
        shown = {key: self._value(key, value, source) for key, value in document.items()}
        if "base_raw" in document and "source" in document:
            shown["source"] = _SHOWN_SOURCES.get(source, "local")
        if document.get("facet") == "base":
            shown["value"] = self.shown(document["value"])
        return shown

    def _value(self, key: str, value: Any, source: str) -> Any:
        if key == "by_base" and isinstance(value, Mapping):
            return {self.shown(base): group for base, group in value.items()}
        if isinstance(value, Mapping):
            return self.with_bases(value, source)
        if isinstance(value, list) and value and isinstance(value[0], str | Mapping):
            return [self._value(key, entry, source) for entry in value]
        if not isinstance(value, str):
            return value
        if key in _SENTENCES:
            return self.redact(value, source)
        if key in ("model", "parent", "weights"):  # of a lineage: a model, or the base
            return self._shown.get(value, value)
        if key in ("card", "base_raw"):
            return self.named(value)
        if key == "path":
            return PurePath(value).name
        return self.shown(value) if key == "base" else value


def _is_path(name: str) -> bool:
    return name.startswith(("/", "~", ".")) or "\\" in name


def _short_names(bases: Sequence[str]) -> dict[str, str]:
    """Folders by their last part; by one more, and one more, while two share a name."""
    parts = {b: PurePosixPath(b).parts[1:] if b.startswith("/") else () for b in bases}
    length = dict.fromkeys(bases, 1)

    def name(base: str) -> str:
        return "/".join(parts[base][-length[base] :]) if parts[base] else base

    for _ in range(max(map(len, parts.values()), default=0)):
        times = Counter(map(name, bases))
        for base in [base for base in bases if times[name(base)] > 1]:
            length[base] = min(length[base] + 1, len(parts[base]) or 1)
    taken: dict[str, str] = {}
    for base in bases:
        shown, number = name(base), 2
        while shown in taken.values():
            shown, number = f"{name(base)} ({number})", number + 1
        taken[base] = shown
    return taken


log = logging.getLogger(__name__)

CACHE = "10%"
"""Of the memory, for DuckDB: a service searches files beside the catalog, and those are better
held by the system."""

_TEXT = re.compile(r"'(?:[^']|'')*'")
_CLOSED_COLUMNS = re.compile(r"\b(source|base_raw|base)\b", re.IGNORECASE)


class Readers:
    """Sessions on one catalog: one for each thread at work, one for the only writer.

    Other processes may read and write the file meanwhile.
    """

    def __init__(self, path: Path, *, writable: bool, engine: str = "faiss") -> None:
        self._catalog = open(
            path, create=False, read_only=not writable, memory=CACHE, engine=engine
        )
        self.path = self._catalog.path
        self._watching = self._catalog.reader()
        self._idle: deque[Database] = deque()
        self._all: list[Database] = []
        self._writing = threading.Lock()
        self._state: str = self.look()

    @contextmanager
    def catalog(self) -> Iterator[Database]:
        """A catalog for one thread; it searches the last indexes that were made ready."""
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
            prepare_indexes(self._catalog)
            self.look()

    def prepare(self, function: Callable[..., object], *args: object) -> None:
        """Call what makes something ready, of what the catalog holds now."""
        with self._catalog.reader() as reader:
            function(reader, *args)

    def look(self) -> str:
        """A token that differs after every change; waits for who writes."""
        self._state = serving.catalog_of(self._watching).changes
        return self._state

    def state(self) -> str:
        """The same as it was at the last look: the event loop must not wait."""
        return self._state

    def close(self) -> None:
        for reader in (*self._all, self._watching):
            reader.close()
        self._catalog.close()


def prepare_indexes(
    catalog: Database, goes_on: Callable[[float, list[str]], bool] = lambda *_: True
) -> None:
    for refusal in serving.prepare_searches(catalog, goes_on):
        log.warning("searches read the catalog itself: %s", refusal)


def names_of(catalog: Database) -> Names:
    """The families as they are shown now."""
    return Names(catalog.bases, catalog.path)


def find_base(catalog: Database, base: str | None) -> str | None:
    """The base that a request names, as the catalog has it; None for None."""
    return base and serving.catalog_of(catalog).find_base(names_of(catalog).meant(base))


def find_family(catalog: Database, base: str | None) -> str:
    """The same, or the only one there is."""
    return opened.find_family(serving.catalog_of(catalog), find_base(catalog, base))


def check_where(where: str | None) -> None:
    """Refuse a filter over columns that hold paths of this machine."""
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
    """Looks for changes, whoever makes them, and has the indexes caught up; `with_looks` has first
    looks at maps computed, too, once the indexes are ready."""

    def __init__(self, readers: Readers, *, with_looks: bool = False) -> None:
        self._readers, self._with_looks = readers, with_looks
        self._ending = threading.Event()
        self.ready, self.settled = threading.Event(), threading.Event()
        """Every family can be searched; and all files are there that make searches quick."""
        self.reached: tuple[float, list[str]] = (0.0, [])
        """The share of the indexes that is open, and the bases that can be searched."""
        self.prepared = ""
        """The state of the catalog that every index is caught up with."""
        self._thread = threading.Thread(target=self._run, name="deltadex-freshness")
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        # of `_run`, so that the process ends in order
        gc.unfreeze()

    def _goes_on(self) -> bool:
        return not self._ending.is_set()

    def _reaches(self, share: float, bases: list[str]) -> bool:
        self.reached = share, bases
        return self._goes_on()

    def _run(self) -> None:
        seen, rest = "", 0.0
        while not self._ending.wait(rest):
            started = time.monotonic()
            try:
                state = self._readers.look()
                if state != seen:
                    self._readers.prepare(prepare_indexes, self._reaches)
                    # garbage collection leaves out what is there now, as the names of all models
                    gc.collect()
                    gc.freeze()
            except DeltadexError as err:
                log.warning("the indexes are not caught up: %s", err)
            except Exception:
                # it is not ready: GET ready says so
                log.exception("a defect in deltadex: the catalog cannot be searched")
            else:
                self.prepared = state
                self.ready.set()
                if state != seen:
                    if self._with_looks and not seen:
                        with suppress(DeltadexError, MemoryError):  # the first look says it
                            self._readers.prepare(serving.prepare_first_looks)
                    with suppress(DeltadexError):  # the next search says it
                        self._readers.prepare(serving.bring_into_memory, self._goes_on)
                    self.settled.set()
                seen = state
            rest = max(SOONEST_S, REST * (time.monotonic() - started))
