"""What every part of the face works on: an open catalog, and how progress is shown."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from ..errors import StoreFull, StoreLocked
from ..options import Place as Place
from ..store import Catalog
from ..store import Create as Create

Thing = TypeVar("Thing")
Face = TypeVar("Face", bound="Opened")


@runtime_checkable
class Track(Protocol):
    """Passes on the things that it is given, and shows how far they are."""

    def __call__(
        self, things: Iterable[Thing], what: str, *, total: int | None = None
    ) -> Iterator[Thing]: ...


@runtime_checkable
class SizedTrack(Protocol):
    """Passes on things of which the number is known, and shows how far they are."""

    def __call__(self, things: Iterable[Thing], what: str, total: int) -> Iterator[Thing]: ...


def untracked(things: Iterable[Thing], what: str, *, total: int | None = None) -> Iterator[Thing]:
    """The same things, without a sign of progress."""
    yield from things


class Opened:
    """An open catalog; `opening` closes it."""

    def __init__(self, catalog: Catalog, opening: ExitStack, track: Track = untracked) -> None:
        self._catalog, self._track = catalog, track
        # also at the end of a program that does not close it
        self._close = weakref.finalize(self, opening.close)

    @property
    def path(self) -> Path:
        """The catalog's file."""
        return self._catalog.path

    @property
    def bases(self) -> list[str]:
        """The bases of the catalog's families, sorted."""
        return self._catalog.bases()

    def close(self) -> None:
        """Close the file; a temporary catalog is deleted."""
        self._close()

    def __enter__(self: Face) -> Face:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_as(
    kind: type[Face],
    path: Place | None,
    *,
    read_only: bool | None,
    create: Create,
    memory: str | None = None,
    engine: str = "faiss",
    track: Track = untracked,
) -> Face:
    """What `deltadex.open` does, for another class: a record is answered without the whole face."""
    opening = ExitStack()
    if path is None:
        import tempfile

        folder = opening.enter_context(tempfile.TemporaryDirectory(prefix="deltadex-"))
        path = Path(folder) / "catalog.duckdb"
    path = Path(path).expanduser()
    try:
        catalog = Catalog.open(
            path,
            read_only=bool(read_only),
            create=False if read_only else create,
            cache=memory,
        )
    except (StoreFull, StoreLocked):
        if read_only is not None:
            raise
        catalog = Catalog.open(path, read_only=True, create=False, cache=memory)
    opening.push(catalog)
    if engine != "faiss":
        from ..store import use_exported

        try:
            use_exported(catalog, engine)
        except BaseException:
            opening.close()
            raise
    return kind(catalog, opening, track)
