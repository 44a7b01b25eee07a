"""The terms of chosen tokens or words at the end of a network, in one pass over the texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from ...arrays import Bool, Float32, Int64
from ...errors import StudyError
from ..components.decomposition import Decomposed, branch_constants, decompose
from ..network.hidden_states import Batch
from ..network.model_loading import Network
from .word_pieces import NO_WORD, PieceTerms, word_terms

WORST_ERROR = 1e-3
"""Relative error of the sum of terms above which a network is refused."""


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

    def without(self, absent: Sequence[str]) -> ItemTerms:
        """The same without some terms."""
        rows = [row for row, name in enumerate(self.names) if name not in absent]
        names = tuple(self.names[row] for row in rows)
        return ItemTerms(names, self.terms[rows], self.seen, self.error)


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
        items: Of each text, the item that each token belongs to; `NO_WORD` for none. An item's
            tokens are all of one text.

    Raises:
        StudyError: the terms do not sum up to the network's own states.
    """
    stack = network.stacks[0]
    constants = branch_constants(network, stack)
    text_of = np.full(n_items, NO_WORD, dtype=np.int64)
    for place, numbers in enumerate(items):
        text_of[numbers[numbers != NO_WORD]] = place
    wanted = [place for place, numbers in enumerate(items) if (numbers != NO_WORD).any()]
    # texts of similar length together: less padding
    wanted.sort(key=lambda place: len(texts[place].ids))
    groups = [wanted[n : n + batch_size] for n in range(0, len(wanted), batch_size)]
    worst = 0.0

    def pieces() -> Iterator[PieceTerms]:
        nonlocal worst
        batches = (_batch(network, [texts[place] for place in group]) for group in groups)
        for group, batch in zip(groups, watch(batches, len(groups)), strict=True):
            last = decompose(network, stack, batch, constants)[-1]
            worst = max(worst, _error(last, batch))
            rows = [items[place] for place in group]
            text = np.concatenate(
                [np.full(len(row), p) for p, row in zip(group, rows, strict=True)]
            )
            item = np.concatenate(rows)
            here = torch.from_numpy(item != NO_WORD).to(last.terms.device)
            terms = last.terms[:, batch.mask.bool()][:, here]
            kept = item != NO_WORD
            yield PieceTerms(terms.float().cpu().numpy(), text[kept], item[kept])

    if not wanted:
        raise StudyError(
            f"{network.name}: the network reads none of the {n_items} words: they lie beyond where "
            "texts are cut (--max-tokens), or texts are too short"
        )
    found = word_terms(pieces(), text_of, np.arange(n_items))
    if not worst <= WORST_ERROR:
        raise StudyError(
            f"{network.name}: the terms of the {stack.name} miss its hidden states by {worst:.1e}: "
            "deltadex does not know how this network computes them"
        )
    return ItemTerms(stack.terms, found.terms, found.seen, worst)


def items_of_words(
    texts: Sequence[EncodedText],
    text: Int64[np.ndarray, " words"],
    spans: Sequence[tuple[int, int]],
) -> list[Int64[np.ndarray, " _"]]:
    """Of each text, the word that each counted token lies in; words do not overlap."""
    items = [np.full(len(encoded.ids), NO_WORD, dtype=np.int64) for encoded in texts]
    for word, (place, (start, end)) in enumerate(zip(text.tolist(), spans, strict=True)):
        first, behind = texts[place].spans.T
        inside = (first < end) & (behind > start) & (behind > first) & texts[place].counted
        items[place][inside] = word
    return items


def _batch(network: Network, texts: Sequence[EncodedText]) -> Batch:
    padding = getattr(network.config, "pad_token_id", None)
    padding = padding if isinstance(padding, int) and padding >= 0 else 0
    width = max(len(text.ids) for text in texts)
    ids = torch.full((len(texts), width), padding, dtype=torch.int64)
    mask = torch.zeros((len(texts), width), dtype=torch.int64)
    counted = np.zeros((len(texts), width), dtype=bool)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = torch.from_numpy(text.ids)
        mask[row, : len(text.ids)] = 1
        counted[row, : len(text.ids)] = text.counted
    return Batch(0, ids.to(network.device), mask.to(network.device), counted)


def _error(last: Decomposed, batch: Batch) -> float:
    real = batch.mask.bool()
    hidden = last.hidden[real]
    return float((last.terms[:, real].sum(0) - hidden).norm() / hidden.norm())
