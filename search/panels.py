"""Models of several bases beside the data sets of one panel: z of each data set with each model.

A panel is a list of data sets whose gradients were computed on every base. Fingerprints of two
bases cannot be compared; columns of z over the same data sets can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float64, Int64
from ..records import DataSet
from ..store import Catalog, FamilyView
from .trained_on import compare_kept, kept_data_sets

LEAST_SPREAD = 1e-9
"""Of z: below it differences are rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class PanelScores:
    """z of a panel's data sets, by name, with every model of a family, by row of the view."""

    view: FamilyView
    sets: tuple[DataSet, ...]
    z: Float64[np.ndarray, "data models"] = field(repr=False)

    @property
    def base(self) -> str:
        return self.view.base

    @property
    def names(self) -> list[str]:
        """Of the data sets, without the panel's."""
        return [data.name.rpartition("/")[2] for data in self.sets]


def panel_scores(catalog: Catalog, view: FamilyView, panel: str = "") -> PanelScores | None:
    """Of the data sets that were kept by themselves, where no panel is named; None where the
    family has none of it, or no sketches. Held with the view: a catalog that grew costs the
    cosines again, and no gradient."""
    sets = tuple(kept_data_sets(catalog, view, panel))
    rows: Int64[np.ndarray, " models"] = np.arange(len(view))
    compared = compare_kept(view, sets, rows)
    return None if compared is None else PanelScores(view, sets, compared.z)


def shared_sets(scores: Sequence[PanelScores]) -> list[list[int]]:
    """Places of the data sets that all families have, by their bytes, in one order."""
    places = [{data.sha256: place for place, data in enumerate(some.sets)} for some in scores]
    common = [data.sha256 for data in scores[0].sets if all(data.sha256 in own for own in places)]
    return [[own[sha256] for sha256 in common] for own in places]


def standardised(z: Float64[np.ndarray, "data models"]) -> Float64[np.ndarray, "data models"]:
    """Each row in its own standard deviations above its mean over the family; 0 in a row without
    any spread."""
    spread = z.std(axis=1, keepdims=True)
    wide = spread > LEAST_SPREAD
    return np.asarray(
        np.where(wide, z - z.mean(axis=1, keepdims=True), 0.0) / np.where(wide, spread, 1.0)
    )


def unit_columns(z: Float64[np.ndarray, "data models"]) -> Float64[np.ndarray, "models data"]:
    """Models as centred columns of length 1, of which inner products are correlations; 0 for a
    model that all data sets are equally far from."""
    columns = (z - z.mean(axis=0)).T
    lengths = np.linalg.norm(columns, axis=1, keepdims=True)
    return np.asarray(columns / np.maximum(lengths, LEAST_SPREAD))
