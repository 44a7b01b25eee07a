"""How many texts a network reads whole, and how many are cut to its window or to a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..texts import Text
from .model_loading import Network

AT_ONCE = 256
"""Texts that are tokenised together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWindow:
    """How texts fit into a network.

    Attributes:
        texts: How many texts.
        cut: How many of them have more tokens than are read.
        longest: Tokens of the longest text.
        max_tokens: The limit that the user sets.
        window: The most tokens that the network reads; None where nothing limits it.
    """

    texts: int
    cut: int
    longest: int
    max_tokens: int
    window: int | None

    @property
    def limit(self) -> int:
        """Tokens that a text is cut to."""
        return min(self.max_tokens, self.window or self.max_tokens)

    def to_json(self) -> dict[str, Any]:
        """What a study's document says of it."""
        return {
            "texts_cut": self.cut,
            "longest_text": self.longest,
            "max_tokens": self.max_tokens,
            "window": self.window,
        }

    def notes(self, *, chosen: bool = False, fixed: bool = False) -> Iterator[str]:
        """What the user is told: texts that are cut, and a limit that has no effect.

        Args:
            chosen: Whether the user chose `max_tokens`; a default limit needs no remark.
            fixed: Whether the user cannot choose it.
        """
        beyond = self.window is not None and self.max_tokens > self.window
        if beyond and chosen:
            yield (
                f"the model's window is {self.window}: --max-tokens {self.max_tokens} has no "
                "effect beyond it"
            )
        if self.cut:
            verb = "text was" if self.texts == 1 else "texts were"
            by_window = self.window is not None and self.window <= self.max_tokens
            reason = ", the model's window" if by_window else "; --max-tokens N reads more"
            yield (
                f"{self.cut} of {self.texts} {verb} cut to {self.limit} tokens"
                f"{'' if fixed and not by_window else reason}"
            )


def text_window(network: Network, texts: Sequence[Text], max_tokens: int) -> TextWindow:
    """Count the texts that are longer than the network reads; nothing is run."""
    lengths = list(_lengths(network, texts))
    window = network.window
    limit = min(max_tokens, window or max_tokens)
    return TextWindow(
        texts=len(texts),
        cut=sum(length > limit for length in lengths),
        longest=max(lengths, default=0),
        max_tokens=max_tokens,
        window=window,
    )


def _lengths(network: Network, texts: Sequence[Text]) -> Iterator[int]:
    """The tokens of each whole text, special ones included."""
    for first in range(0, len(texts), AT_ONCE):
        some = [text.text for text in texts[first : first + AT_ONCE]]
        if network.tokenizer is None:
            yield from (len(text.split()) for text in some)
        else:
            # without `verbose` it warns of every text beyond its limit
            encoded = network.tokenizer(some, truncation=False, verbose=False)
            yield from map(len, encoded["input_ids"])
