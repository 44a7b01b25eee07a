"""Examples that were drawn from a data set, and how they were read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from .columns import FoundColumn
from .example import Example

Kind = Literal["texts", "classes", "numbers", "completions", "messages"]
FOUND_BY = {"choice": "as chosen", "name": "by name", "looks": "by its values"}


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


def count_classes(rows: Counter[str], examples: tuple[Example, ...]) -> tuple[ClassCount, ...]:
    """The classes by name, with their rows and their examples."""
    drawn = Counter(example.label for example in examples)
    return tuple(ClassCount(name, rows[name], drawn[name]) for name in sorted(rows))
