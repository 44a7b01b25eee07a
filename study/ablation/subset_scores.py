"""An ablation as one report: the score of each subset, its interval, and their agreement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any, Literal

import numpy as np

from ...arrays import Float64, Int64
from ...errors import StudyError
from ..report_json import JsonRecord
from .term_subsets import NONE, SubsetPredictions

Score = Literal["accuracy", "macro-F1"]
Unknown = Literal["wrong", "dropped"]

DRAWS = 1_000
DRAW_BLOCK_CELLS = 2_000_000
"""Resampled texts held at a time: 16 MB."""

Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a score, text by text, so that texts can be resampled.

    Attributes:
        cells: For accuracy right answers and items; for macro-F1 true positives of each class,
            then false answers (false positives plus false negatives) of each class.
    """

    score: Score
    cells: Float64[np.ndarray, "runs texts cells"] = field(compare=False)

    def value(
        self, weights: Float64[np.ndarray, "draws texts"] | None = None
    ) -> Float64[np.ndarray, "runs draws"]:
        """The score of each run, with each text counted as often as its weight; once by default.

        Macro-F1 is over the classes that occur in targets or predictions, as scikit-learn's.
        """
        weights = np.ones((1, self.cells.shape[1])) if weights is None else weights
        left, right = np.split(np.matmul(weights, self.cells), 2, axis=2)  # (runs, draws, cells)
        values: Float64[np.ndarray, "runs draws"]
        if self.score == "accuracy":
            values = (left / right)[:, :, 0]
        else:
            base = 2 * left + right
            f1 = np.divide(2 * left, base, out=np.zeros_like(base), where=base > 0)
            values = f1.sum(axis=2) / (base > 0).sum(axis=2)
        return values


def count(
    score: Score,
    predicted: Int64[np.ndarray, "runs items"],
    targets: Int64[np.ndarray, " items"],
    text: Int64[np.ndarray, " items"],
) -> Counts:
    """The counts of one subset's predictions."""
    texts, place = np.unique(text, return_inverse=True)
    if score == "accuracy":
        columns = [[p == targets, np.ones(len(targets))] for p in predicted]
    elif score == "macro-F1":
        classes = np.setdiff1d(np.union1d(targets, predicted), [NONE])
        truth = targets[:, None] == classes
        columns = []
        for p in predicted:
            guess = p[:, None] == classes
            columns.append([*(truth & guess).T, *(truth ^ guess).T])
    else:
        raise ValueError(f"score must be 'accuracy' or 'macro-F1', got {score!r}")
    cells = [[np.bincount(place, c, minlength=len(texts)) for c in run] for run in columns]
    return Counts(score, np.array(cells, dtype=np.float64).transpose(0, 2, 1))


def resampled(counts: list[Counts], *, seed: int) -> Float64[np.ndarray, "subsets draws"]:
    """The mean score over runs on texts drawn with replacement, the same draws for all subsets.

    A text is drawn with all its items.
    """
    n_texts = counts[0].cells.shape[1]
    blocks = [[c.value(w).mean(axis=0) for c in counts] for w in _weights(n_texts, seed)]
    return np.concatenate(blocks, axis=1)


def interval_of(
    draws: Float64[np.ndarray, " draws"], *, n_texts: int, score: Score
) -> tuple[float, float]:
    """The 95 % percentile interval of resampled scores.

    Where every draw gives the same accuracy (all right, all wrong), it is Wilson's for as many
    items as there are texts.
    """
    low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    if low == high and score == "accuracy":
        return wilson_interval(low, n_texts)
    return low, high


def wilson_interval(share: float, n_items: int) -> tuple[float, float]:
    """95 % interval of a share of independent items (Wilson 1927), within 0…1."""
    if n_items < 1 or not 0 <= share <= 1:
        raise ValueError(f"a share of at least one item, 0…1, got {share} of {n_items}")
    shrink = 1 + Z95**2 / n_items
    centre = (share + Z95**2 / (2 * n_items)) / shrink
    half = Z95 / shrink * math.sqrt(share * (1 - share) / n_items + (Z95 / (2 * n_items)) ** 2)
    return max(0.0, centre - half), min(1.0, centre + half)


