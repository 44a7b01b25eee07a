"""An ablation of a network: several measures of what every subset of its terms can predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import nn

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ...results import Row, count
from ..components.decomposition import branch_constants, decompose
from ..network.hidden_states import TextBatch, padded
from ..network.language_head import Prediction, prediction_of
from ..network.model_loading import Network
from . import subsets
from .ablation import TASKS, Ablation, Task
from .annotated_words import AnnotatedWord, AnnotatedWords, pseudo_words, word_shapes
from .measures import (
    TRAININGS,
    masked_accuracy,
    tagging_probe,
    trained_masked_accuracy,
    word_sense_knn,
    word_sense_probe,
)

Thing = TypeVar("Thing")

WORST_ERROR = 1e-3
"""Relative error of the sum of terms above which a network is refused."""
NO_ITEM = -1
"""The number of an item for tokens that belong to none."""
CHOSEN = 0.15
MASKED, RANDOM = 0.8, 0.1


@dataclass(frozen=True, slots=True)
class EncodedText:
    """One text as tokens: those that count are neither special nor first, a position that causal
    models use for themselves; a span is its first character and the one behind its last."""

    ids: Int64[np.ndarray, " tokens"]
    counted: Bool[np.ndarray, " tokens"]
    spans: Int64[np.ndarray, "tokens 2"]


def encode_texts(network: Network, texts: Iterable[str], max_tokens: int) -> list[EncodedText]:
    """The texts, cut to `max_tokens`."""
    tokenizer = network.tokenizer
    if tokenizer is None:
        raise StudyError(
            f"{network.name} has no tokenizer, which ablation needs; --base FOLDER of one that has"
        )
    if not getattr(tokenizer, "is_fast", False):
        raise StudyError(f"{network.name}: ablation needs a fast tokenizer (tokenizer.json)")
    encoded = []
    for text in texts:
        encoding = tokenizer(
            text,
            truncation=True,
            max_length=min(max_tokens, network.window or max_tokens),
            return_special_tokens_mask=True,
            return_offsets_mapping=True,
        )
        counted = np.array(encoding["special_tokens_mask"], dtype=np.int64) == 0
        counted[:1] = False
        spans = np.array(encoding["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        encoded.append(EncodedText(np.array(encoding["input_ids"], dtype=np.int64), counted, spans))
    return encoded


@dataclass(frozen=True, slots=True)
class ChosenTokens:
    """What the network reads, with masks, and what it should predict.

    Attributes:
        items: Of each text, the number of the prediction that is read at each token.
        targets: The ids of the right tokens.
        text: The text of each prediction.
    """

    texts: list[EncodedText]
    items: list[Int64[np.ndarray, " _"]]
    targets: Int64[np.ndarray, " chosen"]
    text: Int64[np.ndarray, " chosen"]
    settings: dict[str, object]


def choose_tokens(
    network: Network, texts: Sequence[EncodedText], predicts: Prediction, *, most: int, seed: int
) -> ChosenTokens:
    """15 % of the tokens that count, and at most `most` of these, drawn at random.

    Masked tokens are changed by Devlin et al. 2019, A.1, with exact shares (rounded, at least one
    token) in place of a random choice for each token: 80 % are masked, 10 % replaced by a token
    that is drawn evenly from the vocabulary without special tokens, 10 % kept. Next tokens are
    read at tokens that count, before one that counts.

    Raises:
        StudyError: no token may be chosen.
    """
    masked = predicts == "masked"
    lengths = [len(text.ids) for text in texts]
    ids = np.concatenate([text.ids for text in texts])
    counted = np.concatenate([text.counted for text in texts])
    # a text's first token does not count, so that none is read before it
    readable = np.flatnonzero(counted if masked else counted[:-1] & counted[1:])
    if not len(readable):
        raise StudyError(
            "masked tokens: no position may be masked; give texts with words in them"
            if masked
            else "next tokens: no token follows another; give longer texts"
        )
    rng = np.random.default_rng(seed)
    n_chosen = max(1, round(CHOSEN * len(readable)))
    chosen = readable[rng.choice(len(readable), size=n_chosen, replace=False)]
    n_masked, n_random = round(MASKED * n_chosen), round(RANDOM * n_chosen)
    fed = ids.copy()
    if masked:
        fed[chosen[: n_masked + n_random]] = _replacements(network, n_masked, n_random, rng)
    chosen.sort()
    if n_chosen > most:
        kept = np.random.default_rng(seed).choice(n_chosen, size=most, replace=False)
        chosen = chosen[np.sort(kept)]
    items = np.full(len(ids), NO_ITEM, dtype=np.int64)
    items[chosen] = np.arange(len(chosen))
    counts = {"masked": n_masked, "random": n_random, "kept": n_chosen - n_masked - n_random}
    ends = np.cumsum(lengths)
    return ChosenTokens(
        [replace(text, ids=i) for text, i in zip(texts, np.split(fed, ends[:-1]), strict=True)],
        np.split(items, ends[:-1]),
        ids[chosen if masked else chosen + 1],
        np.searchsorted(ends, chosen, side="right").astype(np.int64),
        {"predicts": predicts, "chosen": CHOSEN, **(counts if masked else {}), "seed": seed},
    )


def _replacements(
    network: Network, n_masked: int, n_random: int, rng: np.random.Generator
) -> Int64[np.ndarray, " changed"]:
    tokenizer = network.tokenizer
    n_words = min(len(tokenizer), network.config.vocab_size)
    words = np.setdiff1d(np.arange(n_words), tokenizer.all_special_ids)
    masks = np.full(n_masked, tokenizer.mask_token_id)
    return np.concatenate([masks, rng.choice(words, size=n_random)])


def items_of_words(
    texts: Sequence[EncodedText], words: Sequence[AnnotatedWord]
) -> list[Int64[np.ndarray, " _"]]:
    """Of each text, the word that each counted token lies in; words do not overlap."""
    items = [np.full(len(encoded.ids), NO_ITEM, dtype=np.int64) for encoded in texts]
    for number, word in enumerate(words):
        text, (start, end) = texts[word.text], word.span
        first, behind = text.spans.T
        inside = (first < end) & (behind > start) & (behind > first) & text.counted
        items[word.text][inside] = number
    return items


def untracked(things: Iterable[Thing], what: str, *, total: int) -> Iterator[Thing]:
    """Passes on the things, of which there are so many, and shows no progress."""
    return iter(things)


def collect_terms(
    network: Network,
    texts: Sequence[EncodedText],
    items: Sequence[Int64[np.ndarray, " _"]],
    n_items: int,
    *,
    batch_size: int,
    track: Callable[..., Iterator[TextBatch]] = untracked,
) -> tuple[Float32[np.ndarray, "terms items dim"], Bool[np.ndarray, " items"], float]:
    """The terms of each item, summed over its tokens, after the network's first stream: behind the
    final norm, where there is one, which is what a head reads.

    Also which items have a token that was read, the others being 0, and the largest relative error
    of the sum of terms over batches.
    Peak: the items, and every layer's terms of one batch.

    Args:
        items: Of each text, the item that each token belongs to; `NO_ITEM` for none. An item's
            tokens are all of one text.
    """
    wanted = [place for place, numbers in enumerate(items) if (numbers != NO_ITEM).any()]
    if not wanted:
        raise StudyError(
            f"{network.name}: the network reads none of {count(n_items, 'word')}: they lie beyond "
            "where texts are cut (--max-tokens), or texts are too short"
        )
    # texts of similar length together: less padding
    wanted.sort(key=lambda place: len(texts[place].ids))
    groups = [wanted[n : n + batch_size] for n in range(0, len(wanted), batch_size)]
    batches = (
        padded(network, [texts[p].ids.tolist() for p in group], [texts[p].counted for p in group])
        for group in groups
    )
    stack = network.stacks[0]
    constants = branch_constants(network, stack)
    sums = np.zeros((len(stack.terms), n_items, network.dim), dtype=np.float32)
    seen, worst = np.zeros(n_items, dtype=bool), 0.0
    for group, batch in zip(groups, track(batches, "batches", total=len(groups)), strict=True):
        last = decompose(network, stack, batch, constants)[-1]
        real = batch.mask.bool()
        hidden = last.hidden[real]
        missed = (last.terms[:, real].sum(0) - hidden).norm()
        worst = max(worst, float(missed / hidden.norm()))
        numbers = np.concatenate([items[place] for place in group])
        ours = torch.from_numpy(numbers != NO_ITEM).to(last.terms.device)
        terms = last.terms[:, real][:, ours].float().cpu().numpy()
        here, place = np.unique(numbers[numbers != NO_ITEM], return_inverse=True)
        seen[here] = True
        for term, values in zip(sums, terms, strict=True):
            total: Float64[np.ndarray, "here dim"] = np.zeros((len(here), network.dim))
            np.add.at(total, place, values)
            term[here] = total
    if not worst <= WORST_ERROR:
        raise StudyError(
            f"{network.name}: the terms of the {stack.name} miss its hidden states by {worst:.1e}: "
            "deltadex does not know how this network computes them"
        )
    return sums, seen, worst


FEWEST_TEXTS = 10
"""A tenth of them is the test part."""


def ablation_study(
    network: Network,
    texts: Sequence[str],
    *,
    asked: Ablation,
    head: nn.Module | str | None = None,
    senses: AnnotatedWords | None = None,
    tags: AnnotatedWords | None = None,
    track: Callable[..., Iterator[Any]] = untracked,
) -> subsets.AblationStudyReport:
    """Every measure on all subsets of the network's terms.

    The network runs once over each input: the texts, the texts with masks, and the texts with
    pseudo-words. What it computes serves all subsets.

    Args:
        head: The model's own head, or why it has none.
        senses: Words in their senses; pseudo-words from the texts by default.
        tags: Tagged words; the shapes of the texts' words by default.
    """
    distinct = list(dict.fromkeys(texts))
    if len(distinct) < FEWEST_TEXTS:
        raise StudyError(
            f"ablation: {count(len(distinct), 'different text')}; give {FEWEST_TEXTS} or more"
        )
    collect = {
        "masked": partial(_tokens, network, distinct),
        "senses": partial(_words, network, distinct, "senses", senses),
        "tagging": partial(_words, network, distinct, "tagging", tags),
    }
    collected: dict[Task, subsets.Items] = {}
    skipped: list[Row] = []
    error = 0.0
    for task in (task for task in TASKS if task in asked.tasks):
        try:
            collected[task], task_error = collect[task](asked, track)
            error = max(error, task_error)
        except StudyError as err:
            skipped.append({"measure": task, "reason": str(err)})
    if not collected:
        raise StudyError(skipped[0]["reason"])
    names = network.stacks[0].terms
    present = [
        row for row in range(len(names)) if any(i.terms[row].any() for i in collected.values())
    ]
    present_names = tuple(names[row] for row in present)
    measures: dict[str, Callable[..., subsets.SubsetPredictions]] = {}
    for task, items in collected.items():
        items = replace(items, terms=items.terms[present], names=present_names)
        measures |= _measures(task, items, asked, head)
        if task == "masked" and not isinstance(head, nn.Module):
            skipped.append({"measure": "masked-own", "reason": head or "no head was given"})
    reports: list[subsets.AblationReport] = []
    for key, predict in track(measures.items(), "measures", total=len(measures)):
        score: Literal["accuracy", "macro-F1"] = "macro-F1" if key == "tagging" else "accuracy"
        try:
            reports.append(subsets.ablation_report(predict(), score=score, seed=asked.seed))
        except StudyError as err:
            skipped.append({"measure": key, "reason": str(err)})
    if not reports:
        raise StudyError(skipped[-1]["reason"])
    return subsets.AblationStudyReport(
        model=network.name,
        stack=network.stacks[0].name,
        layer=network.n_layers,
        terms=present_names,
        absent=tuple(name for name in names if name not in present_names),
        texts=len(distinct),
        error=error,
        measures=tuple(reports),
        skipped=tuple(skipped),
    )


def _words(
    network: Network,
    texts: Sequence[str],
    task: Task,
    given: AnnotatedWords | None,
    asked: Ablation,
    track: Callable[..., Iterator[TextBatch]],
) -> tuple[subsets.Items, float]:
    """Words in their senses, or with tags, and the error of the sum of their terms."""
    if given:
        source, words = "file", given
    elif task == "senses":
        source = "pseudo-words"
        words = pseudo_words(texts, most_items=asked.most_items, seed=asked.seed)
    else:
        source, words = "word shapes", word_shapes(texts)
    words = words.drawn(asked.most_items, asked.seed)
    encoded = encode_texts(network, words.texts, asked.max_tokens)
    terms, read, error = collect_terms(
        network,
        encoded,
        items_of_words(encoded, words.words),
        len(words.words),
        batch_size=asked.batch_size,
        track=track,
    )
    seen = np.flatnonzero(read)
    used = [words.words[item] for item in seen.tolist()]
    items = subsets.Items(
        terms=terms[:, seen],
        names=network.stacks[0].terms,
        labels=[word.label for word in used],
        lemmas=[word.lemma for word in used],
        text=np.array([word.origin for word in used], dtype=np.int64),
        seed=asked.seed,
        settings={"labels": source, "words_cut_off": len(read) - len(seen)},
    )
    return items, error


def _tokens(
    network: Network,
    texts: Sequence[str],
    asked: Ablation,
    track: Callable[..., Iterator[TextBatch]],
) -> tuple[subsets.Items, float]:
    encoded = encode_texts(network, texts, asked.max_tokens)
    predicts = prediction_of(network)
    if predicts is None:
        raise StudyError(f"{network.name}: predicts neither masked tokens nor the next one")
    chosen = choose_tokens(network, encoded, predicts, most=asked.most_items, seed=asked.seed)
    terms, _, error = collect_terms(
        network,
        chosen.texts,
        chosen.items,
        len(chosen.targets),
        batch_size=asked.batch_size,
        track=track,
    )
    items = subsets.Items(
        terms=terms,
        names=network.stacks[0].terms,
        labels=chosen.targets,
        text=chosen.text,
        seed=asked.seed,
        settings=chosen.settings,
    )
    return items, error


def _measures(
    task: Task, items: subsets.Items, asked: Ablation, head: nn.Module | str | None
) -> dict[str, Callable[..., subsets.SubsetPredictions]]:
    trainings = {
        key: replace(training, runs=asked.runs, seed=asked.seed)
        for key, training in TRAININGS.items()
    }
    if task == "tagging":
        return {"tagging": partial(tagging_probe, items, trainings["tagging"])}
    if task == "senses":
        return {
            "senses-knn": partial(word_sense_knn, items),
            "senses-mlp": partial(word_sense_probe, items, trainings["senses-mlp"]),
        }
    own: dict[str, Callable[..., subsets.SubsetPredictions]] = {}
    if isinstance(head, nn.Module):
        own["masked-own"] = partial(masked_accuracy, items, head)
    trained = partial(trained_masked_accuracy, items, trainings["masked-trained"])
    return own | {"masked-trained": trained}
