"""Where the kept data sets of a family stand on its map, and which of them each model is near."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Float64
from ..records import DataSet
from ..search import TrainedModel, compare_kept, nearest_to_kept
from ..store import FamilyView
from ..web import DataNeighbours, NearData

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
