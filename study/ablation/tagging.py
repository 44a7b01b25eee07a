"""A tagging probe on every subset of terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Float32, Int64
from ...errors import StudyError
from .predictions import SubsetPredictions, codes_of, commonest
from .probe import Training, probe_subsets
from .split import Split, split_by_text
from .subsets import check_terms

TRAINING = Training(batch=128, runs=5)

WHAT = "tagging"


def tagging_probe(
    terms: Float32[np.ndarray, "terms words dim"],
    tags: Sequence[str],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " words"] | None = None,
    split: Split | None = None,
    split_seed: int = 0,
    training: Training = TRAINING,
) -> SubsetPredictions:
    """Test words' tags by a network dim → dim → tags, ReLU between, trained on each subset.

    Tags are coded in sorted order. One that only the test part has is always counted wrong.
    The split is the same in all runs.

    Args:
        terms: A word's vector: the sum of its pieces (`word_terms`).
        split: Training, validation and test words; drawn by text, 80/10/10, if not given.
        training: At least 3 runs, so that their spread means something.

    Raises:
        StudyError: one tag only, NaN terms, or an empty part of the split.
    """
    check_terms(terms, names, WHAT)
    if training.runs < 3:
        raise ValueError(f"training.runs must be at least 3, got {training.runs}")
    kinds, targets = np.unique(np.array(tags, dtype=str), return_inverse=True)
    targets = targets.astype(np.int64)
    text = np.arange(len(targets)) if text is None else text
    drawn = split is None
    split = split or split_by_text(text, seed=split_seed)
    split.check(len(targets), WHAT, validation=len(training.learning_rates) > 1)
    classes = np.unique(targets[split.train])
    if len(classes) < 2:
        raise StudyError(
            f"{WHAT}: the training part has one tag, {str(kinds[classes[0]])!r}; "
            "give words of two tags or more"
        )
    codes = codes_of(targets, classes)
    predicted, rates = probe_subsets(
        terms, codes, len(classes), names, split, training, terms.shape[2]
    )
    return SubsetPredictions(
        measure="tagging, one hidden layer",
        names=tuple(names),
        predicted=classes[predicted],
        targets=targets[split.test],
        baseline=np.full(len(split.test), commonest(targets[split.train])),
        text=text[split.test],
        settings={
            "baseline": "commonest training tag",
            "split": split.sizes(split_seed if drawn else None),
            "tags": kinds.tolist(),
            "training": training.settings(),
            "chosen_learning_rates": rates,
        },
    )
