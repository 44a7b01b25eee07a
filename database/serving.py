"""What a service does with a catalog beside asking it: threads, pages, uploads, warm indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import RequestError, StoreFull, UnknownModel, offered
from ..records import Indexed, Recipe
from .opened import Opened
from .queries import AdapterReading
from .tables import ModelTable, Row

if TYPE_CHECKING:
    from ..search import StoredQuery


class Serving(Opened):
    """What a `Database` does for a service."""

    @property
    def changes(self) -> str:
        """A token that changes with every commit, by whatever process."""
        return self._catalog.changes

    @property
    def recipes(self) -> dict[str, Recipe]:
        """Every recipe by its id."""
        return self._catalog.recipes()

    def find_recipe(self, recipe: str | None, base: str) -> Recipe:
        """The recipe of that name or id; else the one of most of the family's models.

        >>> db.find_recipe("sketch", db.bases[0]).name
        'sketch'
        """
        return self._catalog.find_recipe(recipe, base)

    def exact_query(self, model: str, base: str | None = None) -> StoredQuery:
        """A search from the model of exactly this id; raises as `exact_model`.

        >>> db.find_similar(db.exact_query("imdb-0"), k=1)[0]["model"]
        'imdb-1'
        """
        from ..search import StoredQuery

        stored = self._catalog.stored_models(model, base)
        if len(stored) == 1:
            return StoredQuery(stored[0].id, stored[0].base)
        row = self.exact_model(model, base)
        return StoredQuery(row["model"], row["base"])

    def exact_model(self, model: str, base: str | None = None) -> Row:
        """The model of exactly this id, as `models` has it; a folder's path is no id.

        Raises:
            UnknownModel: there is none.
            RequestError: several families have one.

        >>> db.exact_model("imdb-0")["dataset"]
        'imdb'
        >>> db.exact_model("models/imdb-0")
        Traceback (most recent call last):
        deltadex.errors.UnknownModel: no model 'models/imdb-0'; ...
        """
        rows = list(self.page_of_models(id=model, base=base))
        if not rows:
            ids = self._catalog.alike("id", model, base)
            near = offered(model, ids, None) or "; GET models?q=… finds ids by a part of them"
            raise UnknownModel(f"no model '{model}'{near}")
        rows = [row for row in rows if row["status"] == "indexed"] or rows
        if len(rows) > 1:
            bases = ", ".join(sorted(row["base"] for row in rows))
            raise RequestError(f"{model}: several families have it; give base, one of: {bases}")
        return rows[0]

    def page_of_models(
        self, *, page: Mapping[str, Any] = MappingProxyType({}), **filters: str | None
    ) -> ModelTable:
        """One page of the models that pass; `total` counts all that do.

        Args:
            page: `sort` (`id`, `dataset`, `author`, `downloads`, `indexed_at`), `descending`,
                `limit`, `offset`; all models by id where it is empty.
            filters: As of `models`; also `id`, `kind`, and `contains`, a part of an id, dataset
                or author.

        >>> page = db.page_of_models(page={"sort": "author", "limit": 1}, contains="SST2")
        >>> page[0]["model"], page.total
        ('sst2-0', 2)
        """
        from ..store import ModelFilter, Page

        rows, total = self._catalog.page_of_models(ModelFilter(**filters), Page(**page))
        return ModelTable({"models": [row.to_json() for row in rows], "total": total})

    def adapter_reading(
        self, base: str, recipe: str | None = None, *, may_open_base: bool
    ) -> AdapterReading:
        """What `read_adapter` needs to know to read an adapter of this family.

        >>> db.adapter_reading(db.bases[0], may_open_base=False).recipe.name
        'sketch'
        """
        from ..indexer import known_shapes

        return AdapterReading(
            base=base,
            recipe=self._catalog.find_recipe(recipe, base),
            layout=self._catalog.base(base).layout,
            may_open_base=may_open_base,
            shapes=known_shapes(self._catalog, base),
        )

    def record_adapter(
        self,
        adapter: Indexed,
        model: str,
        *,
        dataset: str | None,
        author: str | None,
        run: str | None,
    ) -> None:
        """Store an adapter that `read_adapter` read, under the id `model`; see its example."""
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
        self._catalog.record(replace(adapter, model=record))

    def prepare_searches(self, goes_on: Callable[[], bool] = lambda: True) -> list[StoreFull]:
        """Do now what the first search after a change would wait for.

        Args:
            goes_on: Is called now and then; False stops the work.

        Returns:
            Why families have no file of sketches: there is no room for it.

        >>> db.prepare_searches()
        []
        """
        from ..search import prepare_search

        refusals = []
        for group in self._catalog.stats()["recipes"]:
            recipe = self.recipes[group["id"]]
            try:
                prepare_search(self._catalog, group["base"], recipe, goes_on=goes_on)
            except StoreFull as err:
                refusals.append(err)
        return refusals

    def bring_into_memory(self) -> None:
        """Have the system read ahead what searches will read.

        >>> db.bring_into_memory()
        """
        from ..store import SketchFiles

        self._catalog.access.derived(SketchFiles).bring_into_memory()
