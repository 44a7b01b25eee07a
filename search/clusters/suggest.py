"""A dataset for unlabelled models, where held-out labelled models vouch for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..labelled import LabelledModels
from ..precision import Exclude
from .calibrate import TARGET, UNKNOWN_SHARE, Level, ask_labelled, measure_levels
from .scores import scores_between
from .votes import References, elect, may_answer, pick_references, tally

BLOCK = 1_000
"""Unlabelled models at once."""

SHOWN = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
"""Confidences at which the curve is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Of suggestions at least as sure as this one, at least `confidence` are expected right."""

    model: str
    dataset: str
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What labelled models, held out, say of suggestions in their family.

    Attributes:
        precision: Measured of those at the threshold; None where nothing reaches the target.
        coverage: Share of models of known datasets that get a suggestion, 0…1.
        threshold: Margin, in scores, from which suggestions are made.
        models: Labelled models that were asked and had a sibling to find.
        answers: The same, a run's (or author's) models of one dataset counted once.
        datasets: That could be suggested.
        held_out: What was left out with a model, copies always.
        unknown_share: Share of models of unknown datasets that all this reckons with.
        levels: By rising margin.
    """

    precision: float | None
    coverage: float
    threshold: float | None
    models: int
    answers: int
    datasets: int
    held_out: Exclude
    unknown_share: float
    levels: tuple[Level, ...]

    def confidence(self, margin: float) -> float:
        """The confidence of the highest level that this margin reaches."""
        reached = bisect_right(self.levels, margin, key=lambda level: level.margin)
        return self.levels[reached - 1].confidence if reached else 0.0

    def to_json(self) -> dict[str, object]:
        """The documented keys."""
        return {
            "precision": self.precision,
            "coverage": self.coverage,
            "threshold": self.threshold,
            "target": TARGET,
            "models": self.models,
            "answers": self.answers,
            "datasets": self.datasets,
            "held_out": self.held_out,
            "unknown_share": self.unknown_share,
            "curve": [
                {
                    "confidence": level.confidence,
                    "precision": level.precision,
                    "coverage": level.coverage,
                }
                for level in self._curve()
            ],
        }

    def _curve(self) -> list[Level]:
        """The first level of each shown confidence, and the last of all."""
        found = [
            next((level for level in self.levels if level.confidence >= shown), None)
            for shown in SHOWN
        ]
        kept = {level.margin: level for level in (*found, *self.levels[-1:]) if level is not None}
        return [kept[margin] for margin in sorted(kept)]


def suggest_datasets(
    family: LabelledModels, unknown_share: float = UNKNOWN_SHARE
) -> tuple[list[Suggestion], Calibration]:
    """Datasets for the unlabelled models that reach the target, by id; and why these.

    Each dataset speaks through its nearest models; the margin of the first dataset over the
    second decides. Peak: `BLOCK` models' scores with the references, and those' own.

    Args:
        unknown_share: Share of the unlabelled models, 0 to under 1, whose dataset no labelled
            model has.
    """
    references = pick_references(family)
    calibration = _calibrate(references, unknown_share)
    if calibration.threshold is None:
        return [], calibration
    unlabelled = [row for row, label in enumerate(family.labels) if label is None]
    suggestions: list[Suggestion] = []
    for start in range(0, len(unlabelled), BLOCK):
        suggestions += _suggest(family, unlabelled[start : start + BLOCK], references, calibration)
    return sorted(suggestions, key=lambda one: one.model), calibration


def _suggest(
    family: LabelledModels,
    unlabelled: Sequence[int],
    references: References,
    calibration: Calibration,
) -> list[Suggestion]:
    rows = np.array(unlabelled, dtype=np.int64)
    scores = scores_between(family, rows, references.rows)
    allowed = may_answer(family, rows, scores, references)
    first, margins = elect(tally(scores, allowed, references))
    assert calibration.threshold is not None
    return [
        Suggestion(
            model=family.ids[row],
            dataset=references.names[code],
            confidence=calibration.confidence(margin),
        )
        for row, code, margin in zip(rows.tolist(), first.tolist(), margins.tolist(), strict=True)
        if margin >= calibration.threshold
    ]


def _calibrate(references: References, unknown_share: float) -> Calibration:
    asked = ask_labelled(references)
    levels = measure_levels(asked, unknown_share)
    reached = next((level for level in levels if level.confidence >= TARGET), None)
    return Calibration(
        precision=reached.precision if reached else None,
        coverage=reached.coverage if reached else 0.0,
        threshold=reached.margin if reached else None,
        models=len(asked.margins),
        answers=round(float(asked.weights.sum())),
        datasets=len(references.names),
        held_out=references.held_out,
        unknown_share=unknown_share,
        levels=tuple(levels),
    )
