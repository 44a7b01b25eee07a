"""Every subset of an embedding's terms, and what each subset predicted of the same items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import TypeAlias

import numpy as np

from ...arrays import Float32, Float64, Int64
from ...errors import StudyError

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
class Split:
    """Rows of the items, each in at most one part; the seed is None where a user drew them."""

    train: Int64[np.ndarray, " train"] = field(compare=False)
    validation: Int64[np.ndarray, " validation"] = field(compare=False)
    test: Int64[np.ndarray, " test"] = field(compare=False)
    seed: int | None = None

    def sizes(self) -> dict[str, object]:
        """The number of items in each part, and the seed, for JSON."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {**{name: len(part) for name, part in parts.items()}, "seed": self.seed}


def split_by_text(
    text: Int64[np.ndarray, " items"],
    *,
    seed: int = 0,
    shares: tuple[float, float, float] = TRAIN_VALIDATE_TEST,
) -> Split:
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
    return Split(train, validation, test, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Tokens or words: their terms, and what is to be predicted from these.

    Attributes:
        names: The terms' names.
        labels: A token id, a sense or a tag of each item.
        lemmas: Of each word in a sense; senses are compared within a lemma only.
        text: The text of each item. Items of one text are not independent.
        split: Where the user gave one; else it is drawn by text.
        seed: Of the split.
        settings: How the items were chosen, for JSON.
    """

    terms: Float32[np.ndarray, "terms items dim"]
    names: tuple[str, ...]
    labels: Sequence[str] | Int64[np.ndarray, " items"]
    lemmas: Sequence[str] = ()
    text: Int64[np.ndarray, " items"]
    split: Split | None = None
    seed: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)

    def check(self, what: str) -> None:
        """Refuse terms that cannot be measured.

        Raises:
            StudyError: no item, or a term with NaN or infinity.
        """
        if self.terms.shape[1] == 0:
            raise StudyError(f"{what}: nothing to measure; give at least one item")
        for name, values in zip(self.names, self.terms, strict=True):
            bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
            if len(bad):
                raise StudyError(
                    f"{what}: term {name!r} of item {bad[0]} holds NaN or infinity "
                    f"({len(bad)} of {len(values)} items); run the model in float32 and leave out "
                    "texts it cannot take"
                )


@dataclass(frozen=True, slots=True)
class SubsetResult:
    """The class codes that one subset predicts, and the learning rate where it was trained."""

    predicted: Int64[np.ndarray, "runs items"] = field(compare=False)
    learning_rate: float | None = None


Make: TypeAlias = Callable[[], SubsetResult]

Keep: TypeAlias = Callable[[str, str, Make], SubsetResult]
"""Gives the result of (a measure's key, a subset's label): what it kept, or else what it makes."""


def keep_nothing(measure: str, subset: str, make: Make) -> SubsetResult:
    """The result, made now."""
    return make()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPredictions:
    """Predictions for the same items from every subset of terms.

    Attributes:
        key: The measure's name for programs, such as "senses-knn".
        measure: Its name for people, such as "word senses, 5 nearest".
        names: Of the terms.
        predicted: Class codes in the order of `term_subsets`; `NONE` where there is none. A run
            is one training; measures without training have one.
        targets: The right codes.
        baseline: Predictions without the embedding, such as the commonest class.
        text: The text of each item; intervals resample texts.
        settings: Seeds, options and counts, for JSON.
    """

    key: str
    measure: str
    names: tuple[str, ...]
    predicted: Int64[np.ndarray, "runs subsets items"] = field(compare=False)
    targets: Int64[np.ndarray, " items"] = field(compare=False)
    baseline: Int64[np.ndarray, " items"] = field(compare=False)
    text: Int64[np.ndarray, " items"] = field(compare=False)
    settings: Mapping[str, object]


def predict_subsets(
    items: Items,
    key: str,
    measure: str,
    result: Callable[[Subset], SubsetResult],
    *,
    test: Int64[np.ndarray, " test"],
    targets: Int64[np.ndarray, " items"],
    baseline: Int64[np.ndarray, " test"],
    settings: Mapping[str, object],
    keep: Keep,
) -> SubsetPredictions:
    """The predictions of all subsets for the test items, as they were kept or are made now."""
    subsets = term_subsets(items.names)
    results = [keep(key, subset.label, partial(result, subset)) for subset in subsets]
    rates = {
        subset.label: found.learning_rate
        for subset, found in zip(subsets, results, strict=True)
        if found.learning_rate is not None
    }
    return SubsetPredictions(
        key=key,
        measure=measure,
        names=items.names,
        predicted=np.stack([found.predicted for found in results], axis=1),
        targets=targets[test],
        baseline=baseline,
        text=items.text[test],
        settings={
            **items.settings,
            **settings,
            **({"chosen_learning_rates": rates} if rates else {}),
        },
    )


def commonest(codes: Int64[np.ndarray, " items"]) -> int:
    """The code that occurs most often; of equally frequent ones the smallest."""
    values, counts = np.unique(codes, return_counts=True)
    return int(values[counts.argmax()])
