"""What every part of the face works on: an open catalog, and how progress is shown."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from ..options import Place as Place
from ..store import Catalog
from ..store import Create as Create

Thing = TypeVar("Thing")


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
