"""The hidden states of two networks over the same tokens, of a bounded sample of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Float32, Int64
from ...errors import StudyError
from ..texts import Text

if TYPE_CHECKING:
    from ..network import Network, TokenStates

MOST_BYTES = 8 * 2**30
"""Memory that the sampled states may take; more is refused before it is taken."""

Pair = tuple["TokenStates", "TokenStates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedStates:
    """Sampled tokens in every layer of two networks.

    Attributes:
        text: Index of each token's text.
        n_seen: Tokens that the sample was drawn from.
    """

    first: Float32[np.ndarray, "first_layers tokens first_dim"] = field(repr=False)
    second: Float32[np.ndarray, "second_layers tokens second_dim"] = field(repr=False)
    text: Int64[np.ndarray, " tokens"] = field(repr=False)
    n_seen: int


def paired_batches(
    network: Network, against: Network, texts: Sequence[Text], *, batch_size: int, max_tokens: int
) -> Iterator[Pair]:
    """The states of both networks, batch by batch, over the tokens that both read.

    Raises:
        StudyError: their tokenizers cut a text into other tokens.
    """
    from ..network.hidden_states import require_same_tokens, token_states

    tokenizer = network.tokenizer or against.tokenizer
    first, second = (replace(n, tokenizer=n.tokenizer or tokenizer) for n in (network, against))
    pair = (first, second)
    limit = min(max_tokens, *(n.window or max_tokens for n in pair))
    require_same_tokens(first, second, texts, limit)
    states = (token_states(n, texts, batch_size=batch_size, max_tokens=limit) for n in pair)
    yield from zip(*states, strict=True)


def sample_pairs(
    batches: Iterable[Pair],
    *,
    keep: int,
    seed: int,
    names: tuple[str, str] = ("the first model", "the second model"),
) -> PairedStates:
    """At most `keep` tokens, drawn at random; each is in all layers of both networks.

    Waterman's algorithm R (Knuth, TAOCP 2, 3.4.2). Peak: layers · keep · dim float32 of both.

    Raises:
        StudyError: no tokens, values that are not finite, or states that would not fit.
    """
    rng = np.random.default_rng(seed)
    kept: list[Float32[np.ndarray, "layers keep dim"]] = []
    text = np.empty(keep, dtype=np.int64)
    n_seen = 0
    for pair in batches:
        if not kept:
            kept = [_room(states, keep) for states in pair]
            _require_memory(kept, keep)
        numbers = np.arange(n_seen, n_seen + len(pair[0].text))
        places = (rng.random(len(numbers)) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < keep, numbers, places)
        # of two tokens with the same place, the later one replaces the earlier one
        last = {int(places[i]): int(i) for i in np.flatnonzero(places < keep)}
        into, of = list(last), list(last.values())
        for sample, states in zip(kept, pair, strict=True):
            sample[:, into] = states.hidden[:, of]
        text[into] = pair[0].text[of]
        n_seen += len(numbers)
    if not n_seen:
        raise StudyError("the texts leave no token to study; give longer texts")
    n = min(n_seen, keep)
    first, second = (sample[:, :n] for sample in kept)
    for name, sample in zip(names, (first, second), strict=True):
        if not np.isfinite(sample).all():
            raise StudyError(f"{name}: its states hold NaN or infinity; check its weights")
    return PairedStates(first=first, second=second, text=text[:n], n_seen=n_seen)


def _room(states: TokenStates, keep: int) -> Float32[np.ndarray, "layers keep dim"]:
    layers, _, dim = states.hidden.shape
    return np.empty((layers, keep, dim), dtype=np.float32)


def _require_memory(samples: Sequence[np.ndarray], keep: int) -> None:
    needed = sum(sample.nbytes for sample in samples)
    if needed > MOST_BYTES:
        raise StudyError(
            f"{keep} tokens in all layers of both models would need {needed / 2**30:.0f} GiB; "
            f"give --keep-tokens {keep * MOST_BYTES // needed} or less"
        )
