"""The tokens that a network is asked to predict: masked ones, or the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...arrays import Int64
from ...errors import StudyError
from ..network.language_head import Prediction
from ..network.model_loading import Network
from .masked_tokens import CHOSEN, mask_tokens
from .token_terms import EncodedText
from .word_pieces import NO_WORD


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

    texts: list[EncodedText] = field(compare=False, repr=False)
    items: list[Int64[np.ndarray, " _"]] = field(compare=False, repr=False)
    targets: Int64[np.ndarray, " chosen"] = field(compare=False, repr=False)
    text: Int64[np.ndarray, " chosen"] = field(compare=False, repr=False)
    settings: dict[str, object]

    def only(self, kept: Int64[np.ndarray, " kept"]) -> ChosenTokens:
        """Some of the predictions; the network reads the same."""
        place = np.full(len(self.targets) + 1, NO_WORD, dtype=np.int64)  # the last for `NO_WORD`
        place[kept] = np.arange(len(kept))
        items = [place[row] for row in self.items]
        return ChosenTokens(self.texts, items, self.targets[kept], self.text[kept], self.settings)


def choose_tokens(
    network: Network,
    texts: Sequence[EncodedText],
    predicts: Prediction,
    *,
    most: int,
    seed: int,
) -> ChosenTokens:
    """15 % of the tokens, and at most `most` of these, drawn at random.

    Raises:
        StudyError: no token may be chosen.
    """
    chosen = _masked(network, texts, seed) if predicts == "masked" else _next(texts, seed)
    n_chosen = len(chosen.targets)
    if n_chosen <= most:
        return chosen
    kept = np.sort(np.random.default_rng(seed).choice(n_chosen, size=most, replace=False))
    return chosen.only(kept)


def _masked(network: Network, texts: Sequence[EncodedText], seed: int) -> ChosenTokens:
    tokenizer = network.tokenizer
    width = max((len(text.ids) for text in texts), default=0)
    ids = np.zeros((len(texts), width), dtype=np.int64)
    maskable = np.zeros((len(texts), width), dtype=bool)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = text.ids
        maskable[row, : len(text.ids)] = text.counted
    n_words = min(len(tokenizer), network.config.vocab_size)
    masked = mask_tokens(
        ids,
        maskable,
        mask_id=tokenizer.mask_token_id,
        vocabulary=np.setdiff1d(np.arange(n_words), tokenizer.all_special_ids),
        seed=seed,
    )
    items = [np.full(len(text.ids), NO_WORD, dtype=np.int64) for text in texts]
    chosen = zip(masked.text.tolist(), masked.position.tolist(), strict=True)
    for number, (row, position) in enumerate(chosen):
        items[row][position] = number
    fed = [
        replace(text, ids=row[: len(text.ids)])
        for text, row in zip(texts, masked.tokens, strict=True)
    ]
    return ChosenTokens(fed, items, masked.targets, masked.text, masked.settings())


def _next(texts: Sequence[EncodedText], seed: int) -> ChosenTokens:
    """Counted tokens that a counted token follows, which is to be predicted."""
    readable = [np.flatnonzero(text.counted[:-1] & text.counted[1:]) for text in texts]
    text = np.repeat(np.arange(len(texts)), [len(row) for row in readable])
    position = np.concatenate([np.zeros(0, dtype=np.int64), *readable])
    if not len(text):
        raise StudyError("next tokens: no token follows another; give longer texts")
    n_chosen = max(1, round(CHOSEN * len(text)))
    chosen = np.random.default_rng(seed).choice(len(text), size=n_chosen, replace=False)
    chosen.sort()
    text, position = text[chosen].astype(np.int64), position[chosen]
    items = [np.full(len(encoded.ids), NO_WORD, dtype=np.int64) for encoded in texts]
    targets = np.empty(n_chosen, dtype=np.int64)
    for number, (row, place) in enumerate(zip(text.tolist(), position.tolist(), strict=True)):
        items[row][place] = number
        targets[number] = texts[row].ids[place + 1]
    return ChosenTokens(list(texts), items, targets, text, {"chosen": CHOSEN, "seed": seed})
