"""Models counted by their labels."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING

from ..options import Question, as_kind, option, record
from ..results import Row, Table
from ..store import Filters
from .face.opened import ONLY_FAMILY, Kind, Opened
from .ls import ModelStatus

if TYPE_CHECKING:
    from ..store import ModelFilter


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
