"""Questions about a family: how well searches work, its groups, its map, two of its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RequestError
from ..options import Question, argument, option, record
from ..records import Exclude
from .queries import ONLY_FAMILY, Family, MapOptions
from .tables import ClusterTable, DifferenceTable, EvaluationTable, Table

if TYPE_CHECKING:
    from .opened import Opened


@record
class Retrieval(Question):
    """Which models of which families are ranked for each other."""

    _: KW_ONLY
    base: str | None = option(default=None, help=ONLY_FAMILY)
    exclude: Exclude | None = option(
        default=None, help="Leave out candidates of the query's own author or run."
    )
    with_unlabelled: bool = option(
        default=False,
        doors="local",
        help="Let queries retrieve models without a dataset label too.",
    )


@record
class Evaluate(Retrieval):
    """How well nearest neighbours share their dataset, against chance.

    Returns:
        A row for each recipe, way and family: `micro`, `macro`, `chance`, `nn1`, `p_value`.

    Raises:
        RequestError: no two labelled models share a dataset, or there is no such way.

    >>> db.evaluate(exclude="author")[0]["nn1"]
    1.0
    >>> [row["way"] for row in db.evaluate(compare=("raw", "normalised"))]
    ['raw', 'normalised']
    """

    recipes: tuple[str, ...] = option(
        "--recipe",
        default=(),
        doors="local",
        shown_default="of most models",
        help="Name or id of a recipe; several are shown side by side.",
    )
    _: KW_ONLY
    compare: Sequence[str] = option(
        default=(),
        doors="local",
        separated=True,
        metavar="WAYS",
        help="Ways of scoring side by side, such as raw,normalised.",
    )

    def answer(self, db: Opened) -> EvaluationTable:
        from ..search import check_ways, evaluate

        base = db._catalog.find_base(self.base)
        check_ways(self.compare)
        documents = [
            evaluate(
                db._catalog,
                recipe=recipe,
                base=base,
                exclude=self.exclude,
                with_unlabelled=self.with_unlabelled,
                way=way,
            )
            for recipe in self.recipes or (None,)
            for way in self.compare or ("normalised",)
        ]
        if self.compare:
            return EvaluationTable({"ways": documents})
        return EvaluationTable(documents[0] if len(documents) == 1 else {"recipes": documents})


@record
class Cluster(Family):
    """Groups of models that lie close together, and datasets for unlabelled models.

    >>> [len(group["models"]) for group in db.cluster(min_size=2)]
    [2, 2]
    """

    _: KW_ONLY
    min_size: int | None = option(
        default=None,
        doors="local",
        least=2,
        shown_default="grows with the family, from 3",
        help="Fewest models of a cluster.",
    )
    suggest: bool = option(
        "--suggest/--no-suggest",
        default=True,
        doors="local",
        help="Suggest datasets for unlabelled models, by their nearest labelled models.",
    )
    unknown_share: float = option(
        "--unknown",
        default=1.0,
        doors="local",
        least=0,
        most=1,
        metavar="SHARE",
        help="Share of the unlabelled whose dataset no labelled model has, at most; 0 if labels "
        "name them all.",
    )

    def answer(self, db: Opened) -> ClusterTable:
        from ..search import cluster_family

        report = cluster_family(
            db._catalog,
            min_size=self.min_size,
            suggest=self.suggest,
            unknown_share=self.unknown_share,
            recipe=self.recipe,
            base=db._catalog.find_base(self.base),
        )
        return ClusterTable(report.to_json())


@record
class Map(MapOptions):
    """Draw a family into a file: a page (.html) or a picture (.png, .svg).

    Raises:
        RequestError: another ending, several families without `base`, or the file cannot
            be written.

    >>> db.map("family.html")[0]["models"]
    4
    """

    def answer(self, db: Opened) -> Table:
        from .placing import map_family

        if Path(self.path).suffix.lower() == ".html" and (self.colour or self.dark):
            raise RequestError("--colour and --dark are for a .png or .svg picture")
        return Table(map_family(db._catalog, self))


@record
class Diff(Question):
    """What differs between two indexed models, a row for each slot that differs most.

    >>> db.diff("imdb-0", "sst2-0").to_json()["unit"]
    'relative'
    """

    first: str = argument(metavar="A", help="Id of a model.")
    second: str = argument(metavar="B", help="Id of another model.")
    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> DifferenceTable:
        from ..search import pair_cosine
        from ..study.diff import diff_models

        difference = db._catalog.look(
            lambda: diff_models(
                db._catalog,
                self.first,
                self.second,
                db._catalog.find_base(self.base),
                partial(pair_cosine, db._catalog),
            )
        )
        return DifferenceTable(difference.to_json())
