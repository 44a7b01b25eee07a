"""A family of the catalog with a place for each model, as a document or drawn into a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Float64
from ..pictures.maps import (
    DataNeighbours,
    MapNeighbour,
    NearData,
    Neighbourhoods,
    check_map_ending,
    encode_names,
    write_map,
)
from ..records import DataSet
from ..search import (
    LabelledModels,
    TrainedModel,
    compare_kept,
    kept_data_sets,
    nearest_to_kept,
    place_models,
    read_family,
)
from ..search.family_scores import TIE_DECIMALS, Calibration, verdict
from ..search.neighbours import CANDIDATES
from ..store import Catalog, FamilyView
from .queries import MapOptions

NEIGHBOURS_SHOWN = 6

NEIGHBOURS_UP_TO = 4_000
"""Models up to which a page lists the nearest of each: every pair is compared, in minutes."""

BLOCK_SCORES = 1 << 20
"""Scores held at a time."""

PLACED_BY = 15
"""Models that place a data set, at most; as many landmarks place a model."""

FALLBACK = 5
"""Models that place it where none stands out."""

NEAREST_LISTED = 5
DATA_SHOWN = 3
"""Data sets that a page lists of a model."""

LEAST_WEIGHT = 0.1
"""Of a model that places a data set, in z."""

NOTHING = "no model stands out"


def map_family(catalog: Catalog, asked: MapOptions) -> dict[str, Any]:
    """Draw a family's fingerprints into a file: what was drawn, ready for JSON.

    Raises:
        RequestError: as `layout_document`, or the file has another ending or no folder.
        StoreFull: the file cannot be written.
    """
    path = Path(asked.path)
    check_map_ending(path)
    placed = _place(catalog, asked)
    document, landmarks = placed.document, placed.landmarks
    is_page = path.suffix.lower() == ".html"
    write_map(
        document,
        path,
        landmarks=landmarks,
        neighbours=_neighbourhoods(placed) if is_page else None,
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


def layout_document(catalog: Catalog, asked: MapOptions) -> dict[str, Any]:
    """A family's map as columns, placed anew; names are numbers of places in a list.

    `data` has the places of kept data sets; a family that keeps none has no such key.

    Raises:
        RequestError: there are several families and no `base`; an unknown recipe and an empty
            catalog raise its subclasses.
    """
    return _place(catalog, asked).document


@dataclass(frozen=True, slots=True)
class _PlacedFamily:
    view: FamilyView
    models: LabelledModels
    document: dict[str, Any]
    landmarks: int | None
    kept: tuple[DataSet, ...]


def _place(catalog: Catalog, asked: MapOptions) -> _PlacedFamily:
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
    for name, column in (
        ("dataset", models.labels),
        ("author", models.authors),
        ("kind", [row.kind for row in rows]),
    ):
        document[name], document[f"{name}s"] = encode_names(column)
    document["downloads"] = [row.downloads for row in rows]
    kept = tuple(kept_data_sets(catalog, view))
    if kept:
        places = dict(zip(models.ids, zip(x, y, strict=True), strict=True))
        document["data"] = data_places(view, kept, places)
    return _PlacedFamily(view, models, document, placement.landmarks, kept)


def _neighbourhoods(placed: _PlacedFamily) -> Neighbourhoods | None:
    """The nearest of every model, with the evidence that a search gives.

    None for families of more than `NEIGHBOURS_UP_TO` models.
    """
    view, family = placed.view, placed.models
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
    data = data_neighbours_of(view, placed.kept, family.ids)
    return Neighbourhoods(neighbours, calibration.to_json(), data)


def _nearest(
    ids: Sequence[str],
    row: int,
    cosines: Float64[np.ndarray, " models"],
    z: Float64[np.ndarray, " models"],
    calibration: Calibration,
) -> tuple[MapNeighbour, ...]:
    """The nearest of one model; equal scores in order of id, as rows are."""
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
    """A row for each data set that has models on the map: name, place, examples and nearest models.

    Args:
        places: Of the models by id.
    """
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
    standing = [model for model in nearest if model.verdict != NOTHING] or nearest[:FALLBACK]
    points: Float64[np.ndarray, "models 2"] = np.array([places[m.model] for m in standing])
    x, y = np.average(points, axis=0, weights=[max(m.z, LEAST_WEIGHT) for m in standing]).tolist()
    return x, y


def data_neighbours_of(
    view: FamilyView, kept: Sequence[DataSet], models: Sequence[str]
) -> DataNeighbours | None:
    """The few kept data sets nearest to each model, as `find-data` has them; None without any."""
    compared = compare_kept(view, kept, view.rows(models))
    if compared is None:
        return None
    return tuple(
        tuple(
            NearData(data=near.data, z=near.z, fdr=near.fdr, verdict=near.verdict)
            for near in compared.neighbours(column)[:DATA_SHOWN]
        )
        for column in range(len(models))
    )
