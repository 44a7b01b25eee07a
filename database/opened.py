"""What every part of the face works on: an open catalog, and how progress is shown."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from ..errors import BadFilter, RequestError, offered
from ..store import Catalog
from ..store import Create as Create

if TYPE_CHECKING:
    from ..store import AttachedIndex

Thing = TypeVar("Thing")

Place = str | Path


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

    def find_base(self, base: str | None) -> str | None:
        """The base as the catalog has it, from any spelling of it; None for None.

        Raises:
            UnknownBase: there is no such family, or several.

        >>> db.find_base("base") == db.bases[0]
        True
        """
        return self._catalog.find_base(base)

    def find_family(self, base: str | None) -> str:
        """The base as the catalog has it; of the only family, where `base` is None.

        Raises:
            RequestError: there are several families.

        >>> db.find_family(None) == db.bases[0]
        True
        """
        family = self.find_base(base)
        if family is not None:
            return family
        if len(self.bases) != 1:
            bases = ", ".join(self.bases) or "none yet"
            raise RequestError(f"which family? Give --base, one of: {bases}")
        return self.bases[0]

    def _require_labels(
        self, dataset: str | None, author: str | None, attached: Sequence[AttachedIndex] = ()
    ) -> None:
        """Refuse a dataset or an author that no model has, here or in an attached index.

        Raises:
            BadFilter: with the nearest labels.
        """
        for column, label in {"dataset": dataset, "author": author}.items():
            if label is not None:
                beside = (index.models.column(column).unique().to_pylist() for index in attached)
                known = sorted({*self._catalog.alike(column, label), *filter(None, chain(*beside))})
                if label not in known:
                    raise BadFilter(f"no model has the {column} {label!r}{offered(label, known)}")
