"""Tags of words, read off every subset of terms by a network with one hidden layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Float32, Int64
from ...errors import StudyError
from .rate_search import Training
from .subset_results import Keep, keep_nothing
from .term_subsets import SubsetPredictions, check_terms
from .text_split import Split, check_split
from .trained_probe import probe_subsets

WHAT = "tagging"

TRAINING = Training(batch=128, learning_rates=(3e-4, 1e-3, 3e-3, 1e-2))


def tagging_probe(
    terms: Float32[np.ndarray, "terms words dim"],
    tags: Sequence[str],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " words"] | None = None,
    split: Split | None = None,
    split_seed: int = 0,
    training: Training = TRAINING,
    keep: Keep = keep_nothing,
) -> SubsetPredictions:
    """The tags of test words by a network dim → dim → tags with ReLU, trained on each subset.

    Tags are coded in sorted order. A tag that only the test part has always counts as wrong.
    The split is the same in all runs.

    Args:
        terms: A word's vector: the sum of its pieces (`word_terms`).
        split: Training, validation and test words; drawn by text, 80/10/10, if not given.

    Raises:
        StudyError: one tag only, NaN terms, or an empty part of the split.
    """
    check_terms(terms, names, WHAT)
    kinds, targets = np.unique(np.array(tags, dtype=str), return_inverse=True)
    targets = targets.astype(np.int64)
    several_rates = len(training.learning_rates) > 1
    split, text = check_split(
        split, len(targets), WHAT, text=text, seed=split_seed, validation=several_rates
    )
    classes = np.unique(targets[split.train])
    if len(classes) < 2:
        raise StudyError(
            f"{WHAT}: the training part has one tag, {str(kinds[classes[0]])!r}; "
            "give words of two tags or more"
        )
    return probe_subsets(
        terms,
        targets,
        classes,
        names,
        split,
        training,
        hidden=terms.shape[2],
        text=text,
        key="tagging",
        measure="tagging, one hidden layer",
        settings={
            "baseline": "commonest training tag",
            "split": split.sizes(),
            "tags": kinds.tolist(),
        },
        keep=keep,
    )
