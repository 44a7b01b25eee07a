"""Masked-token prediction from every subset of terms: with the model's head, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch

from ...arrays import Float32, Int64
from ...errors import StudyError
from .predictions import NONE, SubsetPredictions, codes_of, commonest
from .probe import Training, probe_subsets
from .split import Split, split_by_text
from .subsets import check_terms, subset_sums, term_subsets

Head: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Embeddings (tokens, dim) to scores of the vocabulary (tokens, vocab), float32 both."""

HEAD_TOKENS = 256
"""Tokens given to the head at a time: 31 MB of scores for 30 000 words."""

WHAT = "masked tokens"


def module_head(module: torch.nn.Module) -> Head:
    """A model's own prediction head, such as BERT's `cls`, for arrays.

    The module is used as it is: put it in eval mode and float32.
    """
    first = next(module.parameters(), None)
    device = torch.device("cpu") if first is None else first.device

    @torch.no_grad()
    def head(rows: Float32[np.ndarray, "tokens dim"]) -> Float32[np.ndarray, "tokens vocab"]:
        scores: Float32[np.ndarray, "tokens vocab"] = (
            module(torch.from_numpy(rows).to(device)).float().cpu().numpy()
        )
        return scores

    return head


def masked_accuracy(
    head: Head,
    terms: Float32[np.ndarray, "terms tokens dim"],
    targets: Int64[np.ndarray, " tokens"],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " tokens"] | None = None,
) -> SubsetPredictions:
    """The token that the head scores highest on each subset's sum.

    Args:
        terms: At the chosen positions (`mask_tokens`), at the layer that the head reads.
        targets: Ids of the tokens that stood there.
        text: Of each token; without it each counts as a text of its own.

    Raises:
        StudyError: nothing to predict, NaN terms, or a head that scores NaN.
    """
    check_terms(terms, names, WHAT)
    subsets = term_subsets(names)
    predicted = np.empty((1, len(subsets), len(targets)), dtype=np.int64)
    for row, total in enumerate(subset_sums(terms, subsets)):
        for start in range(0, len(total), HEAD_TOKENS):
            scores = head(total[start : start + HEAD_TOKENS])
            if np.isnan(scores).any():
                raise StudyError(
                    f"{WHAT}: the head scores NaN on {subsets[row].label!r}; "
                    "run it in float32 and eval mode"
                )
            predicted[0, row, start : start + HEAD_TOKENS] = scores.argmax(axis=1)
    return SubsetPredictions(
        measure="masked tokens, the model's head",
        names=tuple(names),
        predicted=predicted,
        targets=targets.copy(),
        baseline=np.full(len(targets), commonest(targets)),
        text=np.arange(len(targets)) if text is None else text.copy(),
        settings={"baseline": "commonest target"},
    )


def trained_masked_accuracy(
    terms: Float32[np.ndarray, "terms tokens dim"],
    targets: Int64[np.ndarray, " tokens"],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " tokens"] | None = None,
    split: Split | None = None,
    split_seed: int = 0,
    training: Training | None = None,
) -> SubsetPredictions:
    """Predictions on the test tokens of a linear layer trained on each subset's sum.

    Its classes are the targets that occur in the training part; a token that does not occur
    there is always counted wrong, for every subset alike. The split is the same in all runs.
    Cost: subsets × (learning rates + runs − 1) × epochs passes over the training tokens.

    Args:
        split: Training, validation and test tokens; drawn by text, 80/10/10, if not given.

    Raises:
        StudyError: nothing to predict, NaN terms, a part of the split is empty, or only one
            target occurs in the training part.
    """
    check_terms(terms, names, WHAT)
    training = training or Training()
    text = np.arange(len(targets)) if text is None else text
    drawn = split is None
    split = split or split_by_text(text, seed=split_seed)
    split.check(len(targets), WHAT, validation=len(training.learning_rates) > 1)
    classes = np.unique(targets[split.train])
    if len(classes) < 2:
        raise StudyError(
            f"{WHAT}: the training part has one target, id {classes[0]}; give more texts"
        )
    codes = codes_of(targets, classes)
    predicted, rates = probe_subsets(terms, codes, len(classes), names, split, training, None)
    return SubsetPredictions(
        measure="masked tokens, linear layer trained",
        names=tuple(names),
        predicted=classes[predicted],
        targets=targets[split.test],
        baseline=np.full(len(split.test), commonest(targets[split.train])),
        text=text[split.test],
        settings={
            "baseline": "commonest training target",
            "split": split.sizes(split_seed if drawn else None),
            "classes": len(classes),
            "test_targets_never_trained": int(np.count_nonzero(codes[split.test] == NONE)),
            "training": training.settings(),
            "chosen_learning_rates": rates,
        },
    )
