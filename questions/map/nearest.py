"""The nearest models of each on a map, and places of kept data sets."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arrays import Float64
from ...records import DataSet
from ..terminal.evidence import NOTHING_STANDS_OUT

if TYPE_CHECKING:
    from ...search import LabelledModels, TrainedModel
    from ...search.evidence import Calibration
    from ...store import FamilyView

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np  # for annotations alone


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

LEAST_WEIGHT = 0.1
"""Least weight of a model that places a data set, in z."""

NEAREST_LISTED = 5


def neighbourhoods(
    view: FamilyView, family: LabelledModels, kept: Sequence[DataSet]
) -> dict[str, Any]:
    """What a page lists of each model: its nearest, as a search gives them, by their places, and
    kept data sets by their names; each with numbers, and the place of its verdict in a list. Empty
    for families of too many models."""
    import numpy as np

    from ...search import compare_kept

    source, n_models = family.source, len(family.ids)
    if source is None or n_models > NEIGHBOURS_UP_TO:
        return {}
    calibration = source.family.evidence.calibration(view)
    labels = view.labels
    rows = view.rows(family.ids)
    stated = calibration.trusted(rows.tolist(), [labels.at(row).stated for row in rows.tolist()])
    verdicts: dict[str, int] = {}

    def listed(thing: object, numbers: Sequence[float | None], verdict: str) -> list[object]:
        shown = (number and round(number, 4) for number in numbers)
        return [thing, *shown, verdicts.setdefault(verdict, len(verdicts))]

    height = max(1, BLOCK_SCORES // max(1, n_models))
    near: list[list[list[object]]] = []
    for block in np.split(np.arange(n_models), range(height, n_models, height)):
        pairs = source.pairs(block, np.arange(n_models))
        for row, cosines, z in zip(block.tolist(), pairs.cosines, pairs.z, strict=True):
            near.append([listed(*one) for one in _nearest(stated, row, cosines, z, calibration)])
    document: dict[str, Any] = {"neighbours": near, "calibration": calibration.to_json()}
    if compared := compare_kept(view, kept, rows):
        document["nearest_data"] = [
            [listed(n.data, (n.z, n.fdr), n.verdict) for n in compared.neighbours(row)[:DATA_SHOWN]]
            for row in range(n_models)
        ]
    return document | {"verdicts": list(verdicts)}


def _nearest(
    stated: Sequence[str | None],
    row: int,
    cosines: Float64[np.ndarray, " models"],
    z: Float64[np.ndarray, " models"],
    calibration: Calibration,
) -> Iterator[tuple[int, tuple[float | None, ...], str]]:
    """The nearest of one model; equal scores in order of id, as rows are."""
    import numpy as np

    from ...search.family_scores import TIE_DECIMALS
    from ...search.neighbours import CANDIDATES

    near = np.argsort(-np.round(z, TIE_DECIMALS), kind="stable")
    near = near[near != row][:CANDIDATES]
    labels = [stated[place] for place in near.tolist()]
    judged = calibration.judge(z[near], labels, cosines[near], len(z) - 1)
    clipped = np.clip(cosines, -1.0, 1.0)
    for rank, place in enumerate(near[:NEIGHBOURS_SHOWN].tolist()):
        evidence = judged.probability(rank), float(judged.fdr[rank])
        numbers = (float(z[place]), *evidence, float(clipped[place]))
        yield place, numbers, judged.verdicts[rank]


def data_places(
    view: FamilyView, kept: Sequence[DataSet], places: Mapping[str, tuple[float, float]]
) -> list[dict[str, Any]]:
    """A row for each data set that has models on the map, whose places by id are given."""
    from ...search import nearest_to_kept

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

    standing = [m for m in nearest if m.verdict != NOTHING_STANDS_OUT] or nearest[:FALLBACK]
    points: Float64[np.ndarray, "models 2"] = np.array([places[m.model] for m in standing])
    x, y = np.average(points, axis=0, weights=[max(m.z, LEAST_WEIGHT) for m in standing]).tolist()
    return x, y
