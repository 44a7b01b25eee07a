"""Masked-token prediction from every subset of terms: with the model's head, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from ...arrays import Bool, Float32, Int64
from ...errors import StudyError
from ..network.language_head import LanguageHead
from ..report_json import JsonRecord
from .rate_search import Training
from .subset_results import Keep, SubsetResult, keep_nothing
from .term_subsets import Subset, SubsetPredictions, check_terms, commonest, term_subsets
from .text_split import Split, check_split
from .trained_probe import probe_subsets

CHOSEN = 0.15
MASKED, RANDOM = 0.8, 0.1

HEAD_TOKENS = 256
"""Tokens given to the head at a time: 31 MB of scores for 30 000 words."""

WHAT = "masked tokens"

TRAINING = Training(batch=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedTokens(JsonRecord):
    """Token ids to feed to the model, and what it should predict.

    Attributes:
        tokens: With masks and random tokens.
        text: Row of each chosen position, in reading order.
        position: Column of each chosen position.
        targets: The ids of the original tokens.
        masked, random, unchanged: The number of chosen tokens that were masked, replaced by a
            random token, and left as they were.
    """

    tokens: Int64[np.ndarray, "texts positions"] = field(compare=False, repr=False)
    text: Int64[np.ndarray, " chosen"] = field(compare=False, repr=False)
    position: Int64[np.ndarray, " chosen"] = field(compare=False, repr=False)
    targets: Int64[np.ndarray, " chosen"] = field(compare=False, repr=False)
    masked: int
    random: int
    unchanged: int = field(metadata={"key": "kept"})
    seed: int

    def settings(self) -> dict[str, object]:
        """How the positions were masked, for JSON."""
        return {"chosen": CHOSEN} | self.to_json()


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
    random choice for each token. A random token is drawn evenly from `vocabulary`, which should
    have no special tokens, and may be the original one. Use another seed for each batch.

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
        unchanged=n_chosen - n_masked - n_random,
        seed=seed,
    )


Head: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Embeddings (tokens, dim) to scores of the vocabulary (tokens, vocab), float32 both."""


def module_head(module: torch.nn.Module) -> Head:
    """A model's own prediction head, such as BERT's `cls`, for arrays.

    The module is not changed: set it to eval mode and float32 first.
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


def language_head(head: LanguageHead) -> Head:
    """The head that a checkpoint ships, for arrays."""

    def score(rows: Float32[np.ndarray, "tokens dim"]) -> Float32[np.ndarray, "tokens vocab"]:
        scores: Float32[np.ndarray, "tokens vocab"] = (
            head.scores(torch.from_numpy(rows).to(head.device)).cpu().numpy()
        )
        return scores

    return score


def masked_accuracy(
    head: Head,
    terms: Float32[np.ndarray, "terms tokens dim"],
    targets: Int64[np.ndarray, " tokens"],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " tokens"] | None = None,
    measure: str = "masked tokens, the model's head",
    keep: Keep = keep_nothing,
) -> SubsetPredictions:
    """The token with the highest score of the head on each subset's sum.

    Args:
        terms: At the chosen positions (`mask_tokens`), at the layer that the head reads.
        targets: Ids of the original tokens.
        text: The text of each token; by default each token is a text of its own.

    Raises:
        StudyError: nothing to predict, NaN terms, or a head that scores NaN.
    """
    check_terms(terms, names, WHAT)

    def result(subset: Subset) -> SubsetResult:
        total = subset.sum(terms)
        predicted = np.empty((1, len(total)), dtype=np.int64)
        for start in range(0, len(total), HEAD_TOKENS):
            scores = head(total[start : start + HEAD_TOKENS])
            if np.isnan(scores).any():
                raise StudyError(
                    f"{WHAT}: the head scores NaN on {subset.label!r}; "
                    "run it in float32 and eval mode"
                )
            predicted[0, start : start + HEAD_TOKENS] = scores.argmax(axis=1)
        return SubsetResult(predicted)

    results = [
        keep("masked-own", subset.label, lambda s=subset: result(s))  # type: ignore[misc]
        for subset in term_subsets(names)
    ]
    return SubsetPredictions(
        measure=measure,
        names=tuple(names),
        predicted=np.stack([r.predicted for r in results], axis=1),
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
    training: Training = TRAINING,
    measure: str = "masked tokens, linear layer trained",
    keep: Keep = keep_nothing,
) -> SubsetPredictions:
    """Predictions on the test tokens of a linear layer trained on each subset's sum.

    Its classes are the targets that occur in the training part. A token that does not occur there
    counts as wrong for every subset. The split is the same in all runs.

    Args:
        split: Training, validation and test tokens; drawn by text, 80/10/10, if not given.

    Raises:
        StudyError: nothing to predict, NaN terms, a part of the split is empty, or only one
            target occurs in the training part.
    """
    check_terms(terms, names, WHAT)
    several_rates = len(training.learning_rates) > 1
    split, text = check_split(
        split, len(targets), WHAT, text=text, seed=split_seed, validation=several_rates
    )
    classes = np.unique(targets[split.train])
    if len(classes) < 2:
        raise StudyError(
            f"{WHAT}: the training part has one target, id {classes[0]}; give more texts"
        )
    never_trained = ~np.isin(targets[split.test], classes)
    return probe_subsets(
        terms,
        targets,
        classes,
        names,
        split,
        training,
        hidden=None,
        text=text,
        key="masked-trained",
        measure=measure,
        settings={
            "baseline": "commonest training target",
            "split": split.sizes(),
            "classes": len(classes),
            "test_targets_never_trained": int(np.count_nonzero(never_trained)),
        },
        keep=keep,
    )
