"""The nearest models of a family, and what makes two models similar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from ..errors import BadFilter, EmptyCatalog, ModelError, RequestError, UnknownBase
from ..options import Place, argument, option, record
from ..store import Filters
from .queries import (
    Family,
    Kind,
    Query,
    find_base_with,
    indexes_of,
    open_attached,
    require_labels,
    start_of,
)
from .tables import Document, ExplanationTable, NeighbourTable

if TYPE_CHECKING:
    from ..store import AttachedIndex
    from .opened import Opened


@record
class FindSimilar(Filters, Family):
    """The `k` models nearest to a model, or fewer if fewer pass the filters.

    Returns:
        A row for each neighbour, nearest first: `query`, `rank`, `model`, `verdict`, `z`, `fdr`
        (0…1), `source` (the attached index that it is of, or None) and more.

    Raises:
        RequestError: `k` is below 1, or the model cannot be fingerprinted.
        BadFilter: `where` is not understood, or no model has that dataset or author.
        BadIndex: an attached index is missing or damaged.

    >>> hits = db.find_similar("imdb-0", k=2)
    >>> hits[0]["model"], hits[0]["z"] > hits[1]["z"], hits[0]["verdict"]
    ('imdb-1', True, 'no model stands out')
    >>> db.find_similar("models/imdb-0", k=1, where="run <> 'imdb-0'")[0]["model"]
    'imdb-1'
    >>> len(db.find_similar(["imdb-0", "sst2-0"], k=3))
    6
    """

    model: Query | Sequence[Place] = argument(
        several=True,
        metavar="MODEL...",
        help="An id; a folder or Hub id, which is fingerprinted and not stored; a PEFT or "
        "transformers model in memory; a fingerprint's vector, of shape (dim,); a list of ids, "
        "folders and Hub ids, in which one that has no answer stops no other.",
    )
    k: int = option("-k", default=10, least=1, help="Number of neighbours, at most.")
    _: KW_ONLY
    kind: Kind = option(
        default="full",
        doors="python",
        help="Kind of the model that a vector is of: scores are normalised by kind.",
    )
    explain: bool = option(
        default=False,
        doors="local",
        help="Show which layers and roles carry each cosine; models of attached indexes keep no "
        "sketches to show it of.",
    )
    attached: bool = option(
        default=True,
        doors="python",
        help="Whether attached indexes of the same base and recipe are searched too.",
    )

    def answer(self, db: Opened) -> NeighbourTable:
        indexes = open_attached(db._catalog) if self.attached else []
        base = find_base_with(db._catalog, self.base, indexes)
        if not _is_several(self.model):
            return NeighbourTable(self._nearest(db, cast("Query", self.model), base, indexes))
        answers, failed = [], []
        for name in self.model:
            try:
                answers.append(self._nearest(db, name, base, indexes))
            except (BadFilter, EmptyCatalog, UnknownBase):
                raise
            except (RequestError, ModelError) as err:
                failed.append({"model": str(name), "reason": str(err)})
        return NeighbourTable({"queries": answers, "failed": failed})

    def _nearest(
        self, db: Opened, model: Query, base: str | None, indexes: Sequence[AttachedIndex]
    ) -> Document:
        from ..search import explain_pair, find_similar

        start = start_of(db._catalog, model, base, self.recipe, self.kind, indexes)
        beside = indexes_of(db._catalog, start.base, indexes) if start.base else []
        neighbours = find_similar(
            db._catalog, start, k=self.k, filters=self, recipe=self.recipe, attached=beside
        )
        if not neighbours.neighbours:
            require_labels(db._catalog, self, indexes)
        document: dict[str, Any] = neighbours.to_json()
        if self.explain:
            document["explanations"] = [
                explain_pair(db._catalog, start, neighbour.model, recipe=self.recipe).to_json()
                for neighbour in neighbours.neighbours
                if neighbour.source is None
            ]
        return document


@record
class Explain(Family):
    """Which weight matrices, layers and roles carry the similarity of two models.

    Returns:
        A row for each slot that both changed, the largest contribution first.

    Raises:
        RequestError: the recipe keeps no sketches of single slots.

    >>> db.explain("imdb-0", "imdb-1").to_json()["similarity"] > 0.5
    True
    """

    model: Query = argument(help="A model as `find_similar` takes it, but not a list or a vector.")
    other: str = argument(help="Id of another model.")

    def answer(self, db: Opened) -> ExplanationTable:
        from ..search import explain_pair

        base = db._catalog.find_base(self.base)
        start = start_of(db._catalog, self.model, base, self.recipe)
        explanation = explain_pair(db._catalog, start, self.other, recipe=self.recipe)
        return ExplanationTable(explanation.to_json())


def _is_several(model: object) -> TypeGuard[Sequence[Place]]:
    return isinstance(model, list | tuple) and all(isinstance(name, Place) for name in model)
