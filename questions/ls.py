"""The models of the catalog, listed and counted: `ls`, `Database.facets`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ..errors import RequestError, offered
from ..options import Question, as_kind, option, record
from ..results import Document, Row, Section, Shown, Table, count
from ..store import Filters
from .face.opened import ONLY_FAMILY, Kind, Opened, require_labels
from .failures import names_another_base
from .terminal.command_line import Common, Display, command_with, open_database

if TYPE_CHECKING:
    from ..store import ModelFilter

ModelStatus = Literal["indexed", "failed", "skipped", "no-update"]


class ModelTable(Table):
    """Models of the catalog, a row for each; columns as `deltadex ls --json` has them."""

    columns: tuple[str, ...] = ("model", "status", "code", "dataset", "author", "run")
    _key = "models"

    def __init__(self, document: Document, columns: Sequence[str] | None = None) -> None:
        super().__init__(document)
        self.columns = self.saved_columns = tuple(columns or self.columns)

    @property
    def total(self) -> int:
        """Models that pass the filters, whatever the limit."""
        return int(self._document["total"])


@record
class Models(Filters, Question):
    """List the models of the catalog that pass every filter, by base and id.

    Columns are the keys that --json prints; the document's `total` counts all that pass. Of models
    that are not indexed one line on the screen has the reasons, unless --status, --where or
    --columns asks for them.

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


def show_models(
    document: Document, *, columns: Sequence[str] = ModelTable.columns, counts_rest: bool = False
) -> Shown:
    """One row per model; with `counts_rest` one line for all that are not indexed, and a column of
    the bases that adapters name, if these are others."""
    shown = models = document["models"]
    rest: list[Document] = []
    if counts_rest and (indexed := [m for m in models if m["status"] == "indexed"]):
        shown, rest = indexed, [model for model in models if model["status"] != "indexed"]
        columns = [column for column in columns if column not in ("status", "code")]
    if counts_rest and any(m["kind"] == "adapter" and names_another_base(m) for m in shown):
        columns = [*columns, "base_raw"]
    labelled = [model | {"dataset": _marked_label(model)} for model in shown]
    yield Section.of(columns, labelled, columns) if shown else "  ".join(columns)
    total = document.get("total", len(models))
    if total > len(models):
        yield f"{len(models)} of {count(total, 'model')}"
    if rest:
        codes = Counter(model["code"] for model in rest).most_common()
        reasons = ", ".join(f"{n} {code}" for code, n in codes)
        yield f"not indexed: {reasons} (`deltadex failures`)"


def _marked_label(model: Document) -> str | None:
    """A model's data set, with a mark where it is guessed from the name, or where its card names a
    collection and not the part."""
    label, raw, source = (model.get(name) for name in ("dataset", "dataset_raw", "label_source"))
    if source == "name":
        return f"{label} (guess)" if raw in (None, label) else f"{label} (guess; card: {raw})"
    if label is None and raw and source is None:
        return f"{raw} (which part?)"
    return label if label is None else str(label)


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

        base = db._catalog.find_base(self.base)
        return replace(as_kind(ModelFilter, self), base=base, contains=self.q)


FACETS = ("dataset", "author", "kind", "base", "status", "license")
"""Columns whose values are counted."""


class FacetTable(Table):
    """Counts of models, a row for each value of each facet: `facet`, `value`, `models`."""

    columns = ("facet", "value", "models")
    _key = "facets"

    def of(self, facet: str) -> list[Row]:
        """The rows of one facet."""
        return [row for row in self if row["facet"] == facet]


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


@command_with(
    Models,
    Display,
    examples=(
        "ls --where \"dataset IS NULL AND status = 'indexed'\"",
        "ls --columns model,downloads --sort downloads --reverse --limit 20",
    ),
)
def command(common: Common, asked: Models, display: Display) -> None:
    display.check(common)
    with open_database(common) as db:
        table = asked.answer(db)
    is_plain = all(choice is None for choice in (asked.status, asked.where, asked.columns))
    show = partial(show_models, columns=table.columns, counts_rest=is_plain)
    display.print(table, show, common)
