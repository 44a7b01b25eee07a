"""Examples of a data set, and a random sample of them that is a function of their texts alone.

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
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

from .columns import FoundColumn
from .values import Message

HASH_BYTES = 8
FOUND_BY = {"choice": "as chosen", "name": "by name", "looks": "by its values"}
Kind = Literal["texts", "classes", "numbers", "completions", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example, as a model was or could be trained on it.

    Attributes:
        text: What the model reads; the prompt where there is a completion.
        completion: The part whose tokens count in a causal or sequence-to-sequence loss; "" where
            all of `text` does.
        pair: The second text of a pair task: a hypothesis, a context.
        label: The name of a class, or a number of a regression.
    """

    text: str
    completion: str = ""
    pair: str = ""
    label: str | float | None = None


Draft = tuple[Example, tuple[Message, ...]]
"""An example, and the messages that it is made of, if any."""


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Rows that could not be used for one reason, and where the first of them is."""

    reason: str
    rows: int
    first: str


@dataclass(frozen=True, slots=True)
class ClassCount:
    """How many rows of the data set have a class, and how many of the drawn examples."""

    name: str
    rows: int
    drawn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSet:
    """Examples in random order, and how they were read.

    Attributes:
        source: The name of the file or folder.
        kind: What the examples are: `classes` and `numbers` are labelled texts.
        found: The columns with their parts, and what each was found by.
        classes: By name; () where the labels are no classes.
        rows: All that were read, those that were skipped included.
        sha256: Of the file's bytes, or of the names and bytes of a folder's files.
        split: The part of the data set that was read; "" where it has none.
        notes: What a reader may not expect: another encoding, texts that were cut.
    """

    source: str
    examples: tuple[Example, ...]
    kind: Kind
    found: tuple[FoundColumn, ...]
    classes: tuple[ClassCount, ...]
    rows: int
    skipped: tuple[SkippedRows, ...]
    sha256: str
    seed: int
    split: str = ""
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """One sentence: what was drawn, from which columns, and what was skipped."""
        part = f" of split {self.split!r}" if self.split else ""
        parts = [
            f"{self.source}: {len(self.examples):,} of {self.rows:,} rows{part} drawn "
            f"(seed {self.seed})",
            ", ".join(self._described(found) for found in self.found),
        ]
        if self.skipped:
            reasons = ", ".join(
                f"{skip.rows:,} {skip.reason} (first: {skip.first})" for skip in self.skipped
            )
            rows = sum(skip.rows for skip in self.skipped)
            parts.append(f"{rows:,} {'row' if rows == 1 else 'rows'} skipped: {reasons}")
        return "; ".join((*parts, *self.notes))

    def _described(self, found: FoundColumn) -> str:
        details = FOUND_BY[found.by]
        if found.part == "label":
            count = len(self.classes)
            kinds = f"{count} class{'es' * (count != 1)}"
            details += f", {kinds if self.classes else 'numbers'}"
        return f'{found.part} = column "{found.column}" ({details})'


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
