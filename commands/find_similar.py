"""`deltadex find-similar`: the nearest models of a family."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from ..errors import (
    BadFilter,
    EmptyCatalog,
    ModelError,
    RequestError,
    UnknownBase,
    UnknownModel,
)
from ..terminal.options import (
    Common,
    Filters,
    argument,
    base_option,
    option,
    recipe_option,
    takes,
)
from ..terminal.text import plain
from .catalog import is_model_path, open_catalog
from .exits import EXIT_NOTHING_DONE, EXIT_SOME_FAILED
from .output import print_document

if TYPE_CHECKING:
    from ..search.neighbours import Query
    from ..store import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Queries, and how many answers each."""

    models: tuple[str, ...] = argument(nargs=-1, required=True, metavar="MODEL...")
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

    A model that is not in the catalog is fingerprinted on the fly and not stored. Several models
    are answered one after the other; `-` stands for models on stdin, one per line.

    \b
    Example:
      deltadex find-similar someone/bert-imdb -k 5 --explain
      deltadex ls --where "dataset IS NULL" --csv --columns model | tail -n +2 |
        deltadex find-similar - -k 1 --json
    """
    models = _named(search.models)
    if search.k < 1:
        raise RequestError(f"k must be at least 1, got {search.k}")
    with open_catalog(common.db) as catalog:
        base = catalog.find_base(search.base)
        questions = _Questions(catalog, search, filters, base)
        if search.models == models and len(models) == 1:
            print_document(questions.answer(models[0]), _show, common)
            return
        queries, failed = questions.answer_each(models)
    print_document({"queries": queries, "failed": failed}, _show_all, common)
    if failed:
        sys.exit(EXIT_SOME_FAILED if queries else EXIT_NOTHING_DONE)


def _named(models: Sequence[str]) -> tuple[str, ...]:
    """The models, those on stdin in the place of `-`; each once.

    Raises:
        click.UsageError: there is none.
    """
    names: list[str] = []
    for model in models:
        if model == "-":
            lines = sys.stdin.buffer.read().decode("utf-8-sig", "replace").splitlines()
            names += [name for line in lines if (name := line.strip())]
        else:
            names.append(model)
    if not names:
        raise click.UsageError("no model on stdin: one id or path per line")
    return tuple(dict.fromkeys(names))


class _Questions:
    """Queries to one catalog, with the same filters."""

    def __init__(
        self, catalog: Catalog, search: Search, filters: Filters, base: str | None
    ) -> None:
        self._catalog, self._search, self._filters, self._base = catalog, search, filters, base

    def answer_each(
        self, models: Sequence[str]
    ) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """Each model's neighbours; the models that cannot be a query, with the reason.

        Raises:
            RequestError: what is wrong with the question itself.
        """
        answers, failed = [], []
        for model in models:
            try:
                answers.append(self.answer(model))
            except (BadFilter, EmptyCatalog, UnknownBase):
                raise
            except (RequestError, ModelError) as err:
                failed.append({"model": model, "reason": str(err)})
        return answers, failed

    def answer(self, model: str) -> dict[str, Any]:
        """The neighbours of one model, ready for JSON."""
        from ..search import explain_pair, find_similar

        recipe = self._search.recipe
        query = self._query(model)
        neighbours = find_similar(
            self._catalog, query, k=self._search.k, recipe=recipe, **asdict(self._filters)
        )
        document: dict[str, Any] = neighbours.to_json()
        if self._search.explain:
            document["explanations"] = [
                explain_pair(self._catalog, query, neighbour.model, recipe=recipe).to_json()
                for neighbour in neighbours.neighbours
            ]
        return document

    def _query(self, model: str) -> Query:
        """The stored model of that name; else a fresh fingerprint of it."""
        from ..search import FreshQuery, StoredQuery

        try:
            row = self._catalog.model(model, self._base)
            if row.status == "indexed":
                return StoredQuery(row.id, row.base)
        except UnknownModel:
            if not is_model_path(model):
                raise
        from ..indexer import fingerprint_query, guess_base

        base = self._base or guess_base(self._catalog, model)
        recipe = self._catalog.find_recipe(self._search.recipe, base)
        outcome = fingerprint_query(self._catalog, model, base, recipe)
        return FreshQuery(
            model=model,
            base=base,
            fingerprint=outcome.fingerprints[0],
            kind=outcome.model.kind,
            dataset=outcome.model.dataset,
            slots=outcome.slots,
        )


def _show(document: Mapping[str, Any]) -> None:
    from ..terminal import show_explanation, show_neighbours

    show_neighbours(document)
    for explanation in document.get("explanations", ()):
        show_explanation(explanation)


def _show_all(document: Mapping[str, Any]) -> None:
    for query in document["queries"]:
        _show(query)
    for refused in document["failed"]:
        click.echo(plain(f"{refused['model']}: {refused['reason']}"), err=True)
