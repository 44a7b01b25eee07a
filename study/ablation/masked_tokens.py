"""Masked-token prediction from every subset of terms: with the model's head, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from ...arrays import Bool, Float32, Int64
from ...errors import StudyError
from .term_subsets import (
    NONE,
    SubsetPredictions,
    check_terms,
    codes_of,
    commonest,
    subset_sums,
    term_subsets,
)
from .text_split import Split, split_by_text
from .trained_probe import Training, probe_subsets

CHOSEN = 0.15
MASKED, RANDOM = 0.8, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedTokens:
    """Token ids to feed to the model, and what it should predict.

    Attributes:
        tokens: With masks and random tokens put in.
        text: Row of each chosen position, in reading order.
        position: Column of each chosen position.
        targets: The id that stood there.
        masked, random, kept: How many of the chosen were treated how.
    """

    tokens: Int64[np.ndarray, "texts positions"] = field(compare=False)
    text: Int64[np.ndarray, " chosen"] = field(compare=False)
    position: Int64[np.ndarray, " chosen"] = field(compare=False)
    targets: Int64[np.ndarray, " chosen"] = field(compare=False)
    masked: int
    random: int
    kept: int
    seed: int

    def settings(self) -> dict[str, object]:
        """How the positions were masked, ready for JSON."""
        return {
            "chosen": CHOSEN,
            "masked": self.masked,
            "random": self.random,
            "kept": self.kept,
            "seed": self.seed,
        }


def mask_tokens(
    tokens: Int64[np.ndarray, "texts positions"],
    maskable: Bool[np.ndarray, "texts positions"],
    *,
    mask_id: int,
    vocabulary: Int64[np.ndarray, " vocabulary"],
    seed: int,
) -> MaskedTokens:
    """Choose 15 % of the maskable positions; mask 80 % of them, replace 10 %, keep 10 %.

    Devlin et al. 2019, A.1, with exact shares (rounded, at least one position) in place of a
    coin a token. A random token is drawn evenly from `vocabulary` (leave special tokens out)
    and may be the one that stood there. Use another seed for each batch.

    Args:
        maskable: False for padding and special tokens.

    Raises:
        StudyError: no position may be masked.
    """
    candidates = np.flatnonzero(maskable)
    if not len(candidates):
        raise StudyError("masked tokens: no position may be masked; give texts with words in them")
    if not len(vocabulary):
        raise ValueError("vocabulary must hold the ids that a random token is drawn from")
    rng = np.random.default_rng(seed)
    n_chosen = max(1, round(CHOSEN * len(candidates)))
    chosen = rng.choice(candidates, size=n_chosen, replace=False)  # in random order
    n_masked, n_random = round(MASKED * n_chosen), round(RANDOM * n_chosen)
    fed = tokens.copy()
    fed.flat[chosen[:n_masked]] = mask_id
    fed.flat[chosen[n_masked : n_masked + n_random]] = rng.choice(vocabulary, size=n_random)
    chosen.sort()
    text, position = np.unravel_index(chosen, tokens.shape)
    return MaskedTokens(
        tokens=fed,
        text=text.astype(np.int64),
        position=position.astype(np.int64),
        targets=tokens.flat[chosen],
        masked=n_masked,
        random=n_random,
        kept=n_chosen - n_masked - n_random,
        seed=seed,
    )


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
