"""The public face: one catalog, and everything that can be asked of it and done with it."""

from __future__ import annotations

from ... import questions
from ...options import Place, question, question_of_several
from .opened import Create, Opened, Track, open_as, untracked


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


class _Part:
    """Questions of a database that have a name of their own."""

    def __init__(self, db: Database) -> None:
        self._db = db


class KeptDataSets(_Part):
    """The kept data sets of a catalog, and which models were trained on a data set: `db.data`.

    Called, it lists those that are kept.
    """

    find_models = question(questions.FindTrainedOn)
    nearest = question(questions.FindData)
    show = question(questions.ShowData)
    remove = question(questions.RemoveData)
    __call__ = question(questions.KeptData)


class ComparedBases(_Part):
    """The bases that models are compared with: `db.known_bases`.

    Called, it lists them.
    """

    add = question_of_several(questions.AddBases)
    __call__ = question(questions.KnownBases)


class PublishedIndexes(_Part):
    """The published indexes that are searched beside a catalog: `db.attached`.

    Called, it lists them.
    """

    refresh = question(questions.RefreshAttached)
    remove = question(questions.Detach)
    __call__ = question(questions.Attached)


class Database(Opened):
    """An open catalog of fine-tuned models; `open` makes one.

    One thread at a time; others take a `reader`. Models are named by their id, `base` chooses a
    family by its base where the catalog has several, `recipe` one kind of fingerprint by name or
    id. Results are tables (`to_pandas`, `to_arrow`) with a document (`to_json`). Every method
    raises `UnknownModel`, `UnknownBase`, `UnknownRecipe` and `EmptyCatalog` for what is not there.
    """

    index = question(questions.Index)
    plan = question(questions.Plan)
    add = question_of_several(questions.Add)
    label = question(questions.Label)
    remove = question(questions.Remove)
    models = question(questions.Models)
    facets = question(questions.Facets)
    show = question(questions.Show)
    failures = question(questions.Failures)
    stats = question(questions.Stats)
    sql = question(questions.Select)

    find_similar = question(questions.FindSimilar)
    explain = question(questions.Explain)
    words = question(questions.Words)
    search = question(questions.Search)
    evaluate = question_of_several(questions.Evaluate)
    cluster = question(questions.Cluster)
    map = question(questions.Map)
    diff = question(questions.Diff)

    trace = question(questions.Trace)
    extract_adapter = question(questions.ExtractAdapter)
    lineage = question(questions.Lineage)
    audit = question(questions.Audit)

    merge = question_of_several(questions.Merge)
    export = question(questions.Export)
    export_vectors = question(questions.ExportVectors)
    export_scores = question(questions.ExportScores)
    backup = question(questions.Backup)
    publish = question(questions.Publish)
    attach = question(questions.Attach)

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

    def __repr__(self) -> str:
        return f"<deltadex.Database {str(self.path)!r}>"
