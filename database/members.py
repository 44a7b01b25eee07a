"""The models of a catalog: indexed, labelled, listed, removed, counted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import KW_ONLY, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import BadQuery, BaseError, RequestError, SourceError, StudyError, offered
from ..indexer import FamilyOptions, Fingerprinting
from ..options import Place, Question, argument, as_kind, option, record
from ..store import Filters
from .opened import ONLY_FAMILY, Kind, require_labels
from .tables import (
    FacetTable,
    FailureTable,
    IndexReport,
    ModelTable,
    PlanTable,
    QueryTable,
    SlotTable,
    StatsTable,
    Table,
)
from .words import words_of_model
from .worker import Worker, WorkerCrashed, WorkerOutOfMemory, WorkerTooSlow

if TYPE_CHECKING:
    from ..indexer import Progress
    from ..indexer.lexicon import BaseLexicon
    from ..store import ModelFilter, QueryResult
    from .opened import Opened

ModelStatus = Literal["indexed", "failed", "skipped", "no-update"]

LABELS = ("dataset", "author", "run")


@record
class Index(FamilyOptions):
    """Fingerprint the fine-tunes of `base`; models that did not change are not read again.

    `progress` is called for every model.

    Returns:
        Counts, and a row for each model that was refused: `model`, `code`, `reason`.

    Raises:
        SourceError: the folder, list, labels or Hub listing cannot be read.
        BaseError: the base's weights cannot be read.

    >>> db.index("base", "models", labels="models/labels.csv").to_json()["unchanged"]
    4
    """

    _: KW_ONLY
    ray: str | None = option(
        default=None,
        metavar="ADDRESS|local",
        help="Read with the workers of a Ray cluster, --workers of them.",
    )
    progress: Progress | None = None

    def answer(self, db: Opened) -> IndexReport:
        from ..indexer import is_several

        if self.source is None and not self.hub and is_several(self.base):
            return _index_all(self, db)
        return _index(self, db)


@record
class Add(Fingerprinting):
    """Fingerprint single models; otherwise as `index`.

    >>> db.add("models/imdb-0", base="base").to_json()["failed"]
    []
    """

    models: tuple[Place, ...] = argument(
        several=True, metavar="MODEL...", help="Folders, or ids of models on the Hub."
    )
    _: KW_ONLY
    base: Place = option(help="The base that the models descend from.")
    progress: Progress | None = None

    def answer(self, db: Opened) -> IndexReport:
        return _index(self, db)


@record
class Plan(FamilyOptions):
    """What `index` with the same arguments would read, refuse, request and store.

    Reads listings and headers, no weights. A listing of the Hub stays in the catalog for
    24 hours, and `index` does not make it again. `workers` counts machines that share the work.

    Raises:
        SourceError, BaseError: as `index`.
        RequestError: `bandwidth` is not understood.

    >>> db.plan("base", "models").to_json()["models"]["in_catalog"]
    4
    """

    stability = "provisional"

    _: KW_ONLY
    parts: Place | None = option(default=None, doors="python", help="Parts, as `index` has them.")
    share: str | None = option(default=None, doors="python", help="Share, as `index` has it.")
    device: str = option(default="auto", doors="python", help="Device, as `index` has it.")
    bandwidth: str = option(
        default="1Gbit",
        metavar="RATE",
        help="Connection of each of the --workers: 1Gbit, 200Mbit, 50MB.",
    )

    def answer(self, db: Opened) -> PlanTable:
        from ..indexer import IndexOptions, make_plan

        track: Any = partial(db._track, what="listing")
        plan = make_plan(db._catalog, as_kind(IndexOptions, self), self.bandwidth, track)
        return PlanTable(plan.to_json())


def _index(asked: Index | Add, db: Opened) -> IndexReport:
    from ..indexer import IndexOptions, index_family

    report = index_family(db._catalog, as_kind(IndexOptions, asked), asked.progress, _build_lexicon)
    return IndexReport(report.to_json())


def _build_lexicon(source: str, tokenizer: bytes, device: str) -> BaseLexicon | None:
    """None where nothing that runs a model is installed."""
    from ..search.vocabulary import Vocabulary

    try:
        from ..training_data.lexicon import build_lexicon

        words = Vocabulary(tokenizer).frequent_words()
    except (StudyError, RequestError):
        return None
    return build_lexicon(source, words, device)


def _index_all(asked: Index, db: Opened) -> IndexReport:
    """Every family of a folder, one after the other; the sums of their reports."""
    from ..indexer import families_below

    folder = Path(asked.base)
    found = families_below(db._catalog, folder, Path(asked.labels) if asked.labels else None)
    reasons = found.left_out.items()
    left_out = [{"model": id, "code": err.code, "reason": err.reason} for id, err in reasons]
    reports = []
    for base, ids in found.ids.items():
        try:
            report = _index(replace(asked, base=base, source=folder, only=ids), db)
        except (BaseError, SourceError) as err:
            reason = f"base {base}: {err}"
            left_out += [
                {"model": id, "code": "needs-base", "reason": reason} for id in sorted(ids)
            ]
        else:
            reports.append(report.to_json())
    if not reports and not left_out:
        raise SourceError(f"{folder}: no model in this folder")
    sums = ("indexed", "unchanged", "failed", "skipped_models", "bytes_read", "seconds")
    total = {
        key: sum((r[key] for r in reports), type(reports[0][key])()) for key in sums if reports
    }
    empty = {"indexed": 0, "unchanged": 0, "failed": [], "skipped_models": []}
    return IndexReport({**empty, **total, "families": reports, "left_out": left_out})


@record
class OneModel(Question):
    """A model of the catalog."""

    model: str = argument(help="Id of the model.")
    base: str | None = option(default=None, help=ONLY_FAMILY)


@record
class Label(Question):
    """Say what a model was trained on; what is None stays as it is.

    Returns:
        One row: `model`, `base`, `dataset`, `author`, `run`, `label_source`, and `before`.

    Raises:
        RequestError: nothing is said, or a label is blank.

    >>> db.label("imdb-0", "imdb")[0]["label_source"]
    'labels'
    """

    model: str = argument(help="Id of the model.")
    dataset: str | None = argument(default=None, help="Dataset that the model was trained on.")
    _: KW_ONLY
    author: str | None = option(default=None, help="Author, who trained the model.")
    run: str | None = option(default=None, help="The training run; its checkpoints share it.")
    clear: bool = option(default=False, help="Remove the model's dataset.")
    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> Table:
        given = self.dataset, self.author, self.run
        if self.clear and self.dataset is not None:
            raise RequestError("give a DATASET, or --clear")
        if not self.clear and given == (None, None, None):
            raise RequestError("give a DATASET, or --clear, --author or --run")
        if any(value is not None and not value.strip() for value in given):
            raise RequestError("an empty label says nothing; --clear takes the dataset away")
        new = "" if self.clear else self.dataset and self.dataset.strip()
        before, after = db._catalog.label(
            self.model,
            db._catalog.find_base(self.base),
            dataset=new,
            author=self.author,
            run=self.run,
        )
        labels, labels_before = (
            {name: getattr(row, name) for name in LABELS}
            | {"label_source": row.record.label_source}
            for row in (after, before)
        )
        return Table({"model": after.id, "base": after.base, **labels, "before": labels_before})


@record
class Remove(OneModel):
    """Forget a model; its files are not touched. One row: `removed` and `base`.

    >>> db.remove("sst2-1")[0]["removed"]
    'sst2-1'
    """

    def answer(self, db: Opened) -> Table:
        row = db._catalog.remove(self.model, db._catalog.find_base(self.base))
        return Table({"removed": row.id, "base": row.base})


@record
class Models(Filters, Question):
    """The models that pass every filter, by base and id.

    The document's `total` counts all that pass.

    Raises:
        BadFilter: `where` is not understood, or no model has that dataset or author.
        RequestError: there is no such column.

    >>> [row["model"] for row in db.models(where="dataset = 'imdb'")]
    ['imdb-0', 'imdb-1']
    """

    _: KW_ONLY
    base: str | None = option(default=None, help=ONLY_FAMILY)
    status: ModelStatus | None = option(default=None, help="Only models of this status.")
    columns: Sequence[str] | None = option(
        default=None,
        separated=True,
        metavar="A,B,…",
        shown_default="model,status,code,dataset,author,run; JSON has all",
        help="Show these columns.",
    )
    sort: str | None = option(
        default=None,
        metavar="COLUMN",
        shown_default="base, then model",
        help="Sort by a column; models that have no value there come last.",
    )
    reverse: bool = option(default=False, help="Sort the largest first.")
    limit: int | None = option(default=None, least=1, metavar="N", help="Show the first N models.")

    equal = ("base", "status", *Filters.equal)

    def answer(self, db: Opened) -> ModelTable:
        self.arranged([], 0)  # refuses unknown columns before anything is read
        models = db._catalog.models(replace(self, base=db._catalog.find_base(self.base)))
        if not models:
            require_labels(db._catalog, self)
        return self.arranged([row.to_json() for row in models], len(models))

    def arranged(self, rows: list[dict[str, Any]], total: int) -> ModelTable:
        """These rows in the order, and with the columns, that are asked for."""
        chosen = None if self.columns is None else _columns(self.columns)
        (key,) = (None,) if self.sort is None else _columns([self.sort])
        rows = _sorted(rows, key, reverse=self.reverse)[: self.limit]
        if chosen is not None:
            rows = [{column: row[column] for column in chosen} for row in rows]
        return ModelTable({"models": rows, "total": total}, chosen)


@record
class ListedModels(Filters, Question):
    """The models that a page lists, or counts."""

    _: KW_ONLY
    base: str | None = option(default=None, help=ONLY_FAMILY)
    status: ModelStatus | None = option(default=None, help="Only models of this status.")
    kind: Kind | None = option(default=None, help="Only models of this kind.")
    q: str | None = option(default=None, help="Part of an id, dataset or author.")

    def filter(self, db: Opened) -> ModelFilter:
        """The same for the catalog."""
        from ..store import ModelFilter

        wanted = replace(as_kind(ModelFilter, self), base=db._catalog.find_base(self.base))
        return replace(wanted, contains=self.q)


FACETS = ("dataset", "author", "kind", "base", "status", "license")
"""Columns whose values are counted."""


@record
class Facets(ListedModels):
    """How many of the models that pass every filter have each dataset, author, kind, base, status
    and licence.

    Returns:
        A row for each value: `facet`, `value` (None counts the models without one), `models`, the
        most frequent first. The document has `total`, and `others` by facet: the models whose
        values are not listed.

    >>> [(row["value"], row["models"]) for row in db.facets(status="indexed").of("dataset")]
    [('imdb', 2), ('sst2', 2)]
    """

    stability = "provisional"

    _: KW_ONLY
    most: int = option(default=50, least=1, most=1000, help="Values of each facet, at most.")

    def answer(self, db: Opened) -> FacetTable:
        total, counts = db._catalog.value_counts(self.filter(db), FACETS, self.most)
        rows = [
            {"facet": facet, "value": value, "models": n}
            for facet, values in counts.items()
            for value, n in values
        ]
        others = {facet: total - sum(n for _, n in values) for facet, values in counts.items()}
        return FacetTable({"total": total, "facets": rows, "others": others})


@record
class Show(OneModel):
    """Everything known of a model, and what it changed, a row for each weight matrix.

    >>> db.show("imdb-0").to_json()["dataset"]
    'imdb'
    """

    def answer(self, db: Opened) -> SlotTable:
        catalog = db._catalog
        document = catalog.describe(self.model, catalog.find_base(self.base))
        words = words_of_model(catalog, document["base"], document["model"])
        return SlotTable({**document, "words": words})


@record
class Failures(Question):
    """Models that are not indexed, by reason, the most frequent reason first.

    >>> len(db.failures())
    0
    """

    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> FailureTable:
        return FailureTable({"failures": db._catalog.failures(db._catalog.find_base(self.base))})


@record
class Stats(Question):
    """How many models, datasets and recipes the catalog holds, and its size in bytes.

    >>> db.stats()[0]["labelled"]
    4
    """

    _: KW_ONLY
    content_hash: bool = option(
        "--hash",
        default=False,
        doors="local",
        help="Give `content_sha256` too, a hash of all models: equal for catalogs that say the "
        "same of them, however and wherever they were indexed. Reads the whole catalog.",
    )

    def answer(self, db: Opened) -> StatsTable:
        from ..store import content_sha256

        counts = db._catalog.stats()
        if self.content_hash:
            counts["content_sha256"] = content_sha256(db._catalog)
        return StatsTable(counts)


@record
class Select(Question):
    """The rows that one SELECT returns; it can neither write nor read files.

    Raises:
        BadQuery: the statement is no single SELECT of the catalog's tables.

    >>> db.sql("SELECT count(*) AS n FROM models")[0]["n"]
    4
    """

    statement: str = argument(metavar="QUERY", help="One SELECT in DuckDB's SQL.")

    def answer(self, db: Opened) -> QueryTable:
        return self.of(db.path)

    def of(self, path: Path, *, seconds: float | None = None, rows: int = 0) -> QueryTable:
        """The rows from the catalog in a file, which nobody has to open for it; at most so many,
        where there is a limit of `seconds`, else `BadQuery`: then it runs in a process of its own,
        which is killed when the time or 1 GiB of memory is used up."""
        from ..store import query_catalog

        if seconds is None:
            return QueryTable(query_catalog(path, self.statement).to_json())
        return QueryTable(_queried_apart(path, self.statement, seconds, rows).to_json())


SELECT_BYTES = 1 << 30
"""Memory of the process that runs a SELECT of somebody else."""

STACK_BYTES = 8 << 20
"""Of a thread of DuckDB, one a processor."""


def _queried_apart(path: Path, sql: str, seconds: float, rows: int) -> QueryResult:
    from ..store import QueryLimits, check_query, query_catalog

    check_query(sql)
    memory, limits = SELECT_BYTES + STACK_BYTES * (os.cpu_count() or 1), QueryLimits(rows=rows)
    with closing(Worker("running a SELECT", memory, repeats=False)) as worker:
        try:
            return worker.run(query_catalog, path, sql, limits, seconds=seconds)
        except WorkerTooSlow as err:
            raise BadQuery(f"sql: stopped after {seconds:g} s: ask for less") from err
        except (WorkerOutOfMemory, WorkerCrashed) as err:
            raise BadQuery("sql: not enough memory: ask for less") from err


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
