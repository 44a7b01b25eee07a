"""What each subset of terms predicted: the common result of all ablation measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...arrays import Int64
from .subsets import Subset, term_subsets

NONE = -1
"""Where there is no prediction: a word whose lemma was never seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetPredictions:
    """Predictions for the same items from every subset of terms.

    Attributes:
        measure: A name for people, such as "word senses, 5 nearest".
        names: Of the terms.
        predicted: Class codes in the order of `subsets`; `NONE` where there is none. A run is
            one training; measures without training have one.
        targets: The right codes.
        baseline: What guessing without the embedding predicts, such as the commonest class.
        text: Which text each item is from. Items of one text are not independent, so
            intervals resample texts.
        settings: Seeds, options and counts, ready for JSON.
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
    """The code that occurs most often; of equals the smallest."""
    values, counts = np.unique(codes, return_counts=True)
    return int(values[counts.argmax()])


def codes_of(
    values: Int64[np.ndarray, " items"], classes: Int64[np.ndarray, " classes"]
) -> Int64[np.ndarray, " items"]:
    """Each value's position in the sorted classes; `NONE` where it is none of them."""
    place = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
    return np.where(classes[place] == values, place, NONE)
