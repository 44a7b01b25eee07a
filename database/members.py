"""The models of a catalog: indexed, labelled, listed, copied, removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import RequestError, offered
from .opened import Opened, Place
from .tables import (
    FailureTable,
    IndexReport,
    ModelTable,
    PlanTable,
    QueryTable,
    SlotTable,
    StatsTable,
    Table,
)

if TYPE_CHECKING:
    from typing import Unpack

    from ..indexer import IndexOptions, Progress, Selection

LABELS = ("dataset", "author", "run")


class Indexing(TypedDict, total=False):
    """How models are fingerprinted.

    Keys:
        labels: A table with columns model, dataset, author, run; overrides what models say.
        recipes: Names of recipes, of their newest version; by default the family's, or `sketch`.
        rank: Factors per matrix.
        budget: `2%` or `20MB` of each model's layers; None reads them whole.
        device: Where updates are compressed: `auto`, `cpu`, or as torch names it.
        aliases: Other names that members give the base.
        workers: Models in parallel; 0 chooses.
        retry_failed: Whether models that failed before are read again.
        verify: Whether models that are indexed as `unverified` are read again, whole, to compare
            their bytes with the SHA-256 that is listed for them.
    """

    labels: Place | None
    recipes: Sequence[str]
    rank: int | None
    budget: str | None
    device: str
    aliases: Sequence[str]
    workers: int
    retry_failed: bool
    verify: bool


class Members(Opened):
    """What a `Database` does with its models."""

    def index(
        self,
        base: Place,
        source: Place | None = None,
        *,
        hub: bool = False,
        limit: int | None = None,
        ray: str | None = None,
        parts: Place | None = None,
        share: str | None = None,
        depth: int | None = None,
        exclude: Sequence[str] = (),
        min_downloads: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[Indexing],
    ) -> IndexReport:
        """Fingerprint the fine-tunes of `base`; models that did not change are not read again.

        Args:
            base: A Hub id or a folder; a mere name where all models are adapters.
            source: A folder of models at any depth, or a file with one id or path per line.
            hub: Whether the models are the base's whole family on the Hugging Face Hub.
            limit: Most models that are indexed.
            ray: Address of a Ray cluster whose workers read the models, or `local`.
            parts: A folder, or an address for fsspec, of Parquet parts; without `ray` they are
                written in place of the catalog, and `merge` takes them.
            share: `3/16` indexes the third of 16 disjoint shares of the models.
            depth: Generations below the base on the Hub; None for all.
            exclude: `adapters`, `bin`, `full`, `gguf`, `merges` or `quantized` models.
            min_downloads: Least downloads of a model on the Hub.
            progress: Is called for every model.
            options: See `Indexing`.

        Returns:
            Counts, and a row for each model that was refused: `model`, `code`, `reason`.

        Raises:
            SourceError: the folder, list, labels or Hub listing cannot be read.
            BaseError: the base's weights cannot be read.

        >>> db.index("base", "models", labels="models/labels.csv").to_json()["unchanged"]
        4
        """
        folder = None if source is None else Path(source)
        given = {
            "base": str(base),
            "folder": folder,
            "hub": hub,
            "limit": limit,
            "ray": ray,
            "parts": None if parts is None else str(parts),
            "share": share,
            "selection": _selection(depth, exclude, min_downloads),
        }
        return self._index(given, options, progress)

    def plan(
        self,
        base: Place,
        source: Place | None = None,
        *,
        hub: bool = False,
        limit: int | None = None,
        depth: int | None = None,
        exclude: Sequence[str] = (),
        min_downloads: int | None = None,
        parts: Place | None = None,
        share: str | None = None,
        bandwidth: str = "1Gbit",
        **options: Unpack[Indexing],
    ) -> PlanTable:
        """What `index` with the same arguments would read, refuse, request and store.

        Reads listings and headers, no weights. A listing of the Hub stays in the catalog for
        24 hours, and `index` does not make it again.

        Args:
            base, source, hub, limit, depth, exclude, min_downloads, parts, share: As of `index`.
            bandwidth: Of each worker's connection: `1Gbit`, `50MB`.
            options: See `Indexing`; `workers` counts machines that share the work.

        Raises:
            SourceError, BaseError: as `index`.
            RequestError: `bandwidth` is not understood.

        >>> db.plan("base", "models").to_json()["models"]["in_catalog"]
        4
        """
        from ..indexer import PlanOptions, make_plan

        folder = None if source is None else Path(source)
        given = {
            "base": str(base),
            "folder": folder,
            "hub": hub,
            "limit": limit,
            "parts": None if parts is None else str(parts),
            "share": share,
            "selection": _selection(depth, exclude, min_downloads),
        }
        plan = make_plan(
            self._catalog,
            _index_options(given, options),
            PlanOptions(bandwidth=bandwidth, workers=options.get("workers") or 1),
            lambda members: self._track(members, "listing"),
        )
        return PlanTable(plan.to_json())

    def add(
        self,
        *models: Place,
        base: Place,
        progress: Progress | None = None,
        **options: Unpack[Indexing],
    ) -> IndexReport:
        """Fingerprint single models, named by folder or Hub id; otherwise as `index`.

        >>> db.add("models/imdb-0", base="base").to_json()["failed"]
        []
        """
        given = {"base": str(base), "models": tuple(map(str, models))}
        return self._index(given, options, progress)

    def label(
        self,
        model: str,
        dataset: str | None = None,
        *,
        author: str | None = None,
        run: str | None = None,
        clear: bool = False,
        base: str | None = None,
    ) -> Table:
        """Say what a model was trained on; what is None stays as it is.

        Args:
            clear: Whether the model has no dataset from now on.

        Returns:
            One row: `model`, `base`, `dataset`, `author`, `run`, `label_source`, and `before`.

        Raises:
            RequestError: nothing is said, or a label is blank.

        >>> db.label("imdb-0", "imdb")[0]["label_source"]
        'labels'
        """
        if clear and dataset is not None:
            raise RequestError("give a DATASET, or --clear")
        if not clear and dataset is author is run is None:
            raise RequestError("give a DATASET, or --clear, --author or --run")
        if any(value is not None and not value.strip() for value in (dataset, author, run)):
            raise RequestError("an empty label says nothing; --clear takes the dataset away")
        new = "" if clear else dataset and dataset.strip()
        before, after = self._catalog.label(
            model, self.find_base(base), dataset=new, author=author, run=run
        )
        labels, labels_before = (
            {name: getattr(row, name) for name in LABELS}
            | {"label_source": row.record.label_source}
            for row in (after, before)
        )
        return Table({"model": after.id, "base": after.base, **labels, "before": labels_before})

    def remove(self, model: str, base: str | None = None) -> Table:
        """Forget a model; its files are not touched. One row: `removed` and `base`.

        >>> db.remove("sst2-1")[0]["removed"]
        'sst2-1'
        """
        row = self._catalog.remove(model, self.find_base(base))
        return Table({"removed": row.id, "base": row.base})

    def models(
        self,
        *,
        where: str | None = None,
        status: str | None = None,
        dataset: str | None = None,
        author: str | None = None,
        base: str | None = None,
        columns: Sequence[str] | None = None,
        sort: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> ModelTable:
        """The models that pass every filter, by base and id.

        Args:
            where: A condition in a small part of SQL, such as `"dataset IS NULL"`.
            status: `indexed`, `failed`, `skipped` or `no-update`.
            columns: Columns of the rows; all by default.
            sort: A column; models that have no value there come last.
            reverse: Whether the largest come first.
            limit: Most rows; the document's `total` counts all.

        Raises:
            BadFilter: `where` is not understood, or no model has that dataset or author.
            RequestError: there is no such column.

        >>> [row["model"] for row in db.models(where="dataset = 'imdb'")]
        ['imdb-0', 'imdb-1']
        """
        chosen = None if columns is None else _columns(columns)
        (key,) = (None,) if sort is None else _columns([sort])
        models = self._catalog.models(
            base=self.find_base(base), status=status, dataset=dataset, author=author, where=where
        )
        if not models:
            self._require_labels(dataset, author)
        rows = _sorted([row.to_json() for row in models], key, reverse=reverse)[:limit]
        if chosen is not None:
            rows = [{column: row[column] for column in chosen} for row in rows]
        return ModelTable({"models": rows, "total": len(models)}, chosen)

    def show(self, model: str, base: str | None = None) -> SlotTable:
        """Everything known of a model, and what it changed, a row for each weight matrix.

        >>> db.show("imdb-0").to_json()["dataset"]
        'imdb'
        """
        return SlotTable(self._catalog.describe(model, self.find_base(base)))

    def failures(self, base: str | None = None) -> FailureTable:
        """Models that are not indexed, by reason, the most frequent reason first.

        >>> len(db.failures())
        0
        """
        return FailureTable({"failures": self._catalog.failures(self.find_base(base))})

    def stats(self, *, content_hash: bool = False) -> StatsTable:
        """How many models, datasets and recipes the catalog holds, and its size in bytes.

        Args:
            content_hash: Also `content_sha256`: equal for catalogs that say the same of the same
                models, however and wherever they were indexed. It reads the whole catalog.

        >>> db.stats()[0]["labelled"]
        4
        """
        from ..store import content_sha256

        counts = self._catalog.stats()
        if content_hash:
            counts["content_sha256"] = content_sha256(self._catalog)
        return StatsTable(counts)

    def sql(self, statement: str) -> QueryTable:
        """The rows that one SELECT returns; it can neither write nor read files.

        Raises:
            BadQuery: the statement is no single SELECT of the catalog's tables.

        >>> db.sql("SELECT count(*) AS n FROM models")[0]["n"]
        4
        """
        return query(self.path, statement)

    def _index(
        self, given: Mapping[str, Any], options: Indexing, progress: Progress | None
    ) -> IndexReport:
        from ..indexer import index_family

        report = index_family(self._catalog, _index_options(given, options), progress)
        return IndexReport(report.to_json())


def query(path: Place, statement: str) -> QueryTable:
    """The rows that one SELECT returns from the catalog in the file `path`; see `Database.sql`."""
    from ..store import query_catalog

    return QueryTable(query_catalog(Path(path), statement).to_json())


def _selection(depth: int | None, exclude: Sequence[str], min_downloads: int | None) -> Selection:
    from ..indexer import Selection

    return Selection(depth=depth, exclude=tuple(exclude), min_downloads=min_downloads)


def _index_options(given: Mapping[str, Any], options: Indexing) -> IndexOptions:
    """The arguments of a call as the indexer takes them."""
    from ..indexer import IndexOptions

    settings: dict[str, Any] = {**given, **options}
    if settings.get("labels") is not None:
        settings["labels"] = Path(settings["labels"])
    for name in ("recipes", "aliases"):
        if name in settings:
            settings[name] = tuple(settings[name])
    return IndexOptions(**settings)


def _columns(names: Sequence[str]) -> tuple[str, ...]:
    """The columns of `models` that a user names."""
    from ..store import ModelRow

    given = [name.strip().lower() for name in names if name.strip()]
    # the table `models` of the file calls it so
    columns = tuple("model" if name == "id" else name for name in given)
    known = ModelRow.columns()
    unknown = [name for name in columns if name not in known]
    if unknown or not columns:
        wrong = (unknown or [",".join(names)])[0]
        raise RequestError(f"no column {wrong!r}{offered(wrong, sorted(known), 'columns')}")
    return columns


def _sorted(
    rows: list[dict[str, Any]], column: str | None, *, reverse: bool
) -> list[dict[str, Any]]:
    """The rows by one column, unknown values last; equal ones in the order that they had."""
    if column is None:
        return rows[::-1] if reverse else rows
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]
    return sorted(known, key=lambda row: row[column], reverse=reverse) + unknown
