"""Questions about a family: what is similar, why, how well that works, how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

from ..errors import BadFilter, EmptyCatalog, ModelError, RequestError, UnknownBase
from ..records import Indexed
from . import queries
from .opened import Opened, Place
from .queries import (
    Kind,
    ModelInMemory,
    Query,
    find_base_with,
    indexes_of,
    open_attached,
)
from .tables import (
    ClusterTable,
    DifferenceTable,
    Document,
    EvaluationTable,
    ExplanationTable,
    NeighbourTable,
    Table,
)

if TYPE_CHECKING:
    from ..search import FreshQuery, StoredQuery
    from ..store import AttachedIndex


class Questions(Opened):
    """What a `Database` answers."""

    def find_similar(
        self,
        model: Query | Sequence[Place],
        k: int = 10,
        *,
        dataset: str | None = None,
        author: str | None = None,
        where: str | None = None,
        recipe: str | None = None,
        base: str | None = None,
        kind: Kind = "full",
        explain: bool = False,
        attached: bool = True,
    ) -> NeighbourTable:
        """The `k` models nearest to a model, or fewer if fewer pass the filters.

        Args:
            model: An id; a folder or Hub id, which is fingerprinted and not stored; a PEFT or
                transformers model in memory; a fingerprint's vector, of shape (dim,); a list of
                ids, folders and Hub ids, in which one that has no answer stops no other.
            dataset, author, where: Only neighbours that pass; `where` is a condition over the
                columns of `models`, such as `"downloads > 100 AND kind = 'adapter'"`.
            kind: Of the model that a vector is of: scores are normalised by kind.
            explain: Whether the document says which layers and roles carry each cosine; not of
                models of attached indexes, which keep no sketches.
            attached: Whether attached indexes of the same base and recipe are searched too.

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
        from ..store import Filters

        if k < 1:
            raise RequestError(f"k must be at least 1, got {k}")
        indexes = open_attached(self._catalog) if attached else []
        base = find_base_with(self._catalog, base, indexes)
        filters = Filters(dataset=dataset, author=author, where=where)

        def answer(query: Query) -> Document:
            from ..search import explain_pair, find_similar

            start = self._query(query, base, recipe, kind, indexes)
            beside = indexes_of(self._catalog, start.base, indexes) if start.base else []
            neighbours = find_similar(
                self._catalog, start, k=k, filters=filters, recipe=recipe, attached=beside
            )
            if not neighbours.neighbours:
                self._require_labels(dataset, author, indexes)
            document: dict[str, Any] = neighbours.to_json()
            if explain:
                document["explanations"] = [
                    explain_pair(self._catalog, start, neighbour.model, recipe=recipe).to_json()
                    for neighbour in neighbours.neighbours
                    if neighbour.source is None
                ]
            return document

        if _is_several(model):
            answers, failed = [], []
            for name in model:
                try:
                    answers.append(answer(name))
                except (BadFilter, EmptyCatalog, UnknownBase):
                    raise
                except (RequestError, ModelError) as err:
                    failed.append({"model": str(name), "reason": str(err)})
            return NeighbourTable({"queries": answers, "failed": failed})
        return NeighbourTable(answer(cast("Query", model)))

    def explain(
        self, model: Query, other: str, *, recipe: str | None = None, base: str | None = None
    ) -> ExplanationTable:
        """Which weight matrices, layers and roles carry the similarity of two models.

        Args:
            model: As of `find_similar`, but not a list or a vector.

        Returns:
            A row for each slot that both changed, the largest contribution first.

        Raises:
            RequestError: the recipe keeps no sketches of single slots.

        >>> db.explain("imdb-0", "imdb-1").to_json()["similarity"] > 0.5
        True
        """
        from ..search import explain_pair

        start = self._query(model, self.find_base(base), recipe, "full")
        explanation = explain_pair(self._catalog, start, other, recipe=recipe)
        return ExplanationTable(explanation.to_json())

    def evaluate(
        self,
        *recipes: str,
        base: str | None = None,
        exclude: Literal["author", "run"] | None = None,
        with_unlabelled: bool = False,
        compare: Sequence[str] = (),
    ) -> EvaluationTable:
        """How well nearest neighbours share their dataset, against chance.

        Args:
            recipes: Names or ids; the one of most models by default.
            exclude: Whether candidates of the query's own author or run are left out.
            with_unlabelled: Whether models without a label are candidates.
            compare: Ways of scoring to evaluate side by side: `("raw", "normalised")`.

        Returns:
            A row for each recipe, way and family: `micro`, `macro`, `chance`, `nn1`, `p_value`.

        Raises:
            RequestError: no two labelled models share a dataset, or there is no such way.

        >>> db.evaluate(exclude="author")[0]["nn1"]
        1.0
        >>> [row["way"] for row in db.evaluate(compare=("raw", "normalised"))]
        ['raw', 'normalised']
        """
        from ..search import check_ways, evaluate

        base = self.find_base(base)
        check_ways(compare)
        documents = [
            evaluate(
                self._catalog,
                recipe=recipe,
                base=base,
                exclude=exclude,
                with_unlabelled=with_unlabelled,
                way=way,
            )
            for recipe in recipes or (None,)
            for way in compare or ("normalised",)
        ]
        if compare:
            return EvaluationTable({"ways": documents})
        return EvaluationTable(documents[0] if len(documents) == 1 else {"recipes": documents})

    def cluster(
        self,
        *,
        min_size: int | None = None,
        suggest: bool = True,
        unknown_share: float = 1.0,
        recipe: str | None = None,
        base: str | None = None,
    ) -> ClusterTable:
        """Groups of models that lie close together, and datasets for unlabelled models.

        Args:
            min_size: Fewest models of a cluster, 2 or more; grows with the family by default.
            suggest: Whether datasets are suggested for unlabelled models.
            unknown_share: Share of the unlabelled whose dataset no labelled model has, at most.

        >>> [len(group["models"]) for group in db.cluster(min_size=2)]
        [2, 2]
        """
        from ..search import cluster_family

        report = cluster_family(
            self._catalog,
            min_size=min_size,
            suggest=suggest,
            unknown_share=unknown_share,
            recipe=recipe,
            base=self.find_base(base),
        )
        return ClusterTable(report.to_json())

    def map(
        self,
        path: Place,
        *,
        layout: Literal["auto", "pca", "tsne", "umap"] = "auto",
        seed: int = 0,
        colour: Literal["dataset", "author", "kind"] | None = None,
        dark: bool = False,
        recipe: str | None = None,
        base: str | None = None,
    ) -> Table:
        """Draw a family into a file: a page (.html) or a picture (.png, .svg).

        Args:
            layout: How models are placed; `auto` is t-SNE, `umap` needs umap-learn.
            colour: What the marks of a picture are coloured by; by dataset where it is None.
            dark: Whether a picture is light on dark; a page follows its reader.

        Raises:
            RequestError: another ending, several families without `base`, or the file cannot
                be written.

        >>> db.map("family.html")[0]["models"]
        4
        """
        from .placing import map_family

        if Path(path).suffix.lower() == ".html" and (colour or dark):
            raise RequestError("--colour and --dark are for a .png or .svg picture")
        return Table(
            map_family(
                self._catalog,
                Path(path),
                layout=layout,
                seed=seed,
                colour=colour or "dataset",
                dark=dark,
                recipe=recipe,
                base=self.find_base(base),
            )
        )

    def map_columns(
        self,
        *,
        layout: Literal["auto", "pca", "tsne", "umap"] = "auto",
        recipe: str | None = None,
        base: str | None = None,
    ) -> dict[str, Any]:
        """The map that `map` draws, as columns: `models`, `x`, `y`, `dataset` and others.

        >>> db.map_columns(layout="pca")["models"]
        ['imdb-0', 'imdb-1', 'sst2-0', 'sst2-1']
        """
        from .placing import layout_document

        return layout_document(self._catalog, self.find_base(base), recipe, layout)

    def diff(self, first: str, second: str, base: str | None = None) -> DifferenceTable:
        """What differs between two indexed models, a row for each slot that differs most.

        >>> db.diff("imdb-0", "sst2-0").to_json()["unit"]
        'relative'
        """
        from ..search import pair_cosine
        from ..study.diff import diff_models

        difference = self._catalog.look(
            lambda: diff_models(
                self._catalog,
                first,
                second,
                self.find_base(base),
                partial(pair_cosine, self._catalog),
            )
        )
        return DifferenceTable(difference.to_json())

    def _query(
        self,
        model: Query,
        base: str | None,
        recipe: str | None,
        kind: Kind,
        attached: Sequence[AttachedIndex] = (),
    ) -> StoredQuery | FreshQuery:
        """What a search starts from."""
        from ..search import FreshQuery, StoredQuery

        if isinstance(model, StoredQuery | FreshQuery):
            return model
        if isinstance(model, Indexed):
            return queries.fresh_query(model, queries.UPLOAD)
        if isinstance(model, str | Path):
            return queries.find_query(self._catalog, str(model), base, recipe, attached)
        if isinstance(model, ModelInMemory):
            return queries.memory_query(self._catalog, model, base, recipe, attached)
        family = base or self.find_family(None)
        return queries.vector_query(self._catalog, model, family, recipe, kind, attached)


def _is_several(model: object) -> TypeGuard[Sequence[Place]]:
    return isinstance(model, list | tuple) and all(isinstance(name, str | Path) for name in model)
