"""What a service does with a catalog beside asking it: threads, pages, uploads, warm indexes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import KW_ONLY, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import DeltadexError, RequestError, StoreFull, UnknownModel, offered
from ...options import option, record
from ...records import Indexed
from ...results import Row, Table
from ..find_similar import FindSimilar, NeighbourTable
from ..ls import ListedModels, ModelTable
from ..map.map import Map, placed_columns
from .opened import Opened

if TYPE_CHECKING:
    from ...search import StoredQuery
    from ...store import Catalog
    from .database import Database


HOW_TO_READ = """\
A `verdict` is "copy", "likely the same data", "perhaps" or "no model stands out". `z` counts
standard deviations above the family's strangers, `probability` is that of the same training data
(null where a family is too small to say), `fdr` the share of all answers down to a row that are
expected to be wrong. An answer is evidence about training data, no proof.
"""
"""How an answer is read, in the words that programs and language models are told."""


def catalog_of(db: Database) -> Catalog:
    """What is stored: for recipes, spellings of bases, and a token of its changes."""
    return db._catalog


@record
class MapColumns(Map):
    """The map that `map` draws, as columns: `models`, `x`, `y`, `dataset` and others."""

    _: KW_ONLY
    axes: bool = option(
        default=True,
        help="Answer with the main axes while the layout is computed; otherwise with 202.",
    )

    def answer(self, db: Opened) -> Table:
        return Table(placed_columns(db._catalog, self, db._track)[0])

    def first_look(self, db: Opened) -> Table:
        """The main axes alone, within seconds."""
        return Table(placed_columns(db._catalog, self, db._track, axes_alone=True)[0])


def exact_query(db: Database, model: str, base: str | None = None) -> StoredQuery:
    """A search from the model of exactly this id; raises as `exact_model`."""
    from ...search import StoredQuery

    bases = [base] if base else db._catalog.bases()
    if len(bases) == 1 and db._catalog.recipes_of(bases[0]):
        view = db._catalog.family(bases[0], db._catalog.find_recipe(None, bases[0]))
        if view.stored(model) is not None:
            return StoredQuery(model, bases[0])
    stored = db._catalog.stored_models(model, base)
    if len(stored) == 1:
        return StoredQuery(stored[0].id, stored[0].base)
    row = exact_model(db, model, base)
    return StoredQuery(row["model"], row["base"])


def similar_each(
    db: Database, asked: FindSimilar, models: Sequence[str]
) -> Generator[tuple[int, Table | DeltadexError]]:
    """The answers to a question of several models, by exact id, or why there is none: each with its
    place as soon as it is known, their candidates found together, all of one moment. The thread
    that asks closes it."""
    from ...search import find_similar_each

    with db._catalog.snapshot():
        places, queries = [], []
        for place, model in enumerate(models):
            try:
                queries.append(exact_query(db, model, asked.base))
                places.append(place)
            except RequestError as err:
                yield place, err
        each = find_similar_each(
            db._catalog, queries, k=asked.k, filters=asked, recipe=asked.recipe
        )
        for number, found in each:
            if isinstance(found, RequestError):
                yield places[number], found
            elif found.neighbours:
                yield places[number], NeighbourTable(found.to_json())
            else:
                one = replace(asked, model=queries[number], base=None, attached=False)
                yield places[number], one.answer(db)


def exact_model(db: Database, model: str, base: str | None = None) -> Row:
    """The model of exactly this id, as `models` has it; a folder's path is no id.

    Raises:
        UnknownModel: there is none.
        RequestError: several families have one.
    """
    rows = models_of_id(db, model, base)
    if not rows:
        ids = db._catalog.alike("id", model, base)
        near = offered(model, ids, None) or "; GET models?q=… finds ids by a part of them"
        raise UnknownModel(f"no model '{model}'{near}")
    rows = [row for row in rows if row["status"] == "indexed"] or rows
    if len(rows) > 1:
        bases = ", ".join(sorted(row["base"] for row in rows))
        raise RequestError(f"{model}: several families have it; give base, one of: {bases}")
    return rows[0]


def models_of_id(db: Database, model: str, base: str | None) -> list[Row]:
    """The models of exactly this id, indexed or not."""
    from ...store import ModelFilter

    return [row.to_json() for row in db._catalog.models(ModelFilter(id=model, base=base))]


@record
class PageOfModels(ListedModels):
    """One page of the models that pass every filter; `total` counts all that do."""

    _: KW_ONLY
    sort: Literal["model", "downloads", "indexed_at", "dataset", "author"] = option(
        default="model", help="Column that the models are sorted by."
    )
    order: Literal["asc", "desc"] = option(default="asc", help="Order: asc has the largest last.")
    indexed_first: bool = option(default=False, help="Models that are not indexed come last.")
    limit: int = option(default=50, least=1, most=500, help="Number of models, at most.")
    offset: int = option(
        default=0, least=0, most=10_000_000, help="Number of models before the page."
    )

    def answer(self, db: Opened) -> ModelTable:
        from ...store import Page

        rows, total = db._catalog.page_of_models(
            self.filter(db),
            Page(
                sort="id" if self.sort == "model" else self.sort,
                descending=self.order == "desc",
                indexed_first=self.indexed_first,
                limit=self.limit,
                offset=self.offset,
            ),
        )
        listed = [row.to_json() for row in rows]
        page = {"total": total, "limit": self.limit, "offset": self.offset}
        return ModelTable({"models": listed, **page})


def load_adapter_reader() -> None:
    """Import what `read_adapter` needs, which takes longer than the reading."""
    import_module("...indexer.adapter", __package__)


def read_adapter(folder: Path, reading: Mapping[str, Any]) -> Indexed:
    """The adapter in the folder, fingerprinted; only its own files are opened, by what
    `adapter_reading` says: a process without a catalog can do it.

    Raises:
        ModelError: it cannot be fingerprinted.
    """
    from ...indexer import fingerprint_sent_adapter

    made = fingerprint_sent_adapter(folder, **reading)
    return replace(made, model=replace(made.model, source="upload"))


def adapter_reading(
    db: Database, base: str, recipe: str | None = None, *, may_open_base: bool
) -> dict[str, Any]:
    """What `read_adapter` needs to know to read an adapter of this family."""
    from ...indexer import known_shapes

    return {
        "base": base,
        "recipe": db._catalog.find_recipe(recipe, base),
        "layout": db._catalog.base(base).layout,
        "may_open_base": may_open_base,
        "shapes": known_shapes(db._catalog, base),
        "stored": db._catalog.base(base).shapes,
    }


def record_adapter(
    db: Database,
    adapter: Indexed,
    model: str,
    *,
    dataset: str | None,
    author: str | None,
    run: str | None,
) -> None:
    """Store an adapter that `read_adapter` read, under the id `model`."""
    record = replace(
        adapter.model,
        id=model,
        signature=adapter.model.content_sha256 or "",
        dataset=dataset,
        dataset_raw=dataset,
        label_source="labels" if dataset else None,
        author=author,
        run=run or model,
    )
    db._catalog.record(replace(adapter, model=record))


def prepare_searches(
    db: Database, goes_on: Callable[[float, list[str]], bool] = lambda *_: True
) -> list[StoreFull]:
    """Do now what the first search after a change would wait for, small families first.

    Args:
        goes_on: Is called now and then with the share that is done and the bases that can be
            searched; False stops the work.

    Returns:
        Why families have no file of sketches: there is no room for it.
    """
    from ...search import prepare_search

    refusals, known = [], db._catalog.recipes()
    groups = sorted(db._catalog.stats()["recipes"], key=lambda group: int(group["models"]))
    bases, sizes = [group["base"] for group in groups], [group["models"] for group in groups]

    def told(n: int, share: float) -> bool:
        done = (sum(sizes[:n]) + share * sizes[n]) / sum(sizes)
        return goes_on(done, sorted({*bases[:n]} - {*bases[n:]}))

    for n, group in enumerate(groups):
        if not told(n, 0.0):
            break
        try:
            asks = partial(told, n)
            prepare_search(db._catalog, group["base"], known[group["id"]], goes_on=asks)
        except StoreFull as err:
            refusals.append(err)
    return refusals


def prepare_first_looks(db: Database) -> None:
    """Import what a first look at a map needs, and compute the axes of large families."""
    from ...search import family_views, prepare_axes

    import_module("sklearn.decomposition")
    for view in family_views(db._catalog, None, None):
        prepare_axes(view)


def bring_into_memory(db: Database, goes_on: Callable[[], bool] = lambda: True) -> None:
    """Have the system read ahead what searches will read, and compute what they would of each
    model; `goes_on` as for `prepare_searches`.
    """
    from ...search import prepare_traits
    from ...store import SketchFiles

    db._catalog.access.derived(SketchFiles).bring_into_memory()
    known = db._catalog.recipes()
    for group in db._catalog.stats()["recipes"]:
        prepare_traits(db._catalog, group["base"], known[group["id"]], goes_on=goes_on)
