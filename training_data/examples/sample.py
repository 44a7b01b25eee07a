"""A random sample that is a function of the texts alone.

Every row has a hash of its texts under the seed, and the rows with the smallest hashes are drawn
(bottom-k sampling; Cohen & Kaplan 2007, "Summarizing data using bottom-k sketches"). Neither the
order of the rows nor the format or the size of a block changes which are drawn; equal texts are
drawn once; and the first n of a sample are the sample of n.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from .example import Example
from .messages import Message

HASH_BYTES = 8
Draft = tuple[Example, tuple[Message, ...]]
"""An example, and the messages that it is made of, if any."""


class Sample:
    """The drafts with the smallest hashes of those that were offered.

    Peak: `size` drafts.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._key = seed.to_bytes(HASH_BYTES, "little", signed=True)
        self._largest: list[int] = []
        self._drafts: dict[int, Draft] = {}

    def key(self, example: Example) -> int:
        """The hash of an example's texts; its label does not count.

        Raises:
            UnicodeEncodeError: a text holds what is no character.
        """
        texts = f"{example.text}\0{example.pair}\0{example.completion}".encode()
        return int.from_bytes(blake2b(texts, digest_size=HASH_BYTES, key=self._key).digest())

    def offer(self, key: int, example: Example, messages: tuple[Message, ...] = ()) -> None:
        """Of equal texts with several labels the first label by name is kept."""
        if len(self._drafts) == self._size and key > -self._largest[0]:
            return
        if key in self._drafts:
            kept, its_messages = self._drafts[key]
            label = min(kept.label, example.label, key=str)
            self._drafts[key] = replace(kept, label=label), its_messages
            return
        heapq.heappush(self._largest, -key)
        self._drafts[key] = example, messages
        if len(self._drafts) > self._size:
            del self._drafts[-heapq.heappop(self._largest)]

    def drawn(self) -> Iterator[Draft]:
        """By hash, which is a random order."""
        return (self._drafts[key] for key in sorted(self._drafts))
