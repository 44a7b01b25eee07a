"""The public face: one catalog, and everything that can be asked of it and done with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ..options import Place, question, question_of_several
from ..study.registry import Studies
from . import data as data_sets
from . import exchange, members, origins, questions, text_search, words
from .opened import Create, Opened, Track, open_as, untracked
from .tables import FindingTable, Row
from .written import check_ending


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
    return open_as(
        Database,
        path,
        read_only=read_only,
        create=create,
        memory=memory,
        engine=engine,
        track=track,
    )


def doctor(
    path: Place,
    *,
    check: bool = False,
    quick: bool = False,
    track: Track = untracked,
    report: Callable[[Row], None] | None = None,
) -> FindingTable:
    """Check the catalog in the file `path`, and repair what is derived from it.

    Args:
        check: Whether nothing is repaired.
        quick: Whether what reads the whole file is left out; a row says so.
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
    for finding in examine(Path(path), repairs=not check, quick=quick, track=track):
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
    """Raises `RequestError` for a file name of no table, and no picture of a study."""
    from .. import pictures

    check_ending(path, pictures.check_ending)


class KeptDataSets:
    """The kept data sets of a catalog, and which models were trained on a data set: `db.data`.

    Called, it lists those that are kept.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    find_models = question(data_sets.FindTrainedOn)
    nearest = question(data_sets.FindData)
    show = question(data_sets.ShowData)
    remove = question(data_sets.RemoveData)
    __call__ = question(data_sets.KeptData)


class ComparedBases:
    """The bases that models are compared with: `db.known_bases`.

    Called, it lists them.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    add = question_of_several(origins.AddBases)
    __call__ = question(origins.KnownBases)


class PublishedIndexes:
    """The published indexes that are searched beside a catalog: `db.attached`.

    Called, it lists them.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    refresh = question(exchange.RefreshAttached)
    remove = question(exchange.Detach)
    __call__ = question(exchange.Attached)


class Database(Opened):
    """An open catalog of fine-tuned models; `open` makes one.

    One thread at a time; others take a `reader`. Models are named by their id, `base` chooses a
    family by its base where the catalog has several, `recipe` one kind of fingerprint by name or
    id. Results are tables (`to_pandas`, `to_arrow`) with a document (`to_json`). Every method
    raises `UnknownModel`, `UnknownBase`, `UnknownRecipe` and `EmptyCatalog` for what is not there.
    """

    index = question(members.Index)
    plan = question(members.Plan)
    add = question_of_several(members.Add)
    label = question(members.Label)
    remove = question(members.Remove)
    models = question(members.Models)
    facets = question(members.Facets)
    show = question(members.Show)
    failures = question(members.Failures)
    stats = question(members.Stats)
    sql = question(members.Select)

    find_similar = question(questions.FindSimilar)
    explain = question(questions.Explain)
    words = question(words.Words)
    search = question(text_search.Search)
    evaluate = question_of_several(questions.Evaluate)
    cluster = question(questions.Cluster)
    map = question(questions.Map)
    diff = question(questions.Diff)

    trace = question(origins.Trace)
    extract_adapter = question(origins.ExtractAdapter)
    lineage = question(origins.Lineage)
    audit = question(origins.Audit)

    merge = question_of_several(exchange.Merge)
    export = question(exchange.Export)
    export_vectors = question(exchange.ExportVectors)
    export_scores = question(exchange.ExportScores)
    backup = question(exchange.Backup)
    publish = question(exchange.Publish)
    attach = question(exchange.Attach)

    @property
    def data(self) -> KeptDataSets:
        """Data sets: those that are kept, and the models that were trained on one."""
        return KeptDataSets(self)

    @property
    def known_bases(self) -> ComparedBases:
        """The bases that models are compared with."""
        return ComparedBases(self)

    @property
    def attached(self) -> PublishedIndexes:
        """The published indexes that are searched beside this catalog."""
        return PublishedIndexes(self)

    @property
    def studies(self) -> Studies:
        """Studies of models; those of an indexed model are stored beside its fingerprint."""
        return Studies(self._catalog, self._track)

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

    def __repr__(self) -> str:
        return f"<deltadex.Database {str(self.path)!r}>"
