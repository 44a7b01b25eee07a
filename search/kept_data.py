"""Kept data sets among the models of their family: every one of them with every model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float64, Int64
from ..records import WHOLE, DataSet
from ..store import Catalog, FamilyView
from .scoring.data_evidence import null_calibration
from .scoring.evidence import Calibration
from .scoring.family_scores import FamilyScores
from .trained_on import (
    DataNeighbour,
    TrainedModel,
    data_neighbours,
    data_scores,
    nearest_models,
    other_data,
    rank_with_rates,
    sketch_rows,
)

BLOCK = 1_000
"""Models whose sketches are held at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptData:
    """The kept data sets of a family, and their evidence with some of its models.

    Attributes:
        sets: By name.
        z: Deviations above a data set's scores with the family's strangers.
        cosines: Plain.
        rates: Of false discoveries among the models beside a data set, as `find-trained-on` has
            them where the models are the whole family.
        calibration: What false discovery rates are computed from.
    """

    sets: tuple[DataSet, ...]
    z: Float64[np.ndarray, "data models"] = field(compare=False)
    cosines: Float64[np.ndarray, "data models"] = field(compare=False)
    rates: Float64[np.ndarray, "data models"] = field(compare=False)
    calibration: Calibration

    def neighbours(self, column: int) -> tuple[DataNeighbour, ...]:
        """The data sets nearest to the model of a column, all of them."""
        numbers = (values[:, column].tolist() for values in (self.z, self.cosines, self.rates))
        return data_neighbours(
            [
                (data, z, cosine, None, rate)
                for data, z, cosine, rate in zip(self.sets, *numbers, strict=True)
            ]
        )


def kept_data_sets(catalog: Catalog, view: FamilyView) -> list[DataSet]:
    """The kept data sets of a view's family and recipe that can be compared with its models."""
    kept = catalog.data_sets.all(view.base, view.recipe.id)
    usable = [data for data in kept if WHOLE in data.sketches]
    return usable if usable and FamilyScores.of(view) is not None else []


def compare_kept(
    view: FamilyView,
    kept: Sequence[DataSet],
    rows: Int64[np.ndarray, " rows"],
    others: Sequence[DataSet] | None = None,
) -> KeptData | None:
    """Every data set with the models at some rows; None without any data set.

    Peak: the sketches of `BLOCK` models.

    Args:
        others: By which each data set is normalised; else by one another, as `find-data` does.
    """
    family = FamilyScores.of(view)
    if not kept or family is None:
        return None
    prepared = []
    for data in kept:
        scores = data_scores(view, other_data(others or kept, data))
        prepared.append((scores, scores.prepare(sketch_rows([data.whole], view))))
    z, cosines = np.empty((len(kept), len(rows))), np.empty((len(kept), len(rows)))
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        models = family.stored(view, rows[block])
        for place, (scores, gradient) in enumerate(prepared):
            pairs = scores.compare(gradient, models)
            z[place, block], cosines[place, block] = pairs.z[0], pairs.cosines[0]
    labels = view.labels_at(rows.tolist())
    datasets = [labels[row].dataset if row in labels else None for row in rows.tolist()]
    rates = np.empty_like(z)
    for place in range(len(kept)):
        order, ranked = rank_with_rates(view, rows, z[place], datasets, len(rows))
        rates[place, order] = ranked
    return KeptData(
        sets=tuple(kept),
        z=z,
        cosines=cosines,
        rates=rates,
        calibration=null_calibration(len(view)),
    )


def nearest_to_kept(
    view: FamilyView, kept: Sequence[DataSet], k: int
) -> list[tuple[DataSet, tuple[TrainedModel, ...]]]:
    """Each data set with the `k` models nearest to it, as `find-trained-on` ranks them."""
    return [(data, nearest_models(view, data, other_data(kept, data), k=k).models) for data in kept]
