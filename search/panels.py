"""Models of several bases beside the data sets of one panel.

A panel is a list of data sets whose gradients were computed on every base. Fingerprints of two
bases cannot be compared; a model's column, its scores with the data sets of one panel, can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..records import DataSet
from ..store import Catalog, FamilyView, SketchMatrix
from .family_scores import FamilyScores, Scored
from .trained_on import BLOCK, DataCalibration, SetScores, kept_data_sets

COMPARED = ("output", "input")
"""Blocks whose cosines are coordinates: what changes is on the output side of gradients of tokens,
on the input side of those of classes; the update's own block is the noisiest across bases."""

LEAST_SPREAD = 1e-9
"""Of z: below it differences are rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Some models of one base, a column each: their z and cosines with the data sets of a panel."""

    z: Float64[np.ndarray, "data models"]
    cosines: Float64[np.ndarray, "blocks data models"]

    def take(self, models: Sequence[int] | Int64[np.ndarray, " models"]) -> Columns:
        return Columns(self.z[:, models], self.cosines[:, :, models])


class PanelScores:
    """The data sets of a panel, by name, and the columns of all models of a family, by row of the
    view."""

    def __init__(self, view: FamilyView, sets: Sequence[DataSet], family: FamilyScores) -> None:
        self.view, self.sets = view, tuple(sets)
        self._scores, self._family = SetScores(view, family, self.sets, self.sets), family
        blocks = [
            self._columns(family.stored(view, np.arange(start, min(start + BLOCK, len(view)))))
            for start in range(0, len(view), BLOCK)
        ]
        self.columns = Columns(
            np.concatenate([block.z for block in blocks], axis=1),
            np.concatenate([block.cosines for block in blocks], axis=2),
        )

    @property
    def base(self) -> str:
        return self.view.base

    @property
    def z(self) -> Float64[np.ndarray, "data models"]:
        """Of every data set with every model, as `find-trained-on` gives it."""
        return self.columns.z

    @property
    def names(self) -> list[str]:
        """Of the data sets, without the panel's."""
        return [data.name.rpartition("/")[2] for data in self.sets]

    @cached_property
    def kernel(self) -> Float64[np.ndarray, "data data"]:
        """Mean cosines of the gradients with one another, over the compared blocks."""
        gradients = self._scores.gradients
        return np.asarray(gradients.cosines(gradients)[self._compared].mean(axis=0))

    def of_model(self, sketches: SketchMatrix, kind: str) -> Columns:
        """The column of a model that is not stored."""
        return self._columns(self._family.prepare(sketches, [kind], [-1]))

    def probabilities(self, columns: Columns) -> Float64[np.ndarray, "data models"]:
        """That each model was trained on each data set, without a look at labels; 0 in families too
        small to say."""
        known = np.zeros(columns.z.shape)
        for place, data in enumerate(self.sets):
            calibration = DataCalibration.of(len(self.view), data.loss)
            if calibration.source != "the null alone":
                known[place] = calibration.of_scores(columns.z[place])
        return known

    @property
    def _compared(self) -> Bool[np.ndarray, " blocks"]:
        return np.array([block in COMPARED for block in self._scores.gradients.dims])

    def _columns(self, models: Scored) -> Columns:
        z, _, blocks = self._scores.compare(self._family.unwhitened(models))
        return Columns(z, blocks[self._compared])


@dataclass(frozen=True, slots=True)
class _Held:
    """Scores of a family's panels, by the data sets that they are of."""

    scores: dict[tuple[tuple[str, str, float], ...], PanelScores] = field(default_factory=dict)


def panel_scores(catalog: Catalog, view: FamilyView, panel: str = "") -> PanelScores | None:
    """Of the data sets that were kept by themselves, where no panel is named; None where the
    family has none of it, or no sketches. Held with the view: a catalog that grew costs the
    cosines again, and no gradient."""
    sets = kept_data_sets(catalog, view, panel)
    family = FamilyScores.of(view)
    if not sets or family is None:
        return None
    held = view.derived(_Held, lambda _: _Held()).scores
    key = tuple((data.name, data.sha256, data.fingerprint.norm) for data in sets)
    if key not in held:
        held[key] = PanelScores(view, sets, family)
    return held[key]


def shared_sets(scores: Sequence[PanelScores]) -> list[list[int]]:
    """Places of the data sets that all families have, by their bytes, in one order."""
    places = [{data.sha256: place for place, data in enumerate(some.sets)} for some in scores]
    common = [data.sha256 for data in scores[0].sets if all(data.sha256 in own for own in places)]
    return [[own[sha256] for sha256 in common] for own in places]


def standardised(
    values: Float64[np.ndarray, "*data models"],
    family: Float64[np.ndarray, "*data all"] | None = None,
) -> Float64[np.ndarray, "*data models"]:
    """Each row in standard deviations above its mean over all models of the family, which are
    these models themselves if none are given; 0 in a row without any spread."""
    family = values if family is None else family
    spread = family.std(axis=-1, keepdims=True)
    wide = spread > LEAST_SPREAD
    above = values - family.mean(axis=-1, keepdims=True)
    return np.asarray(np.where(wide, above, 0.0) / np.where(wide, spread, 1.0))


def unit_columns(z: Float64[np.ndarray, "data models"]) -> Float64[np.ndarray, "models data"]:
    """Models as centred columns of length 1, of which inner products are correlations; 0 for a
    model that all data sets are equally far from."""
    columns = (z - z.mean(axis=0)).T
    lengths = np.linalg.norm(columns, axis=1, keepdims=True)
    return np.asarray(columns / np.maximum(lengths, LEAST_SPREAD))
