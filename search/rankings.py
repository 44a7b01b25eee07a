"""Every query's candidates with their scores, nearest first: what `evaluate` is computed from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Int64
from ..store import Catalog, FamilyView
from .evaluate import check_queries, check_ways
from .labelled import LabelledModels, family_views, labelled_models
from .retrieval import Exclude, Retrieval

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Rankings:
    """The rankings of one family under one recipe, by one way of scoring."""

    recipe_id: str
    way: str
    retrieval: Retrieval

    def tables(self) -> Iterator[pa.Table]:
        """A row for each query and candidate, some queries at a time: base, recipe, way, query,
        query_dataset, rank (from 1), model, dataset, author, run, score."""
        import pyarrow as pa

        family = self.retrieval.family
        ids, datasets, authors, runs = (
            _Names(values) for values in (family.ids, family.labels, family.authors, family.runs)
        )
        constants = [_Names([name]) for name in (family.base, self.recipe_id, self.way)]
        for block, ranking, scores in self.retrieval.ranked_blocks(self.retrieval.queries):
            places, columns = np.nonzero(ranking >= 0)
            queries, models = block[places], ranking[places, columns]
            nowhere = np.zeros(len(models), dtype=np.int64)
            base, recipe, way = (names.at(nowhere) for names in constants)
            yield pa.table(
                {
                    "base": base,
                    "recipe": recipe,
                    "way": way,
                    "query": ids.at(queries),
                    "query_dataset": datasets.at(queries),
                    "rank": (columns + 1).astype(np.int32),
                    "model": ids.at(models),
                    "dataset": datasets.at(models),
                    "author": authors.at(models),
                    "run": runs.at(models),
                    "score": scores[places, models],
                }
            )


class _Names:
    """A column of texts, of which many rows are taken."""

    def __init__(self, values: Sequence[str | None]) -> None:
        import pyarrow as pa

        distinct = dict.fromkeys(value for value in values if value is not None)
        names: dict[str | None, int] = {name: code for code, name in enumerate(distinct)}
        self._values = pa.array(list(names), pa.string())
        self._codes = np.array([names.get(value, -1) for value in values], dtype=np.int32)

    def at(self, rows: Int64[np.ndarray, " rows"]) -> pa.DictionaryArray:
        import pyarrow as pa

        codes = self._codes[rows]
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), self._values)


def rankings(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    ways: Sequence[str] = ("normalised",),
) -> list[Rankings]:
    """What `evaluate` ranks, for each family and way.

    Raises:
        EmptyCatalog, UnknownRecipe, RequestError: as `evaluate`.
    """
    check_ways(ways)

    def read() -> list[tuple[FamilyView, str, LabelledModels]]:
        views = family_views(catalog, recipe, base)
        return [(view, way, labelled_models(view, way)) for way in ways for view in views]

    found = [
        Rankings(
            view.recipe.id, way, Retrieval.of(family, exclude, with_unlabelled=with_unlabelled)
        )
        for view, way, family in catalog.look(read)
    ]
    check_queries([one.retrieval for one in found], exclude)
    return found
