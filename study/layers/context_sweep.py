"""The layer classifier on texts that are cut to each of several lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...errors import StudyError
from ..network import Network, TokenStates, token_states
from ..network.hidden_states import encoded
from ..texts import Text
from .layer_rows import MOST_TOKENS, RowSample, Split, split_by_text
from .layer_sweeps import SAMPLED_TEXTS, Sweep, context_points
from .punctuation import PunctuationTokens

FEWEST_REACHING = 20
"""Texts that must reach a length: below, accuracies on a fifth of them say little."""

SAME_STATES = 1e-3
"""Relative difference of states up to which two runs count as equal; float32 rounds below 1e-4."""

CHECKED_TEXTS = 4

Watch = Callable[[Iterable[TokenStates], int], Iterable[TokenStates]]
"""Gets the batches of a pass and the number of its texts; gives the same batches."""


def unwatched(batches: Iterable[TokenStates], n_texts: int) -> Iterable[TokenStates]:
    """The same batches, which nothing watches."""
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reaching:
    """Texts long enough for a sweep.

    Attributes:
        texts: With at least as many tokens as the longest length that is measured.
        counts: By length, the examined texts that reach it.
        skipped: Lengths that too few texts reach, with the reason.
    """

    texts: tuple[Text, ...]
    counts: dict[int, int]
    n_examined: int
    skipped: tuple[str, ...]


def context_sweep(
    network: Network,
    texts: Sequence[Text],
    contexts: Sequence[int],
    *,
    most_texts: int = 300,
    max_tokens: int = MOST_TOKENS,
    include_embedding: bool = True,
    punctuation: PunctuationTokens | None = None,
    seed: int = 0,
    batch_size: int = 16,
    watched: Watch = unwatched,
) -> Sweep:
    """Accuracies on texts with at least L tokens, cut to L, for each context length L.

    All lengths are measured on the same texts: those with as many tokens as the longest length
    has. Tokens are what the network reads, special ones too; as everywhere, special tokens and
    first positions are no rows. The same number of tokens is sampled at each length, so that a
    classifier of long texts does not learn from more rows. Where a text's beginning has the same
    states with and without its rest, as in causal networks, one pass serves all lengths.

    Args:
        texts: In random order; they are looked at until `most_texts` reach the longest length.
        max_tokens: Sampled tokens at each length.
        punctuation: Tells tokens that are no rows.
        watched: Gets the batches of a pass and the number of its texts.

    Raises:
        StudyError: too few texts reach even the shortest length.
    """
    reaching = _reaching(network, texts, sorted(set(contexts)), most_texts)
    run = partial(token_states, network, batch_size=batch_size)
    samples = {
        length: RowSample(max_tokens, include_embedding=include_embedding, seed=seed)
        for length in reaching.counts
    }
    longest = max(samples)
    shared = _same_beginnings(network, reaching.texts[:CHECKED_TEXTS], min(samples), longest)
    for length in (longest,) if shared else samples:
        states = watched(run(reaching.texts, max_tokens=length), len(reaching.texts))
        if punctuation is not None:
            states = punctuation.removed(states)
        for batch in states:
            for filled in samples if shared else (length,):
                cut = beginning(batch, filled)
                if len(cut.text):
                    samples[filled].add(cut)

    splits: list[tuple[int, int, Split]] = []
    skipped = list(reaching.skipped)
    for length, sample in samples.items():
        try:
            rows = sample.rows()
        except StudyError as err:  # of short texts every token may be special
            skipped.append(f"{length} tokens: {err}")
        else:
            split = split_by_text(rows, seed=seed, among=len(reaching.texts))
            splits.append((length, reaching.counts[length], split))
    return Sweep(
        variable="context",
        n_examined=reaching.n_examined,
        held_back=SAMPLED_TEXTS,
        points=context_points(splits),
        skipped=tuple(skipped),
    )


def beginning(batch: TokenStates, length: int) -> TokenStates:
    """The states of the tokens at positions below a length."""
    kept = batch.position < length
    return replace(
        batch,
        hidden=batch.hidden[:, kept],
        text=batch.text[kept],
        position=batch.position[kept],
        token=batch.token[kept],
    )


def _reaching(
    network: Network, texts: Sequence[Text], lengths: Sequence[int], most_texts: int
) -> _Reaching:
    """The texts of a sweep, and how many reach each length."""
    sizes: list[int] = []
    found = 0
    for batch in encoded(network, texts, max_tokens=lengths[-1], keep_special=True):
        sizes.extend([0] * (batch.first - len(sizes)))  # texts without any token
        sizes.extend(batch.mask.sum(dim=1).tolist())
        found = sum(size >= lengths[-1] for size in sizes)
        if found >= most_texts:
            break
    counts = {length: sum(size >= length for size in sizes) for length in lengths}
    measured = {length: n for length, n in counts.items() if n >= FEWEST_REACHING}
    of_how_many = f"of {len(sizes)} texts, at least {FEWEST_REACHING} are needed"
    if not measured:
        raise StudyError(
            f"layers: {counts[lengths[0]]} texts have {lengths[0]} tokens or more, {of_how_many}; "
            "give more or longer texts, or shorter lengths"
        )
    longest = max(measured)
    chosen = [text for text, size in zip(texts, sizes, strict=False) if size >= longest]
    return _Reaching(
        texts=tuple(chosen[:most_texts]),
        counts=measured,
        n_examined=len(sizes),
        skipped=tuple(
            f"{length} tokens: {n} reach it {of_how_many}"
            for length, n in counts.items()
            if length not in measured
        ),
    )


def _same_beginnings(network: Network, texts: Sequence[Text], shortest: int, longest: int) -> bool:
    """Whether a few texts' first tokens have the same states with and without the rest."""
    if shortest == longest:
        return True
    pair = [
        list(token_states(network, texts, max_tokens=length, batch_size=len(texts)))
        for length in (shortest, longest)
    ]
    if not all(pair):
        return False
    short, long = pair[0][0], beginning(pair[1][0], shortest)
    if not (
        np.array_equal(short.token, long.token) and np.array_equal(short.position, long.position)
    ):
        return False
    apart = np.linalg.norm((short.hidden - long.hidden).astype(np.float64))
    return bool(apart <= SAME_STATES * np.linalg.norm(short.hidden.astype(np.float64)))
