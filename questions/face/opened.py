"""What every question works on: an open catalog, one of its families, and signs of progress."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from ...errors import BadFilter, RequestError, StoreFull, StoreLocked, offered
from ...options import Answers, Place, Question, argument, check_name, option, record
from ...results import Table
from ...store import Filters
from ...study.registry import Studies

if TYPE_CHECKING:
    from ...store import AttachedIndex, Catalog


Tabled: TypeAlias = Answers[Table]
"""A question whose answer is a table."""

Create = bool | Literal["late"]
"""Whether a catalog is made where there is none; `late` with the first change."""

Kind = Literal["full", "adapter"]
"""Of models: full checkpoints, or PEFT adapters."""

ONLY_FAMILY = "Only this family, where the catalog has several."
"""What `base` says to a question."""

Thing = TypeVar("Thing")

Face = TypeVar("Face", bound="Opened")

Answer = TypeVar("Answer")


@runtime_checkable
class Track(Protocol):
    """Passes on the things that it is given, and shows how far they are."""

    def __call__(
        self, things: Iterable[Thing], what: str, *, total: int | None = None
    ) -> Iterator[Thing]: ...


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

    @property
    def studies(self) -> Studies:
        """Studies of models; those of an indexed model are stored beside its fingerprint."""
        return Studies(self._catalog, self._track)

    def ask(self, asked: Answers[Answer]) -> Answer:
        """The answer of a question that is given as its record; every method asks this way.

        >>> db.ask(questions.Explain("imdb-0", "imdb-1")).to_json()["model"]
        'imdb-1'
        """
        try:
            return asked.answer(self)
        except OSError as err:
            if err.errno != errno.ENAMETOOLONG:
                raise
            name = str(err.filename)[:40]
            raise RequestError(f"{name}…: no such model or file: the name is too long") from err

    def reader(self: Face, *, waits_for_index: bool = True) -> Face:
        """The same catalog for another thread, to be closed before this one.

        Args:
            waits_for_index: Whether searches see every change; else the indexes as they are.

        >>> with db.reader() as reader:
        ...     len(reader.models())
        4
        """
        catalog = self._catalog.reader(waits_for_index=waits_for_index)
        opening = ExitStack()
        opening.push(catalog)
        return type(self)(catalog, opening, self._track)

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
    from ...store import Catalog

    check_name("path", path)
    opening = ExitStack()
    if path is None:
        import tempfile

        folder = opening.enter_context(tempfile.TemporaryDirectory(prefix="deltadex-"))
        path = Path(folder) / "catalog.duckdb"
    path = Path(path).expanduser()
    try:
        catalog = Catalog.open(
            path, read_only=bool(read_only), create=False if read_only else create, cache=memory
        )
    except (StoreFull, StoreLocked):
        if read_only is not None:
            raise
        catalog = Catalog.open(path, read_only=True, create=False, cache=memory)
    opening.push(catalog)
    if engine != "faiss":
        from ...store import use_exported

        try:
            use_exported(catalog, engine)
        except BaseException:
            opening.close()
            raise
    return kind(catalog, opening, track)


@record
class Family(Question):
    """A question about one family, under one recipe."""

    _: KW_ONLY
    recipe: str | None = option(
        default=None, shown_default="sketch", help="Name or id of a recipe."
    )
    base: str | None = option(default=None, help=ONLY_FAMILY)


def find_family(catalog: Catalog, base: str | None) -> str:
    """The base as the catalog has it, or of its only family; `RequestError` where several are."""
    family, bases = catalog.find_base(base), catalog.bases()
    if family is not None:
        return family
    if not bases:
        catalog.find_recipe(None)  # says what fills a catalog
    if len(bases) != 1:
        raise RequestError(f"which family? Add --base, one of: {', '.join(bases) or 'none yet'}")
    return bases[0]


def require_labels(
    catalog: Catalog, wanted: Filters, attached: Sequence[AttachedIndex] = ()
) -> None:
    """Raises `BadFilter` for a dataset or author that no model has, here or in attached indexes."""
    for column in Filters.equal:
        label = getattr(wanted, column)
        if label is not None:
            beside = (index.models.column(column).unique().to_pylist() for index in attached)
            known = sorted({*catalog.alike(column, label), *filter(None, chain(*beside))})
            if label not in known:
                raise BadFilter(f"no model has the {column} {label!r}{offered(label, known)}")


@record
class OneModel(Question):
    """A model of the catalog."""

    model: str = argument(help="Id of the model.")
    base: str | None = option(default=None, help=ONLY_FAMILY)
