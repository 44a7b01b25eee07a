"""What the values of a column are: texts, classes, numbers, conversations, or none of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from ..tables import Row
from ..tables.table import Undecoded

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

LabelKind = Literal["classes", "numbers", "names"]

MOST_FRACTIONS = 20
"""Half stars make ten classes; more numbers with fractions than this are a measure."""

MOST_WHOLE_NUMBERS = 100
"""More of them are classes only if none is left out from 0 or 1 on."""

MOST_COUNTED = 1000
"""Different labels: as many are no classes, and further ones are not counted."""

NO_CLASS = "-1"
"""What `datasets` writes in place of a class that is not known."""

Message = Mapping[str, str]
ROLES = {
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
}


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
        numbers = filter(None, map(as_number, self.counts))
        return several and not other and all(map(float.is_integer, numbers))

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


def look_at(rows: Iterable[Row], names: Iterable[str]) -> dict[str, ColumnValues]:
    """The values of each column in these rows."""
    values = {name: ColumnValues() for name in names}
    for row in rows:
        for name, column in values.items():
            column.add(row.get(name))
    return values


def class_name(value: object) -> str | None:
    """A label as text, the same from every format: 1, 1.0, "1" and " 1 " are "1".

    None: no single value, or no number.
    """
    if isinstance(value, str) and value.isalnum() and value not in ("True", "False"):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | Decimal) or (
        isinstance(value, float) and math.isfinite(value)
    ):
        text = str(value).strip()
        if text in ("True", "False"):
            return text.lower()
        number = as_number(text) if text[-2:] == ".0" else None
        return text if number is None else str(int(number))
    return None


def as_number(name: str) -> float | None:
    """The finite number that a label is, if it is one."""
    if not name or name[-1] not in "0123456789." or "_" in name:
        return None
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def label_kind(counts: Mapping[str, int]) -> LabelKind:
    """What labels with these counts, of the whole file, are.

    Numbers of a regression, if all are numbers and, with fractions among them, more than
    `MOST_FRACTIONS` or half the rows differ, without fractions more than `MOST_WHOLE_NUMBERS`
    differ and they are no numbers of classes; names, if they number the rows, or more than half
    the rows differ, and so no class could be learned; classes otherwise.
    """
    numbers = [number for name in counts if (number := as_number(name)) is not None]
    rows, n = sum(counts.values()), len(counts)
    if len(numbers) < n:
        return "names" if n >= MOST_COUNTED or n > max(rows // 2, 20) else "classes"
    if not all(map(float.is_integer, numbers)):
        return "numbers" if n > min(MOST_FRACTIONS, rows // 2) else "classes"
    if n <= MOST_WHOLE_NUMBERS:
        return "classes"
    is_count = min(numbers) in (0, 1) and max(numbers) - min(numbers) + 1 == n
    if is_count and rows == n:
        return "names"
    is_percentage = is_count and min(numbers) == 0 and n == 101
    return "classes" if is_count and not is_percentage and 2 * n <= rows else "numbers"


def read_messages(value: object) -> tuple[Message, ...] | None:
    """The messages with `role` and `content`; None where the value is something else."""
    if isinstance(value, str):
        if not value.lstrip().startswith("[{"):
            return None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, list) or not value:
        return None
    messages = []
    for entry in value:
        role = entry.get("role", entry.get("from")) if isinstance(entry, dict) else None
        if not isinstance(role, str):
            return None
        content = _content(entry.get("content", entry.get("value")))
        messages.append({"role": ROLES.get(role.lower(), role.lower()), "content": content})
    return tuple(messages)


def _content(value: object) -> str:
    """The text of a message, whose content may also be a list of parts."""
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else ""
