"""Every subset of an embedding's terms, and what each subset predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from ...arrays import Float32, Float64, Int64
from ...errors import StudyError

LETTERS = {"input": "i", "attention": "h", "feed_forward": "f", "bias": "c", "source": "s"}
"""The terms' letters in e = i + h + f + c (Mickus et al. 2022) and s (Mickus & Vázquez 2023)."""

MOST_TERMS = 8
"""These have 256 subsets; a call with more terms is refused as a mistake."""

NONE = -1
"""The code of no prediction, as for a word whose lemma does not occur in training."""

EMPTY = "none"
"""The label of the subset without a term, whose sum is the zero vector."""


@dataclass(frozen=True, slots=True)
class Subset:
    """Some of the terms.

    Attributes:
        label: A letter a term, like "ihc"; `EMPTY` without terms.
        names: Of the terms in the subset, in term order.
        members: Their positions along the terms' axis.
    """

    label: str
    names: tuple[str, ...]
    members: tuple[int, ...]

    def sum(
        self, terms: Float32[np.ndarray, "terms items dim"]
    ) -> Float32[np.ndarray, "items dim"]:
        """The sum of its terms; zeros without terms.

        The sum is taken in float64, as terms may be far longer than their sum.
        Peak: one sum in float64 and its float32 copy beside the terms.
        """
        total: Float64[np.ndarray, "items dim"] = np.zeros(terms.shape[1:])
        for member in self.members:
            total += terms[member]
        return total.astype(np.float32)


def letters(names: Sequence[str]) -> tuple[str, ...]:
    """A letter for each term: that of `LETTERS`, or the first free letter of its name."""
    if len(set(names)) != len(names) or not 1 <= len(names) <= MOST_TERMS:
        raise ValueError(f"names must be 1 to {MOST_TERMS} different terms, got {list(names)}")
    taken = {LETTERS[name] for name in names if name in LETTERS}
    chosen: list[str] = []
    for name in names:
        candidates = [c for c in name.lower() if c.isalpha()] + list("abcdefghijklmnop")
        letter = LETTERS.get(name) or next(c for c in candidates if c not in taken)
        taken.add(letter)
        chosen.append(letter)
    return tuple(chosen)


def term_subsets(names: Sequence[str]) -> tuple[Subset, ...]:
    """All 2ⁿ subsets, the empty one first, then small ones, then by term order."""
    letter = letters(names)
    return tuple(
        Subset(
            "".join(letter[i] for i in members) or EMPTY, tuple(names[i] for i in members), members
        )
        for size in range(len(names) + 1)
        for members in combinations(range(len(names)), size)
    )


def check_terms(
    terms: Float32[np.ndarray, "terms items dim"], names: Sequence[str], what: str
) -> None:
    """Refuse terms that cannot be measured.

    Raises:
        ValueError: there are not as many terms as names.
        StudyError: no item, or a term with NaN or infinity.
    """
    if len(terms) != len(names):
        raise ValueError(f"{len(terms)} terms, but {len(names)} names: {list(names)}")
    if terms.shape[1] == 0:
        raise StudyError(f"{what}: nothing to measure; give at least one item")
    for name, values in zip(names, terms, strict=True):
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(bad):
            raise StudyError(
                f"{what}: term {name!r} of item {bad[0]} holds NaN or infinity "
                f"({len(bad)} of {len(values)} items); run the model in float32 and leave out "
                "texts it cannot take"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPredictions:
    """Predictions for the same items from every subset of terms.

    Attributes:
        measure: A name for people, such as "word senses, 5 nearest".
        names: Of the terms.
        predicted: Class codes in the order of `subsets`; `NONE` where there is none. A run is
            one training; measures without training have one.
        targets: The right codes.
        baseline: Predictions without the embedding, such as the commonest class.
        text: The text of each item. Items of one text are not independent, so that intervals
            resample texts.
        settings: Seeds, options and counts, for JSON.
    """

    measure: str
    names: tuple[str, ...]
    predicted: Int64[np.ndarray, "runs subsets items"] = field(compare=False)
    targets: Int64[np.ndarray, " items"] = field(compare=False)
    baseline: Int64[np.ndarray, " items"] = field(compare=False)
    text: Int64[np.ndarray, " items"] = field(compare=False)
    settings: Mapping[str, object]

    def __post_init__(self) -> None:
        if self.predicted.shape[1] != len(self.subsets):
            raise ValueError(
                f"{self.measure}: {self.predicted.shape[1]} rows of predictions, but "
                f"{len(self.names)} terms have {len(self.subsets)} subsets"
            )
        for array in (self.predicted, self.targets, self.baseline, self.text):
            array.flags.writeable = False

    @property
    def subsets(self) -> tuple[Subset, ...]:
        """In the order of the predictions."""
        return term_subsets(self.names)


def commonest(codes: Int64[np.ndarray, " items"]) -> int:
    """The code that occurs most often; of equally frequent ones the smallest."""
    values, counts = np.unique(codes, return_counts=True)
    return int(values[counts.argmax()])


def codes_of(
    values: Int64[np.ndarray, " items"], classes: Int64[np.ndarray, " classes"]
) -> Int64[np.ndarray, " items"]:
    """Each value's position in the sorted classes; `NONE` where it is none of them."""
    place = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
    return np.where(classes[place] == values, place, NONE)
