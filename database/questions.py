"""Questions about a family: how well searches work, its groups, its map, two of its models."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arrays import Float64
from ..errors import RequestError
from ..options import Place, Question, argument, option, record
from ..records import Colour, DataSet, Exclude, Layout
from .opened import ONLY_FAMILY, Family
from .tables import ClusterTable, DifferenceTable, EvaluationTable, Table

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np  # for annotations alone

if TYPE_CHECKING:
    from ..pictures.maps import MapNeighbour, Neighbourhoods
    from ..search import LabelledModels, TrainedModel
    from ..search.family_scores import Calibration
    from ..store import Catalog, FamilyView
    from .opened import Opened

NEIGHBOURS_SHOWN, DATA_SHOWN = 6, 3
"""Neighbours, and data sets, that a page lists of a model."""

NEIGHBOURS_UP_TO = 4_000
"""Models up to which a page lists the nearest of each: every pair is compared, in minutes."""

BLOCK_SCORES = 1 << 20
"""Scores held at a time."""

PLACED_BY = 15
"""Models that place a data set, at most; as many landmarks place a model."""

FALLBACK = 5
"""Models that place it where none stands out."""

NEAREST_LISTED = 5

LEAST_WEIGHT = 0.1
"""Least weight of a model that places a data set, in z."""


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
class Map(Family):
    """Draw a family into a file: a page (.html) or a picture (.png, .svg).

    Raises:
        RequestError: another ending, several families without `base`, or the file cannot
            be written.

    >>> db.map("family.html")[0]["models"]
    4
    """

    path: Place = option(
        "-o",
        "--output",
        default="deltadex-map.html",
        doors="local",
        file="file",
        help="A page (.html) or a picture (.png, .svg).",
    )
    _: KW_ONLY
    layout: Layout = option(
        default="auto",
        help="Method that places models: auto is t-SNE, of landmarks where models are many; umap "
        "needs deltadex[umap].",
    )
    seed: int = option(
        default=0, doors="local", least=0, most=2**32 - 1, help="Random seed of the layout."
    )
    colour: Colour | None = option(
        default=None,
        doors="local",
        shown_default="dataset",
        help="Colour a picture by this column.",
    )
    dark: bool = option(
        default=False,
        doors="local",
        help="Draw a picture light on dark; a page follows its reader's setting.",
    )

    def answer(self, db: Opened) -> Table:
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


def map_family(catalog: Catalog, asked: Map) -> dict[str, Any]:
    """Draw a family's fingerprints into a file; returns what was drawn, ready for JSON."""
    from ..pictures.maps import check_map_ending, write_map

    path = Path(asked.path)
    check_map_ending(path)
    is_page = path.suffix.lower() == ".html"
    document, landmarks, neighbours = _place(catalog, asked, with_neighbours=is_page)
    write_map(
        document,
        path,
        landmarks=landmarks,
        neighbours=neighbours,
        colour=asked.colour or "dataset",
        dark=asked.dark,
    )
    shown = ("base", "recipe", "layout", "explained", "seed")
    return {
        "written": str(path),
        "models": len(document["models"]),
        **{key: document[key] for key in shown},
        "landmarks": landmarks,
        **({"data": document["data"]} if "data" in document else {}),
    }


def layout_document(catalog: Catalog, asked: Map) -> dict[str, Any]:
    """A family's map as columns, placed anew; names are numbers of places in a list.

    `data` has the places of kept data sets; a family that keeps none has no such key.
    """
    return _place(catalog, asked)[0]


def _place(
    catalog: Catalog, asked: Map, *, with_neighbours: bool = False
) -> tuple[dict[str, Any], int | None, Neighbourhoods | None]:
    """The map as columns, the number of landmarks, and the nearest of every model."""
    from ..pictures.maps import encode_names
    from ..search import kept_data_sets, place_models, read_family

    view, models, records = read_family(
        catalog, asked.recipe, asked.base, several="one map shows one family"
    )
    placement = place_models(
        models.ids, models.vectors, asked.layout, scores=models.scores, seed=asked.seed
    )
    x, y = placement.coordinates.round(6).T.tolist()
    document: dict[str, Any] = {
        "base": models.base,
        "recipe": view.recipe.name,
        "layout": placement.method,
        "explained": placement.explained and list(placement.explained),
        "seed": asked.seed,
        "models": list(models.ids),
        "x": x,
        "y": y,
    }
    rows = [records[model] for model in models.ids]
    kinds = [row.kind for row in rows]
    columns = {"dataset": models.labels, "author": models.authors, "kind": kinds}
    for name, column in columns.items():
        document[name], document[f"{name}s"] = encode_names(column)
    document["downloads"] = [row.downloads for row in rows]
    kept = tuple(kept_data_sets(catalog, view))
    if kept:
        places = dict(zip(models.ids, zip(x, y, strict=True), strict=True))
        document["data"] = data_places(view, kept, places)
    neighbours = _neighbourhoods(view, models, kept) if with_neighbours else None
    return document, placement.landmarks, neighbours


