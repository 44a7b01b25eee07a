"""Which tokens are punctuation: they hold no letter, digit or mark of any script."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Bool, Int64

if TYPE_CHECKING:
    from ..network import TokenStates

WORD_CATEGORIES = ("L", "M", "N")
"""Unicode's letters, the marks that some scripts write vowels with, and numbers."""

PART_OF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer of bytes decodes to, where a token is a part of a character."""


def is_punctuation(text: str) -> bool:
    """Whether the text of a token has no letter, digit or mark; a part of a character has one."""
    return not any(
        unicodedata.category(character).startswith(WORD_CATEGORIES)
        or character == PART_OF_A_CHARACTER
        for character in text
    )


class PunctuationTokens:
    """Tells the punctuation of a tokenizer by token id; each id is decoded once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.known: dict[int, bool] = {}
        self.n_seen = 0
        """Punctuation tokens that `removed` met."""

    def among(self, tokens: Int64[np.ndarray, " tokens"]) -> Bool[np.ndarray, " tokens"]:
        """Which of the tokens are punctuation."""
        ids, where = np.unique(tokens, return_inverse=True)
        for token in ids.tolist():
            if token not in self.known:
                self.known[token] = is_punctuation(self.tokenizer.decode([token]))
        marks: Bool[np.ndarray, " tokens"] = np.array(
            [self.known[token] for token in ids.tolist()], dtype=bool
        )[where]
        return marks

    def removed(self, states: Iterable[TokenStates]) -> Iterator[TokenStates]:
        """The states without those of punctuation; `n_seen` counts what is left out."""
        for batch in states:
            words = ~self.among(batch.token)
            self.n_seen += int((~words).sum())
            if words.any():
                yield replace(
                    batch,
                    hidden=batch.hidden[:, words],
                    text=batch.text[words],
                    position=batch.position[words],
                    token=batch.token[words],
                )
