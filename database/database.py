"""The public face: one catalog, and everything that can be asked of it and done with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StoreFull, StoreLocked
from ..store import Catalog
from ..study.registry import STUDIES, Studies
from .copying import Copying
from .exchange import Exchange
from .members import Members
from .opened import Create, Place, Track, untracked
from .questions import Questions
from .serving import Serving
from .several_data_questions import SeveralDataQuestions
from .tables import FindingTable, Row


def open(
    path: Place | None = None,
    *,
    read_only: bool | None = False,
    create: Create = True,
    memory: str | None = None,
    engine: str = "faiss",
    track: Track = untracked,
) -> Database:
    """Open the catalog in the file `path`; close it with `close`, or use it in a `with` block.

    Other processes may use the file at the same time, unless it is opened `read_only`.

    Args:
        path: A file; None for a temporary catalog that `close` deletes.
        read_only: Whether the catalog is only read; None reads it where it cannot be written.
        create: Whether a file that does not exist is made, `late` with the first change; never
            where `read_only` is true.
        memory: How much memory DuckDB may take: `2GB`, `10%`; half of it by default.
        engine: What gives the candidates of searches: `faiss`; `qdrant`, the targets of the last
            exports; or a target of `export_vectors`, for the family that it holds.
        track: Shows the progress of what takes long.

    Raises:
        EmptyCatalog: there is no such file.
        StoreError: it is locked, damaged, not a catalog, or of a later version; or the engine is
            not reached.
        RequestError: there is no such engine, or no export.

    >>> with dx.open("family.duckdb", read_only=True) as family:
    ...     len(family.models())
    4
    """
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
    return Database(catalog, opening, track)


def doctor(
    path: Place,
    *,
    check: bool = False,
    track: Track = untracked,
    report: Callable[[Row], None] | None = None,
) -> FindingTable:
    """Check the catalog in the file `path`, and repair what is derived from it.

    Args:
        check: Whether nothing is repaired.
        track: Shows the progress of long checks.
        report: Is called with each row as soon as its check is done.

    Returns:
        A row for each check: `check`, `state` (`ok`, `note`, `repaired`, `problem`), `detail`,
        `advice`. A file that is not there or no catalog is a finding, not an error.

    >>> dx.doctor("family.duckdb", check=True).problems
    0
    """
    from ..store import examine

    rows = []
    for finding in examine(Path(path), repairs=not check, track=track):
        rows.append(finding.to_json())
        if report is not None:
            report(rows[-1])
    states = [row["state"] for row in rows]
    return FindingTable(
        {
            "db": str(path),
            "checks": rows,
            "repaired": states.count("repaired"),
            "problems": states.count("problem"),
        }
    )


def check_picture_ending(path: Place) -> None:
    """Refuse a file name that no picture of a study can have.

    Raises:
        RequestError: its ending is not one of a picture.
    """
    from ..study.pictures import check_ending

    check_ending(Path(path))


class Database(Members, Copying, Exchange, Questions, SeveralDataQuestions, Serving):
    """An open catalog of fine-tuned models; `open` makes one.

    One thread at a time; others take a `reader`. Models are named by their id, `base` chooses a
    family by its base where the catalog has several, `recipe` one kind of fingerprint by name or
    id. Results are tables (`to_pandas`, `to_arrow`) with a document (`to_json`). Every method
    raises `UnknownModel`, `UnknownBase`, `UnknownRecipe` and `EmptyCatalog` for what is not there.
    """

    @property
    def studies(self) -> Studies:
        """Studies of models; those of an indexed model are stored beside its fingerprint."""
        return Studies(self._catalog, self._track)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A study by its former name: `db.rank` is `db.studies.rank`."""
            if name not in STUDIES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.studies, name)

    def reader(self, *, waits_for_index: bool = True) -> Database:
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
        return Database(catalog, opening, self._track)

    def close(self) -> None:
        """Close the file; a temporary catalog is deleted."""
        self._close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<deltadex.Database {str(self.path)!r}>"
