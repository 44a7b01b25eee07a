"""An ablation as one report: a score a subset, its spread, and who agrees with whom."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ...arrays import Float64
from ...errors import StudyError
from .agreement import agreement_matrix
from .predictions import NONE, SubsetPredictions
from .scores import DRAWS, Counts, Score, count, intervals, wilson_interval

Unknown = Literal["wrong", "dropped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetScore:
    """How well one subset of terms predicts.

    Attributes:
        label: A letter a term, like "ihc".
        value: 0…1, mean over runs.
        sd: Over runs (n − 1); None with one run.
        low, high: 95 % interval over items or texts, the training held fixed.
    """

    label: str
    terms: tuple[str, ...]
    value: float
    sd: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationReport:
    """One measure on all subsets of the terms.

    Attributes:
        baseline: The score of guessing without the embedding.
        n_items: Scored.
        n_unknown: Items without a prediction: counted wrong, or dropped (`unknown`).
        agreement: Share of equal predictions, in the order of `scores`; NaN where two
            subsets have no item in common.
    """

    measure: str
    score: Score
    names: tuple[str, ...]
    scores: tuple[SubsetScore, ...]
    baseline: float
    n_items: int
    n_texts: int
    n_runs: int
    unknown: Unknown
    n_unknown: int
    interval: str
    agreement: Float64[np.ndarray, "subsets subsets"] = field(compare=False)
    settings: Mapping[str, object]

    def __post_init__(self) -> None:
        self.agreement.flags.writeable = False

    def to_json(self) -> dict[str, object]:
        """The report in JSON's types; agreement that is not a number is null."""
        return {
            "measure": self.measure,
            "score": self.score,
            "terms": list(self.names),
            "subsets": [
                {
                    "subset": one.label,
                    "terms": list(one.terms),
                    "value": one.value,
                    "sd": one.sd,
                    "low": one.low,
                    "high": one.high,
                }
                for one in self.scores
            ],
            "baseline": self.baseline,
            "n_items": self.n_items,
            "n_texts": self.n_texts,
            "n_runs": self.n_runs,
            "unknown": self.unknown,
            "n_unknown": self.n_unknown,
            "interval": self.interval,
            "agreement": [
                [None if math.isnan(share) else share for share in row]
                for row in self.agreement.tolist()
            ],
            "settings": dict(self.settings),
        }


def ablation_report(
    predictions: SubsetPredictions,
    *,
    score: Score = "accuracy",
    unknown: Unknown = "wrong",
    seed: int = 0,
    details: Mapping[str, object] | None = None,
) -> AblationReport:
    """Scores, 95 % intervals and agreement of a measure's predictions.

    Intervals are Wilson's where every item is its own text, and otherwise, as for macro-F1,
    of a bootstrap over texts.

    Args:
        unknown: Whether items without a prediction count as wrong or are dropped.
        seed: Of the bootstrap.
        details: What else the numbers hang on, ready for JSON: model, layer, seed of the masks.

    Raises:
        StudyError: no item is left to score.
    """
    if unknown not in ("wrong", "dropped"):
        raise ValueError(f"unknown must be 'wrong' or 'dropped', got {unknown!r}")
    lost = (predictions.predicted == NONE).any(axis=(0, 1))
    if unknown == "dropped":
        predictions = _without(predictions, lost)
    n_items, n_texts = len(predictions.targets), len(np.unique(predictions.text))
    if not n_items:
        raise StudyError(
            f"{predictions.measure}: no item is left to score ({np.count_nonzero(lost)} dropped); "
            "give training items of the test items' lemmas"
        )
    counts = [
        count(score, rows, predictions.targets, predictions.text)
        for rows in predictions.predicted.transpose(1, 0, 2)
    ]
    values = np.stack([_values(one) for one in counts])  # (subsets, runs)
    if score == "accuracy" and n_texts == n_items:
        spans = [wilson_interval(float(mean), n_items) for mean in values.mean(axis=1)]
        interval, bootstrap = "95 %, Wilson", {}
    else:
        spans = intervals(counts, seed=seed)
        interval = f"95 %, bootstrap over {n_texts} texts"
        bootstrap = {"bootstrap": {"draws": DRAWS, "seed": seed}}
    guess = count(score, predictions.baseline[None], predictions.targets, predictions.text)
    n_runs = values.shape[1]
    return AblationReport(
        measure=predictions.measure,
        score=score,
        names=predictions.names,
        scores=tuple(
            SubsetScore(
                label=subset.label,
                terms=subset.names,
                value=float(row.mean()),
                sd=float(row.std(ddof=1)) if n_runs > 1 else None,
                low=low,
                high=high,
            )
            for subset, row, (low, high) in zip(predictions.subsets, values, spans, strict=True)
        ),
        baseline=float(_values(guess)[0]),
        n_items=n_items,
        n_texts=n_texts,
        n_runs=n_runs,
        unknown=unknown,
        n_unknown=int(np.count_nonzero(lost)),
        interval=interval,
        agreement=agreement_matrix(predictions.predicted),
        settings={**(details or {}), **predictions.settings, **bootstrap},
    )


def _values(counts: Counts) -> Float64[np.ndarray, " runs"]:
    """The score of each run, every text counted once."""
    return counts.value(np.ones((1, counts.cells.shape[1])))[:, 0]


def _without(predictions: SubsetPredictions, lost: np.ndarray) -> SubsetPredictions:
    """The predictions of the other items."""
    kept = ~lost
    return replace(
        predictions,
        predicted=predictions.predicted[:, :, kept],
        targets=predictions.targets[kept],
        baseline=predictions.baseline[kept],
        text=predictions.text[kept],
    )