def _weights(n_texts: int, seed: int) -> Iterator[Float64[np.ndarray, "draws texts"]]:
    """The number of times that each text is drawn, for some of the `DRAWS` resamples at a time."""
    rng = np.random.default_rng(seed)
    block = max(1, DRAW_BLOCK_CELLS // n_texts)
    for start in range(0, DRAWS, block):
        size = min(block, DRAWS - start)
        yield rng.multinomial(n_texts, np.full(n_texts, 1 / n_texts), size=size).astype(np.float64)


def agreement_matrix(
    predicted: Int64[np.ndarray, "runs subsets items"],
) -> Float64[np.ndarray, "subsets subsets"]:
    """Share of items for which two subsets predict the same class, 0…1, mean over runs.

    With one class for each item this share is the micro-averaged F1 of one subset's predictions
    against the other's, which Mickus et al. 2022 print, and also their accuracy. Only items for
    which both have a prediction count; NaN where there are none.
    """
    items = predicted.transpose(1, 0, 2).reshape(predicted.shape[1], -1)
    shares = np.full((len(items), len(items)), np.nan)
    for a, b in combinations_with_replacement(range(len(items)), 2):
        both = (items[a] != NONE) & (items[b] != NONE)
        if both.any():
            shares[a, b] = shares[b, a] = (items[a] == items[b])[both].mean()
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetScore(JsonRecord):
    """The score of one subset of terms.

    Attributes:
        label: A letter a term, like "ihc"; "none" without terms.
        value: 0…1, mean over runs.
        sd: Over runs (n − 1); None with one run.
        low, high: 95 % interval over items or texts, the training held fixed.
        difference: The value less that of the sum of all terms.
        difference_low, difference_high: Its 95 % interval: both on the same resampled texts.
    """

    label: str = field(metadata={"key": "subset"})
    terms: tuple[str, ...]
    value: float
    sd: float | None
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationReport(JsonRecord):
    """One measure on all subsets of the terms.

    Attributes:
        key: The measure's name for programs, such as "senses-knn".
        baseline: The score of a guess without the embedding.
        n_items: Scored items.
        n_unknown: Items without a prediction, which count as wrong or are dropped (`unknown`).
        agreement: Share of equal predictions, in the order of `scores`; None where two
            subsets have no item in common.
    """

    key: str
    measure: str
    score: Score
    names: tuple[str, ...] = field(metadata={"key": "terms"})
    scores: tuple[SubsetScore, ...] = field(metadata={"key": "subsets"})
    baseline: float
    n_items: int
    n_texts: int
    n_runs: int
    unknown: Unknown
    n_unknown: int
    interval: str
    agreement: tuple[tuple[float | None, ...], ...]
    settings: Mapping[str, Any]


def ablation_report(
    predictions: SubsetPredictions,
    *,
    score: Score = "accuracy",
    unknown: Unknown = "wrong",
    seed: int = 0,
    key: str = "",
    details: Mapping[str, object] | None = None,
) -> AblationReport:
    """Scores, 95 % intervals and agreement of a measure's predictions.

    Intervals are Wilson's where every item is its own text; otherwise, and for macro-F1, they are
    of a bootstrap over texts.

    Args:
        unknown: Whether items without a prediction count as wrong or are dropped.
        seed: Of the bootstrap.
        details: What else decides the numbers, for JSON: model, layer, seed of the masks.

    Raises:
        StudyError: no item is left to score.
    """
    if unknown not in ("wrong", "dropped"):
        raise ValueError(f"unknown must be 'wrong' or 'dropped', got {unknown!r}")
    lost = (predictions.predicted == NONE).any(axis=(0, 1))
    if unknown == "dropped":
        predictions = replace(
            predictions,
            predicted=predictions.predicted[:, :, ~lost],
            targets=predictions.targets[~lost],
            baseline=predictions.baseline[~lost],
            text=predictions.text[~lost],
        )
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
    values = np.concatenate([subset.value().T for subset in counts])  # (subsets, runs)
    draws = resampled(counts, seed=seed)
    if score == "accuracy" and n_texts == n_items:
        spans = [wilson_interval(float(mean), n_items) for mean in values.mean(axis=1)]
        interval = "95 %, Wilson"
    else:
        spans = [interval_of(row, n_texts=n_texts, score=score) for row in draws]
        interval = f"95 %, bootstrap over {n_texts} texts"
    leads = np.quantile(draws - draws[-1], [0.025, 0.975], axis=1).T.tolist()
    means = values.mean(axis=1)
    guess = count(score, predictions.baseline[None], predictions.targets, predictions.text)
    n_runs = values.shape[1]
    return AblationReport(
        key=key,
        measure=predictions.measure,
        score=score,
        names=predictions.names,
        scores=tuple(
            SubsetScore(
                label=subset.label,
                terms=subset.names,
                value=float(mean),
                sd=float(row.std(ddof=1)) if n_runs > 1 else None,
                low=low,
                high=high,
                difference=float(mean - means[-1]),
                difference_low=lead[0],
                difference_high=lead[1],
            )
            for subset, row, mean, (low, high), lead in zip(
                predictions.subsets, values, means, spans, leads, strict=True
            )
        ),
        baseline=float(guess.value()[0, 0]),
        n_items=n_items,
        n_texts=n_texts,
        n_runs=n_runs,
        unknown=unknown,
        n_unknown=int(np.count_nonzero(lost)),
        interval=interval,
        agreement=tuple(
            tuple(None if np.isnan(share) else float(share) for share in row)
            for row in agreement_matrix(predictions.predicted)
        ),
        settings={
            **(details or {}),
            **predictions.settings,
            "bootstrap": {"draws": DRAWS, "seed": seed},
        },
    )
