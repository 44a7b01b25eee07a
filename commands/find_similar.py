"""`deltadex find-similar`: the nearest models of a family."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from ..errors import UnknownModel
from ..terminal.options import (
    Common,
    Filters,
    argument,
    base_option,
    option,
    recipe_option,
    takes,
)
from .catalog import is_model_path, open_catalog
from .output import print_document

if TYPE_CHECKING:
    from ..search.neighbours import Query
    from ..store import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A query, and how many answers."""

    model: str = argument()
    k: int = option("-k", default=10, show_default=True, help="How many neighbours.")
    recipe: str | None = recipe_option()
    base: str | None = base_option()
    explain: bool = option(
        "--explain", is_flag=True, help="Which layers and roles carry each similarity."
    )


@click.command("find-similar")
@takes(Search, Filters)
def find_similar(common: Common, search: Search, filters: Filters) -> None:
    """The models nearest to MODEL: an indexed id, or any path or Hub id.

    A model that is not in the catalog is fingerprinted on the fly and not stored.

    \b
    Example:
      deltadex find-similar someone/bert-imdb -k 5 --explain
    """
    from ..terminal import show_explanation, show_neighbours

    with open_catalog(common.db) as catalog:
        document = _answer(catalog, search, filters)
    print_document(document, show_neighbours, common)
    if not common.as_json:
        for explanation in document.get("explanations", ()):
            show_explanation(explanation)


def _answer(catalog: Catalog, search: Search, filters: Filters) -> dict[str, Any]:
    from ..search import explain_pair, nearest

    query = _query(catalog, search, catalog.find_base(search.base))
    neighbours = nearest(catalog, query, k=search.k, recipe=search.recipe, **asdict(filters))
    document: dict[str, Any] = neighbours.to_json()
    if search.explain:
        document["explanations"] = [
            explain_pair(catalog, query, neighbour.model, recipe=search.recipe).to_json()
            for neighbour in neighbours.neighbours
        ]
    return document


def _query(catalog: Catalog, search: Search, base: str | None) -> Query:
    """The stored model that `search` names; else a fresh fingerprint of it."""
    from ..search import FreshQuery, StoredQuery

    model = search.model
    try:
        row = catalog.model(model, base)
        if row.status == "indexed":
            return StoredQuery(row.id, row.base)
    except UnknownModel:
        if not is_model_path(model):
            raise
    from ..indexer import fingerprint_query, guess_base

    base = base or guess_base(catalog, model)
    outcome = fingerprint_query(catalog, model, base, catalog.find_recipe(search.recipe, base))
    return FreshQuery(
        model=model,
        base=base,
        fingerprint=outcome.fingerprints[0],
        kind=outcome.model.kind,
        dataset=outcome.model.dataset,
        slots=outcome.slots,
    )
