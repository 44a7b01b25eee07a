"""Every subset of an embedding's terms, and what each subset predicted of the same items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, combinations_with_replacement
from typing import Any, Literal

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ...results import JsonRecord, Row, count

LETTERS = {"input": "i", "attention": "h", "feed_forward": "f", "bias": "c", "source": "s"}
"""The terms' letters in e = i + h + f + c (Mickus et al. 2022) and s (Mickus & Vázquez 2023)."""
NONE = -1
"""The code of no prediction, as for a word whose lemma does not occur in training."""
EMPTY = "none"
"""The label of the subset without a term, whose sum is the zero vector."""
TRAIN_VALIDATE_TEST = (0.8, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class Subset:
    """Some of the terms: a label with a letter a term, like "ihc", and their places."""

    label: str
    names: tuple[str, ...]
    members: tuple[int, ...]

    def sum(
        self, terms: Float32[np.ndarray, "terms items dim"]
    ) -> Float32[np.ndarray, "items dim"]:
        """The sum of its terms, taken in float64, as terms may be far longer than their sum."""
        total: Float64[np.ndarray, "items dim"] = np.zeros(terms.shape[1:])
        for member in self.members:
            total += terms[member]
        return total.astype(np.float32)


def term_subsets(names: Sequence[str]) -> tuple[Subset, ...]:
    """All 2ⁿ subsets, the empty one first, then small ones, then by term order."""
    return tuple(
        Subset(
            "".join(LETTERS[names[i]] for i in members) or EMPTY,
            tuple(names[i] for i in members),
            members,
        )
        for size in range(len(names) + 1)
        for members in combinations(range(len(names)), size)
    )


@dataclass(frozen=True, slots=True)
class ItemSplit:
    """Rows of the items, each in at most one part."""

    train: Int64[np.ndarray, " train"] = field(compare=False)
    validation: Int64[np.ndarray, " validation"] = field(compare=False)
    test: Int64[np.ndarray, " test"] = field(compare=False)
    seed: int

    def only(self, used: Bool[np.ndarray, " items"]) -> ItemSplit:
        parts = {name: getattr(self, name) for name in ("train", "validation", "test")}
        return replace(self, **{name: part[used[part]] for name, part in parts.items()})

    def sizes(self) -> dict[str, object]:
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {**{name: len(part) for name, part in parts.items()}, "seed": self.seed}


def split_by_text(
    text: Int64[np.ndarray, " items"],
    *,
    seed: int = 0,
    shares: tuple[float, float, float] = TRAIN_VALIDATE_TEST,
) -> ItemSplit:
    """Parts in the given shares of texts, drawn at random; a text is never in two parts.

    Each part with a share gets at least one text while there are enough: test first, then
    validation.
    """
    texts = np.unique(text)
    order = np.random.default_rng(seed).permutation(texts)
    room, sizes = len(texts) - 1, []
    for share in (shares[2], shares[1]):
        size = min(max(1, round(share * len(texts))), max(0, room)) if share else 0
        room -= size
        sizes.append(size)
    drawn = np.split(order, np.cumsum(sizes))
    test, validation, train = (np.flatnonzero(np.isin(text, part)) for part in drawn)
    return ItemSplit(train, validation, test, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Tokens or words: their terms, and what is to be predicted from these.

    Attributes:
        names: Of the terms.
        labels: A token id, a tag, or a sense of each item, which counts within its lemma only.
        text: The text of each item. Items of one text are not independent.
        settings: How the items were chosen, for JSON.
    """

    terms: Float32[np.ndarray, "terms items dim"]
    names: tuple[str, ...]
    labels: Sequence[str] | Int64[np.ndarray, " items"]
    lemmas: Sequence[str] = ()
    text: Int64[np.ndarray, " items"]
    seed: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def dim(self) -> int:
        return int(self.terms.shape[2])

    def check(self, what: str) -> None:
        """Refuse to measure no item, or a term with NaN or infinity."""
        if self.terms.shape[1] == 0:
            raise StudyError(f"{what}: nothing to measure; give at least one item")
        for name, values in zip(self.names, self.terms, strict=True):
            bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
            if len(bad):
                raise StudyError(
                    f"{what}: term {name!r} of item {bad[0]} holds NaN or infinity "
                    f"({len(bad)} of {count(len(values), 'item')}); run the model in float32 and "
                    "leave out texts it cannot take"
                )


Predicted = tuple[Int64[np.ndarray, "runs items"], float | None]
"""The class codes that one subset predicts, and the learning rate where it was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPredictions:
    """Predictions for the same items from every subset of terms.

    Attributes:
        key: The measure's name for programs, such as "senses-knn".
        predicted: Class codes in the order of `term_subsets`; `NONE` where there is none. A run
            is one training; measures without training have one.
        baseline: Predictions without the embedding, such as the commonest class.
        text: The text of each item; intervals resample texts.
    """

    key: str
    names: tuple[str, ...]
    predicted: Int64[np.ndarray, "runs subsets items"] = field(compare=False)
    targets: Int64[np.ndarray, " items"] = field(compare=False)
    baseline: Int64[np.ndarray, " items"] = field(compare=False)
    text: Int64[np.ndarray, " items"] = field(compare=False)
    settings: Mapping[str, object]


def predict_subsets(
    items: Items,
    key: str,
    predict: Callable[[Subset], Predicted],
    *,
    test: Int64[np.ndarray, " test"],
    targets: Int64[np.ndarray, " items"],
    baseline: Int64[np.ndarray, " test"],
    settings: Mapping[str, object],
) -> SubsetPredictions:
    """The predictions of all subsets for the test items."""
    subsets = term_subsets(items.names)
    predicted, rates_of = zip(*map(predict, subsets), strict=True)
    trained = zip(subsets, rates_of, strict=True)
    rates = {subset.label: rate for subset, rate in trained if rate is not None}
    chosen = {"chosen_learning_rates": rates} if rates else {}
    return SubsetPredictions(
        key=key,
        names=items.names,
        predicted=np.stack(predicted, axis=1),
        targets=targets[test],
        baseline=baseline,
        text=items.text[test],
        settings={**items.settings, **settings, **chosen},
    )


def commonest(codes: Int64[np.ndarray, " items"]) -> int:
    """The code that occurs most often; of equally frequent ones the smallest."""
    values, counts = np.unique(codes, return_counts=True)
    return int(values[counts.argmax()])


Score = Literal["accuracy", "macro-F1"]

DRAWS = 1_000
DRAW_BLOCK_CELLS = 2_000_000
"""Resampled texts held at a time: 16 MB."""


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


def _wilson(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a share of 0 or 1, which draws cannot tell (Wilson 1927)."""
    from scipy.stats import binomtest

    found = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


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
        baseline: The score of a guess without the embedding.
        n_unknown: Items without a prediction, which count as wrong.
        agreement: Share of equal predictions, in the order of `scores`; None where two
            subsets have no item in common.
    """

    key: str
    score: Score
    names: tuple[str, ...] = field(metadata={"key": "terms"})
    scores: tuple[SubsetScore, ...] = field(metadata={"key": "subsets"})
    baseline: float
    n_items: int
    n_texts: int
    n_runs: int
    n_unknown: int
    interval: str
    agreement: tuple[tuple[float | None, ...], ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationStudyReport(JsonRecord):
    """All measures of one network, of the terms of one stream behind its last layer and norm.

    `absent` terms are zero for every token; `error` is the largest relative one of their sum.
    """

    model: str
    stack: str
    layer: int
    terms: tuple[str, ...]
    absent: tuple[str, ...]
    texts: int
    error: float
    measures: tuple[AblationReport, ...]
    skipped: tuple[Row, ...]


def ablation_report(
    predictions: SubsetPredictions, *, score: Score = "accuracy", seed: int = 0
) -> AblationReport:
    """Scores, 95 % intervals and agreement; items without a prediction count as wrong.

    Intervals are percentiles of a bootstrap over texts; where all items are right, or all wrong,
    Wilson's of so many texts.
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
    spans = [
        _wilson(mean, n_texts) if mean in (0.0, 1.0) else span
        for mean, *span in zip(means, low.tolist(), high.tolist(), strict=True)
    ]
    leads = np.quantile(draws - draws[-1], [0.025, 0.975], axis=1).T.tolist()
    guess = text_counts(score, predictions.baseline[None], targets, text)
    n_runs = values.shape[1]
    return AblationReport(
        key=predictions.key,
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
        n_unknown=int(np.count_nonzero((predictions.predicted == NONE).any(axis=(0, 1)))),
        interval=f"95 %, bootstrap over {n_texts} texts",
        agreement=tuple(
            tuple(None if np.isnan(share) else float(share) for share in row)
            for row in agreement_matrix(predictions.predicted)
        ),
        settings={**predictions.settings, "bootstrap": {"draws": DRAWS, "seed": seed}},
    )
