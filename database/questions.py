"""Questions about a family: what is similar, why, how well that works, how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import RequestError
from ..options import question
from . import queries
from .opened import Opened, Place
from .queries import Query
from .similar import FindSimilar
from .tables import (
    ClusterTable,
    DifferenceTable,
    EvaluationTable,
    ExplanationTable,
    Table,
)

if TYPE_CHECKING:
    pass


class Questions(Opened):
    """What a `Database` answers."""

    find_similar = question(FindSimilar)

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

        start = queries.start_of(self._catalog, model, self.find_base(base), recipe)
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
            ).to_json()
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
