"""The terms of chosen tokens or words at the end of a network, in one pass over the texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import torch

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ..components.decomposition import Decomposed, branch_constants, decompose
from ..network.hidden_states import Batch, padded
from ..network.language_head import Prediction
from ..network.model_loading import Network

WORST_ERROR = 1e-3
"""Relative error of the sum of terms above which a network is refused."""

NO_ITEM = -1
"""The number of an item for tokens that belong to none."""

CHOSEN = 0.15
MASKED, RANDOM = 0.8, 0.1


@dataclass(frozen=True, slots=True)
class EncodedText:
    """One text as tokens.

    Attributes:
        counted: No special tokens and no first position, which causal models use for themselves.
        spans: The first character of each token and the one behind its last.
    """

    ids: Int64[np.ndarray, " tokens"]
    counted: Bool[np.ndarray, " tokens"]
    spans: Int64[np.ndarray, "tokens 2"]


def encode_texts(network: Network, texts: Iterable[str], max_tokens: int) -> list[EncodedText]:
    """The texts, cut to `max_tokens`.

    Raises:
        StudyError: there is no tokenizer, or one that does not say where its tokens are.
    """
    tokenizer = network.tokenizer
    if tokenizer is None:
        raise StudyError(
            f"{network.name} has no tokenizer, which ablation needs; --base FOLDER of one that has"
        )
    if not getattr(tokenizer, "is_fast", False):
        raise StudyError(f"{network.name}: ablation needs a fast tokenizer (tokenizer.json)")
    limit = min(max_tokens, network.window or max_tokens)
    return [_encode(tokenizer, text, limit) for text in texts]


def _encode(tokenizer: Callable[..., dict[str, list[int]]], text: str, limit: int) -> EncodedText:
    encoding = tokenizer(
        text,
        truncation=True,
        max_length=limit,
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
    )
    counted = np.array(encoding["special_tokens_mask"], dtype=np.int64) == 0
    counted[:1] = False
    return EncodedText(
        np.array(encoding["input_ids"], dtype=np.int64),
        counted,
        np.array(encoding["offset_mapping"], dtype=np.int64).reshape(-1, 2),
    )


@dataclass(frozen=True, slots=True)
class ChosenTokens:
    """What the network reads, and what it should predict.

    Attributes:
        texts: With masks, where tokens are masked.
        items: Of each text, the number of the prediction that is read at each token.
        targets: The ids of the right tokens.
        text: The text of each prediction.
        settings: How they were chosen, for JSON.
    """

    texts: list[EncodedText]
    items: list[Int64[np.ndarray, " _"]]
    targets: Int64[np.ndarray, " chosen"]
    text: Int64[np.ndarray, " chosen"]
    settings: dict[str, object]


def choose_tokens(
    network: Network,
    texts: Sequence[EncodedText],
    predicts: Prediction,
    *,
    most: int,
    seed: int,
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
    readable = [
        np.flatnonzero(text.counted if masked else text.counted[:-1] & text.counted[1:])
        for text in texts
    ]
    text = np.repeat(np.arange(len(texts)), [len(row) for row in readable])
    position = np.concatenate([np.zeros(0, dtype=np.int64), *readable])
    if not len(text):
        raise StudyError(
            "masked tokens: no position may be masked; give texts with words in them"
            if masked
            else "next tokens: no token follows another; give longer texts"
        )
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(text), size=max(1, round(CHOSEN * len(text))), replace=False)
    n_masked, n_random = round(MASKED * len(chosen)), round(RANDOM * len(chosen))
    changed = chosen[: n_masked + n_random] if masked else chosen[:0]
    fed = [text.ids.copy() for text in texts]
    if masked:
        new = _replacements(network, n_masked, n_random, rng)
        places = zip(text[changed].tolist(), position[changed].tolist(), strict=True)
        for (row, place), token in zip(places, new.tolist(), strict=True):
            fed[row][place] = token
    chosen.sort()
    if len(chosen) > most:
        kept = np.random.default_rng(seed).choice(len(chosen), size=most, replace=False)
        n_chosen, chosen = len(chosen), chosen[np.sort(kept)]
    else:
        n_chosen = len(chosen)
    items = [np.full(len(ids), NO_ITEM, dtype=np.int64) for ids in fed]
    targets = np.empty(len(chosen), dtype=np.int64)
    places = zip(text[chosen].tolist(), position[chosen].tolist(), strict=True)
    for number, (row, place) in enumerate(places):
        items[row][place] = number
        targets[number] = texts[row].ids[place if masked else place + 1]
    counts = {"masked": n_masked, "random": n_random, "kept": n_chosen - n_masked - n_random}
    return ChosenTokens(
        [replace(text, ids=ids) for text, ids in zip(texts, fed, strict=True)],
        items,
        targets,
        text[chosen].astype(np.int64),
        {"predicts": predicts, "chosen": CHOSEN, **(counts if masked else {}), "seed": seed},
    )


def _replacements(
    network: Network, n_masked: int, n_random: int, rng: np.random.Generator
) -> Int64[np.ndarray, " changed"]:
    """So many masks, then so many random tokens."""
    tokenizer = network.tokenizer
    n_words = min(len(tokenizer), network.config.vocab_size)
    words = np.setdiff1d(np.arange(n_words), tokenizer.all_special_ids)
    masks = np.full(n_masked, tokenizer.mask_token_id)
    return np.concatenate([masks, rng.choice(words, size=n_random)])


def items_of_words(
    texts: Sequence[EncodedText],
    text: Int64[np.ndarray, " words"],
    spans: Sequence[tuple[int, int]],
) -> list[Int64[np.ndarray, " _"]]:
    """Of each text, the word that each counted token lies in; words do not overlap."""
    items = [np.full(len(encoded.ids), NO_ITEM, dtype=np.int64) for encoded in texts]
    for word, (place, (start, end)) in enumerate(zip(text.tolist(), spans, strict=True)):
        first, behind = texts[place].spans.T
        inside = (first < end) & (behind > start) & (behind > first) & texts[place].counted
        items[place][inside] = word
    return items


@dataclass(frozen=True, slots=True)
class ItemTerms:
    """The terms of items, which are tokens or words.

    Attributes:
        names: Of the terms.
        seen: False where no token of the item was read; its terms are 0.
        error: Largest relative error of the sum of terms over batches.
    """

    names: tuple[str, ...]
    terms: Float32[np.ndarray, "terms items dim"] = field(compare=False)
    seen: Bool[np.ndarray, " items"] = field(compare=False)
    error: float


Watch: TypeAlias = Callable[[Iterable[Batch], int], Iterator[Batch]]
"""Passes on the batches, of which there are so many."""


def collect_terms(
    network: Network,
    texts: Sequence[EncodedText],
    items: Sequence[Int64[np.ndarray, " _"]],
    n_items: int,
    *,
    batch_size: int,
    watch: Watch,
) -> ItemTerms:
    """The terms of each item, summed over its tokens, after the network's first stream.

    That is behind the final norm, where there is one: what a head reads.
    Peak: the items, and every layer's terms of one batch.

    Args:
        items: Of each text, the item that each token belongs to; `NO_ITEM` for none. An item's
            tokens are all of one text.

    Raises:
        StudyError: the terms do not sum up to the network's own states.
    """
    wanted = [place for place, numbers in enumerate(items) if (numbers != NO_ITEM).any()]
    if not wanted:
        raise StudyError(
            f"{network.name}: the network reads none of the {n_items} words: they lie beyond where "
            "texts are cut (--max-tokens), or texts are too short"
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
    for group, batch in zip(groups, watch(batches, len(groups)), strict=True):
        last = decompose(network, stack, batch, constants)[-1]
        worst = max(worst, _error(last, batch))
        numbers = np.concatenate([items[place] for place in group])
        ours = torch.from_numpy(numbers != NO_ITEM).to(last.terms.device)
        terms = last.terms[:, batch.mask.bool()][:, ours].float().cpu().numpy()
        here, place = np.unique(numbers[numbers != NO_ITEM], return_inverse=True)
        seen[here] = True
        for term, values in zip(sums, terms, strict=True):
            total: Float64[np.ndarray, "here dim"] = np.zeros((len(here), values.shape[1]))
            np.add.at(total, place, values)
            term[here] = total
    if not worst <= WORST_ERROR:
        raise StudyError(
            f"{network.name}: the terms of the {stack.name} miss its hidden states by {worst:.1e}: "
            "deltadex does not know how this network computes them"
        )
    return ItemTerms(stack.terms, sums, seen, worst)


def _error(last: Decomposed, batch: Batch) -> float:
    real = batch.mask.bool()
    hidden = last.hidden[real]
    return float((last.terms[:, real].sum(0) - hidden).norm() / hidden.norm())