def _neighbourhoods(
    view: FamilyView, family: LabelledModels, kept: Sequence[DataSet]
) -> Neighbourhoods | None:
    """The nearest of every model, as a search gives them; None for families of too many models."""
    import numpy as np

    from ..pictures.maps import NearData, Neighbourhoods
    from ..search import compare_kept

    source, n_models = family.source, len(family.ids)
    if source is None or n_models > NEIGHBOURS_UP_TO:
        return None
    calibration = source.family.evidence.calibration(view)
    height = max(1, BLOCK_SCORES // max(1, n_models))
    neighbours: list[tuple[MapNeighbour, ...]] = []
    for block in np.split(np.arange(n_models), range(height, n_models, height)):
        pairs = source.pairs(block, np.arange(n_models))
        neighbours += (
            _nearest(family.ids, row, cosines, z, calibration)
            for row, cosines, z in zip(block.tolist(), pairs.cosines, pairs.z, strict=True)
        )
    data: list[list[NearData]] | None = None
    if compared := compare_kept(view, kept, view.rows(family.ids)):
        data = [
            [NearData(near.data, near.z, near.fdr, near.verdict) for near in nearest[:DATA_SHOWN]]
            for nearest in map(compared.neighbours, range(n_models))
        ]
    return Neighbourhoods(neighbours, calibration.to_json(), data)


def _nearest(
    ids: Sequence[str],
    row: int,
    cosines: Float64[np.ndarray, " models"],
    z: Float64[np.ndarray, " models"],
    calibration: Calibration,
) -> tuple[MapNeighbour, ...]:
    """The nearest of one model; equal scores in order of id, as rows are."""
    import numpy as np

    from ..pictures.maps import MapNeighbour
    from ..search.family_scores import TIE_DECIMALS, verdict
    from ..search.neighbours import CANDIDATES

    n_others = len(ids) - 1
    rounded = np.round(z, TIE_DECIMALS)
    rounded[row] = -np.inf
    n_ranked = min(CANDIDATES, n_others)
    if n_ranked == 0:
        return ()
    least = np.partition(rounded, -n_ranked)[-n_ranked]
    near = np.flatnonzero(rounded >= least)
    near = near[np.argsort(-rounded[near], kind="stable")[:n_ranked]]
    rates = calibration.fdr(z[near], n_others, cosines[near])
    return tuple(
        MapNeighbour(
            model=ids[place],
            z=float(z[place]),
            fdr=float(rate),
            cosine=float(np.clip(cosines[place], -1.0, 1.0)),
            verdict=verdict(float(cosines[place]), float(rate)),
        )
        for place, rate in zip(near[:NEIGHBOURS_SHOWN].tolist(), rates, strict=False)
    )


def data_places(
    view: FamilyView, kept: Sequence[DataSet], places: Mapping[str, tuple[float, float]]
) -> list[dict[str, Any]]:
    """A row for each data set that has models on the map, whose places by id are given."""
    from ..search import nearest_to_kept

    rows = []
    for data, models in nearest_to_kept(view, kept, PLACED_BY):
        shown = [model for model in models if model.model in places]
        if not shown:
            continue
        x, y = data_place(shown, places)
        rows.append(
            {
                "name": data.name,
                "x": round(x, 6),
                "y": round(y, 6),
                "examples": data.examples,
                "loss": data.loss,
                "verdict": shown[0].verdict,
                "nearest": [
                    {
                        "model": model.model,
                        "z": round(model.z, 4),
                        "fdr": round(model.fdr, 6),
                        "verdict": model.verdict,
                    }
                    for model in shown[:NEAREST_LISTED]
                ],
            }
        )
    return rows


def data_place(
    nearest: Sequence[TrainedModel], places: Mapping[str, tuple[float, float]]
) -> tuple[float, float]:
    """The mean place of the models that stand out, weighted by z; else of the few nearest.

    As models are placed among landmarks (`search/layout.py`), with z in place of affinities.
    """
    import numpy as np

    nothing = "no model stands out"
    standing = [model for model in nearest if model.verdict != nothing] or nearest[:FALLBACK]
    points: Float64[np.ndarray, "models 2"] = np.array([places[m.model] for m in standing])
    x, y = np.average(points, axis=0, weights=[max(m.z, LEAST_WEIGHT) for m in standing]).tolist()
    return x, y
