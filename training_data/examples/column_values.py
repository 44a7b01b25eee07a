"""What a column looks like, from its first rows: texts, classes, numbers, or none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...tables.table import Undecoded
from .labels import MOST_COUNTED, as_number, class_name

NOT_TEXT = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://\S+|www\.\S+"  # address
    r"|\S+@\S+\.\w+"  # mail
    r"|[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{16,}"  # uuid, hash
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ]\d.*)?"  # date
    r"|(?:/|[a-z]:\\|\./)\S+"  # path
    r"|[+-]?[\d.,:% ]+(?:e[+-]?\d+)?)",  # number, time
    re.IGNORECASE,
)
DATE_IN_WORDS = re.compile(
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?(?:\d{1,2} )?"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d{1,4}.*\d",
    re.IGNORECASE,
)
WORDLESS_SCRIPTS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese have no space between words."""

MIN_NATURAL_SHARE = 0.6
MIN_MEAN_WORDS = 2.0
LONGEST_CLASS = 40
MOST_BY_LOOKS = 200
"""Classes of a column whose name says nothing."""

SMALL_ROWS = 40
"""So few rows may have a class each that no other has."""


@dataclass(slots=True)
class ColumnValues:
    """What is counted of a column.

    Attributes:
        first: Its first value that is not empty, of whatever type.
        counts: Rows by value, at most `MOST_COUNTED` + 1 values.
    """

    first: object = None
    filled: int = 0
    texts: int = 0
    natural: int = 0
    words: int = 0
    characters: int = 0
    numbers: int = 0
    lists: int = 0
    longest: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, value: object) -> None:
        if value is None or value == "":
            return
        self.first = value if self.first is None else self.first
        if isinstance(value, Undecoded):
            return
        self.filled += 1
        name = class_name(value)
        if name is None:
            self.lists += isinstance(value, list | tuple)
            return
        self.numbers += as_number(name) is not None
        self.longest = max(self.longest, len(name))
        if name in self.counts or len(self.counts) <= MOST_COUNTED:
            self.counts[name] = self.counts.get(name, 0) + 1
        if isinstance(value, str):
            text = value.strip()
            self.texts += 1
            self.characters += len(text)
            words = len(WORDLESS_SCRIPTS.findall(text)) or len(text.split())
            self.words += words
            is_other = NOT_TEXT.fullmatch(text) or DATE_IN_WORDS.fullmatch(text)
            letters = sum(map(str.isalpha, text[:1000]))
            self.natural += not is_other and 2 * letters >= len(text[:1000])

    @property
    def is_empty(self) -> bool:
        return not self.filled

    @property
    def mean_length(self) -> float:
        return self.characters / max(self.texts, 1)

    @property
    def has_words(self) -> bool:
        """Whether most values are natural texts, be it of one word."""
        return self.natural >= MIN_NATURAL_SHARE * max(self.filled, 1)

    @property
    def is_text(self) -> bool:
        """Whether it holds natural texts that differ, of more than a word."""
        differ = 2 * len(self.counts) >= min(self.filled, MOST_BY_LOOKS)
        return self.has_words and differ and self.words >= MIN_MEAN_WORDS * self.texts

    @property
    def is_few(self) -> bool:
        """Whether it holds at most `MOST_COUNTED` values, each twice on average."""
        rows = 2 * self.filled if self.filled < SMALL_ROWS else self.filled
        few = 0 < 2 * len(self.counts) <= rows and len(self.counts) <= MOST_COUNTED
        return few and not self.lists

    @property
    def is_class(self) -> bool:
        """Whether it holds few values, all of them short."""
        return self.is_few and self.longest <= LONGEST_CLASS

    @property
    def may_be_class(self) -> bool:
        """Whether it holds short values, of which more rows may show to be few."""
        some = 0 < 4 * len(self.counts) <= 3 * self.filled and len(self.counts) <= MOST_COUNTED
        return some and not self.lists and self.longest <= LONGEST_CLASS

    @property
    def repeats(self) -> bool:
        """Whether it has two values or more that are no dates or addresses, a few rows each."""
        other = any(NOT_TEXT.fullmatch(name) and as_number(name) is None for name in self.counts)
        several = 2 <= len(self.counts) <= min(max(self.filled // 5, 2), MOST_BY_LOOKS)
        return several and not other and all(as_whole(name) for name in self.counts)

    @property
    def is_target(self) -> bool:
        """Whether it holds numbers of a regression, or lists of labels."""
        return not self.is_empty and (self.numbers == self.filled or self.lists == self.filled)

    @property
    def summary(self) -> str:
        """Why it is no label."""
        if isinstance(self.first, Undecoded):
            return f"of type {self.first.type}"
        if not self.counts:
            return "no single values"
        different = f"{min(len(self.counts), MOST_COUNTED):,}"
        more = " or more" * (len(self.counts) > MOST_COUNTED)
        return f"{different}{more} different values in the first {self.filled:,} rows"


def as_whole(name: str) -> bool:
    """Whether a value is no number with a fraction."""
    number = as_number(name)
    return number is None or number.is_integer()


def look_at(rows: Iterable[Mapping[str, object]], names: Iterable[str]) -> dict[str, ColumnValues]:
    """The values of each column in these rows."""
    values = {name: ColumnValues() for name in names}
    for row in rows:
        for name, column in values.items():
            column.add(row.get(name))
    return values
