"""An ablation as one report: the score of each subset, its interval, and their agreement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any, Literal

import numpy as np

from ...arrays import Float64, Int64
from ..report_json import JsonRecord
from .subset_predictions import NONE, SubsetPredictions, term_subsets

Score = Literal["accuracy", "macro-F1"]
Unknown = Literal["wrong", "dropped"]

DRAWS = 1_000
DRAW_BLOCK_CELLS = 2_000_000
"""Resampled texts held at a time: 16 MB."""

Z95 = 1.959963984540054


def text_counts(
    score: Score,
    predicted: Int64[np.ndarray, "runs items"],
    targets: Int64[np.ndarray, " items"],
    text: Int64[np.ndarray, " items"],
) -> Float64[np.ndarray, "runs texts cells"]:
    """The counts of a score, text by text, so that texts can be resampled.

    For accuracy right answers and items; for macro-F1 true positives of each class, then false
    answers (false positives plus false negatives) of each class.
    """
    texts, place = np.unique(text, return_inverse=True)
    if score == "accuracy":
        columns = [[p == targets, np.ones(len(targets))] for p in predicted]
    else:
        classes = np.setdiff1d(np.union1d(targets, predicted), [NONE])
        truth = targets[:, None] == classes
        guesses = [p[:, None] == classes for p in predicted]
        columns = [[*(truth & guess).T, *(truth ^ guess).T] for guess in guesses]
    cells = [[np.bincount(place, c, minlength=len(texts)) for c in run] for run in columns]
    return np.array(cells, dtype=np.float64).transpose(0, 2, 1)


def weighted_scores(
    score: Score,
    counts: Float64[np.ndarray, "runs texts cells"],
    weights: Float64[np.ndarray, "draws texts"],
) -> Float64[np.ndarray, "runs draws"]:
    """The score of each run, with each text counted as often as its weight.

    Macro-F1 is over the classes that occur in targets or predictions, as scikit-learn's, which
    would count all items again for each draw.
    """
    left, right = np.split(np.matmul(weights, counts), 2, axis=2)  # (runs, draws, cells)
    values: Float64[np.ndarray, "runs draws"]
    if score == "accuracy":
        values = (left / right)[:, :, 0]
    else:
        base = 2 * left + right
        f1 = np.divide(2 * left, base, out=np.zeros_like(base), where=base > 0)
        values = f1.sum(axis=2) / (base > 0).sum(axis=2)
    return values


def resampled(
    score: Score, counts: list[Float64[np.ndarray, "runs texts _"]], *, seed: int
) -> Float64[np.ndarray, "subsets draws"]:
    """The mean score over runs on texts drawn with replacement, with all their items.

    All subsets have the same draws, so that they can be compared; SciPy's bootstrap draws anew.
    """
    n_texts = counts[0].shape[1]
    rng = np.random.default_rng(seed)
    block = max(1, DRAW_BLOCK_CELLS // n_texts)
    blocks = []
    for start in range(0, DRAWS, block):
        size = min(block, DRAWS - start)
        weights = rng.multinomial(n_texts, np.full(n_texts, 1 / n_texts), size=size).astype(float)
        blocks.append([weighted_scores(score, c, weights).mean(axis=0) for c in counts])
    return np.concatenate(blocks, axis=1)


def wilson_interval(share: float, n_items: int) -> tuple[float, float]:
    """95 % interval of a share of independent items (Wilson 1927), within 0…1.

    SciPy's takes a count, and a mean over runs is none.
    """
    shrink = 1 + Z95**2 / n_items
    centre = (share + Z95**2 / (2 * n_items)) / shrink
    half = Z95 / shrink * math.sqrt(share * (1 - share) / n_items + (Z95 / (2 * n_items)) ** 2)
    return max(0.0, centre - half), min(1.0, centre + half)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped(JsonRecord):
    """A measure that was not made, and the reason."""

    measure: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationStudyReport(JsonRecord):
    """All measures of one network.

    Attributes:
        stack: The stream whose terms were measured, behind its last layer and norm.
        terms: Those that the network has; `absent` ones are zero for every token.
        error: Largest relative error of the sum of terms.
    """

    model: str
    stack: str
    layer: int
    terms: tuple[str, ...]
    absent: tuple[str, ...]
    texts: int
    error: float
    measures: tuple[AblationReport, ...]
    skipped: tuple[Skipped, ...]


def ablation_report(
    predictions: SubsetPredictions, *, score: Score = "accuracy", seed: int = 0
) -> AblationReport:
    """Scores, 95 % intervals and agreement; items without a prediction count as wrong.

    Intervals are Wilson's where every item is its own text, or where every draw gives the same
    accuracy (all right, all wrong); otherwise, and for macro-F1, percentiles of a bootstrap over
    texts.

    Args:
        seed: Of the bootstrap.
    """
    targets, text = predictions.targets, predictions.text
    n_items, n_texts = len(targets), len(np.unique(text))
    counts = [
        text_counts(score, rows, targets, text) for rows in predictions.predicted.transpose(1, 0, 2)
    ]
    once = np.ones((1, n_texts))
    values = np.concatenate([weighted_scores(score, c, once).T for c in counts])  # (subsets, runs)
    means = values.mean(axis=1).tolist()
    draws = resampled(score, counts, seed=seed)
    low, high = np.quantile(draws, [0.025, 0.975], axis=1)
    spans = list(zip(low.tolist(), high.tolist(), strict=True))
    interval = f"95 %, bootstrap over {n_texts} texts"
    if score == "accuracy" and n_texts == n_items:
        spans, interval = [wilson_interval(mean, n_items) for mean in means], "95 %, Wilson"
    elif score == "accuracy":
        spans = [span if span[0] < span[1] else wilson_interval(span[0], n_texts) for span in spans]
    leads = np.quantile(draws - draws[-1], [0.025, 0.975], axis=1).T.tolist()
    guess = text_counts(score, predictions.baseline[None], targets, text)
    n_runs = values.shape[1]
    return AblationReport(
        key=predictions.key,
        measure=predictions.measure,
        score=score,
        names=predictions.names,
        scores=tuple(
            SubsetScore(
                label=subset.label,
                terms=subset.names,
                value=mean,
                sd=float(row.std(ddof=1)) if n_runs > 1 else None,
                low=span[0],
                high=span[1],
                difference=mean - means[-1],
                difference_low=lead[0],
                difference_high=lead[1],
            )
            for subset, row, mean, span, lead in zip(
                term_subsets(predictions.names), values, means, spans, leads, strict=True
            )
        ),
        baseline=float(weighted_scores(score, guess, once)[0, 0]),
        n_items=n_items,
        n_texts=n_texts,
        n_runs=n_runs,
        unknown="wrong",
        n_unknown=int(np.count_nonzero((predictions.predicted == NONE).any(axis=(0, 1)))),
        interval=interval,
        agreement=tuple(
            tuple(None if np.isnan(share) else float(share) for share in row)
            for row in agreement_matrix(predictions.predicted)
        ),
        settings={**predictions.settings, "bootstrap": {"draws": DRAWS, "seed": seed}},
    )
