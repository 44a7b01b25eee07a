"""A random sample that is a function of the texts alone.

Every row has a hash of its texts under the seed, and the rows with the smallest hashes are drawn
(bottom-k sampling; Cohen & Kaplan 2007, "Summarizing data using bottom-k sketches"). Neither the
order of the rows nor the format or the size of a block changes which are drawn; equal texts are
drawn once; and the first n of a sample are the sample of n.

One rule comes on top, for classes: where a class would be missed, its row with the smallest hash
takes the place of the last row of a class that has several.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

from .example import Example
from .messages import Message

HASH_BYTES = 8
Draft = tuple[Example, tuple[Message, ...]]
"""An example, and the messages that it is made of, if any."""


class Sample:
    """The drafts with the smallest hashes of those that were offered.

    Peak: twice `size` drafts, one of each class among them.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._key = seed.to_bytes(HASH_BYTES, "little", signed=True)
        self._largest: list[int] = []
        self._drafts: dict[int, Draft] = {}
        self._of_classes: dict[str | float, tuple[int, Draft]] = {}
        self._are_many = False

    def key(self, example: Example) -> int:
        """The hash of an example's texts; its label does not count.

        Raises:
            UnicodeEncodeError: a text holds what is no character.
        """
        texts = f"{example.text}\0{example.pair}\0{example.completion}".encode()
        return int.from_bytes(blake2b(texts, digest_size=HASH_BYTES, key=self._key).digest())

    def offer(self, key: int, example: Example, messages: tuple[Message, ...] = ()) -> None:
        """Of equal texts with several labels the first label by name is kept."""
        if example.label is not None and not self._are_many:
            self._offer_to_class(key, example.label, (example, messages))
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

    def _offer_to_class(self, key: int, label: str | float, draft: Draft) -> None:
        """Keep the draft of each class with the smallest hash, while a sample can hold them all."""
        before = self._of_classes.get(label)
        if before is None or key < before[0]:
            self._of_classes[label] = key, draft
        if len(self._of_classes) > self._size:
            self._are_many = True
            self._of_classes.clear()

    def drawn(self, *, are_classes: bool) -> Iterator[Draft]:
        """By hash, which is a random order; of every class one at least, if it holds so many."""
        others: dict[int, Draft] = {}
        if are_classes:
            for _, (key, draft) in sorted(
                self._of_classes.items(), key=lambda entry: str(entry[0])
            ):
                if key not in self._drafts:
                    others.setdefault(key, draft)
        found = [self._drafts[key] for key in sorted(self._drafts)]
        found += [others[key] for key in sorted(others)]
        labels = [example.label for example, _ in found]
        return (found[place] for place in places_of_every_class(labels, len(self._drafts)))


def places_of_every_class(labels: Sequence[object], n: int) -> list[int]:
    """The first `n` places, one of each label among them where these are no more than `n`.

    The first place of a label that is missed replaces the last one whose label has several.
    """
    places, counts = list(range(min(n, len(labels)))), Counter(labels[:n])
    missed = [labels.index(label) for label in dict.fromkeys(labels[n:]) if label not in counts]
    if len(counts) + len(missed) > n:
        return places
    for place in reversed(range(len(places))):
        if missed and counts[labels[place]] > 1:
            counts[labels[place]] -= 1
            places[place] = missed.pop()
    return places
