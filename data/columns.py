"""Which column plays which part of an example: by the user's choice, its name, or its values."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from ..errors import DataError
from ..results import count
from .rows.text_tables import Undecoded

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
"""More of them are classes only if hardly any is left out from 0 or 1 on."""

LEAST_NUMBERED = 0.95
"""Share of the numbers from 0 or 1 to the largest that classes have: a file may lack a few."""

MOST_COUNTED = 1000
"""Different labels: as many are no classes, and further ones of a file are not counted."""

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


class ColumnValues:
    """What a column holds in the rows that are looked at: its first value that is not empty, of
    whatever type, and rows by value."""

    def __init__(self, values: Iterable[object]) -> None:
        present = [value for value in values if value is not None and value != ""]
        self.first = next(iter(present), None)
        filled = [value for value in present if not isinstance(value, Undecoded)]
        names = [name for name in map(class_name, filled) if name is not None]
        texts = [value.strip() for value in filled if isinstance(value, str)]
        self.counts = Counter(names)
        self.filled, self.texts = len(filled), len(texts)
        self.lists = sum(isinstance(value, list | tuple) for value in filled)
        self.numbers = sum(as_number(name) is not None for name in names)
        self.longest = max(map(len, names), default=0)
        self.characters = sum(map(len, texts))
        self.words = sum(len(WORDLESS_SCRIPTS.findall(t)) or len(t.split()) for t in texts)
        self.natural = sum(map(_is_natural, texts))

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
        n, more = min(len(self.counts), MOST_COUNTED), len(self.counts) > MOST_COUNTED
        different = count(n, "different value", or_more=more, form=",")
        return f"{different} in the first {count(self.filled, 'row', form=',')}"


def _is_natural(text: str) -> bool:
    if NOT_TEXT.fullmatch(text) or DATE_IN_WORDS.fullmatch(text):
        return False
    return 2 * sum(map(str.isalpha, text[:1000])) >= len(text[:1000])


def class_name(value: object) -> str | None:
    """A label as text, the same from every format: 1, 1.0, "1" and " 1 " are "1"; None for what is
    no single value, or no number."""
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
    differ and they are no numbers of classes; names, if they number the rows, or more than half the
    rows differ, or `MOST_COUNTED` do; classes otherwise.
    """
    numbers = [number for name in counts if (number := as_number(name)) is not None]
    rows, n = sum(counts.values()), len(counts)
    if len(numbers) < n:
        return "names" if n >= MOST_COUNTED or n > max(rows // 2, 20) else "classes"
    if not all(map(float.is_integer, numbers)):
        return "numbers" if n > min(MOST_FRACTIONS, rows // 2) else "classes"
    if n <= MOST_WHOLE_NUMBERS:
        return "classes"
    least, most = min(numbers), max(numbers)
    if least not in (0, 1) or n < LEAST_NUMBERED * (most - least + 1):
        return "numbers"
    if rows == n:
        return "names"
    is_percentage = (least, most) == (0, 100)
    are_classes = n < MOST_COUNTED and 2 * n <= rows and not is_percentage
    return "classes" if are_classes else "numbers"


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


Part = Literal["text", "input", "completion", "pair", "label", "messages"]
CHOSEN: tuple[Part, ...] = ("text", "label", "pair", "completion")
FoundBy = Literal["choice", "name", "looks"]

MESSAGES = ("messages", "conversations", "conversation", "chat", "dialog")
TEXTS = (
    *("text", "sentence", "review", "review_text", "review_body", "reviewtext", "content"),
    *("tweet", "comment", "comment_text", "body", "document", "article", "passage", "message"),
    *("post", "utterance", "query", "question", "description", "headline"),
)
COMPLETIONS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("completion", "response", "chosen", "output"),
    "instruction": ("output", "response", "completion"),
    "question": ("answer", "answers", "response"),
    "query": ("response", "answer"),
    "input": ("output", "target"),
    "source": ("target",),
    "inputs": ("targets",),
    "article": ("highlights",),
    "document": ("summary",),
    "dialogue": ("summary",),
    "text": ("summary", "target"),
}
INPUTS = {"instruction": ("input", "context")}
"""What follows an instruction as part of the prompt."""

CONTEXTS = {"question": ("context", "passage")}
PAIRS: Mapping[str, tuple[str, ...]] = {
    "sentence1": ("sentence2",),
    "premise": ("hypothesis",),
    "question1": ("question2",),
    "text1": ("text2",),
    "text_a": ("text_b",),
    "sentence_a": ("sentence_b",),
    "question": ("sentence", "passage"),
    "query": ("passage",),
    "anchor": ("positive",),
}
ANSWERS = {"question": ("answer",), "query": ("response",)}
"""Second texts where they are no completions."""

LABELS = (
    *("label", "labels", "class", "category", "sentiment", "emotion", "intent", "topic"),
    *("polarity", "stars", "star_rating", "rating", "overall", "score", "target", "gold_label"),
    *("coarse_label", "label_coarse", "airline_sentiment"),
)
USUAL_NAMES = frozenset((*MESSAGES, *TEXTS, *LABELS)).union(
    *(names for pairs in (COMPLETIONS, PAIRS) for names in (pairs, *pairs.values()))
)
"""A first line with one of these is a header, split as it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoice:
    """The user's choice of columns: a name, "" for no such column, None to find it."""

    text: str | None = None
    label: str | None = None
    pair: str | None = None
    completion: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(filter(None, (getattr(self, part) for part in CHOSEN)))


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column, its part in an example, and what it was found by."""

    part: Part
    column: str
    by: FoundBy


def find_columns(
    source: str, names: Sequence[str], values: Mapping[str, ColumnValues], choice: ColumnChoice
) -> tuple[FoundColumn, ...]:
    """The columns of an example's parts, `text` or `messages` among them: by the user's choice,
    then names, then values: the text is the column with the longest natural texts, the label the
    one column with few short values that repeat. Raises DataError."""
    columns = _Columns(names, values, choice)
    columns.take_chosen(source)
    if columns.has_text:
        columns.complete()
    else:
        columns.take_text_by_name()
    if not columns.has_text:
        columns.take_longest_text()
    if not columns.has_text:
        listed = ", ".join(filter(None, names)) or "none"
        raise DataError(f"{source}: no column of texts found; choose one with --text: {listed}")
    if choice.label is None and not {"completion", "messages"} & set(columns.found):
        columns.take_label()
    return tuple(columns.found.values())


class _Columns:
    """The parts that are found so far, and the columns that are left."""

    def __init__(
        self, names: Sequence[str], values: Mapping[str, ColumnValues], choice: ColumnChoice
    ) -> None:
        self.found: dict[Part, FoundColumn] = {}
        self._names, self._values, self._choice = names, values, choice
        self._lower = {name.lower(): name for name in reversed(names) if name}

    @property
    def has_text(self) -> bool:
        return "text" in self.found or "messages" in self.found

    @property
    def _free(self) -> dict[str, ColumnValues]:
        taken = {found.column for found in self.found.values()}
        return {name: self._values[name] for name in self._names if name not in taken}

    def _named(self, name: str) -> str | None:
        """The column of that name, in any case, that has no part yet."""
        column = name if name in self._names else self._lower.get(name.lower())
        return column if column in self._free else None

    def _take(self, part: Part, column: str | None, by: FoundBy) -> bool:
        if column is not None:
            self.found[part] = FoundColumn(part, column, by)
        return column is not None

    def _take_named(self, part: Part, names: Iterable[str]) -> bool:
        """The first of these columns that there is and that has values which fit."""
        return self._take(part, next(self._filled(names), None), "name")

    def _filled(self, names: Iterable[str]) -> Iterator[str]:
        columns = filter(None, map(self._named, names))
        return (column for column in columns if not self._values[column].is_empty)

    def take_chosen(self, source: str) -> None:
        """The user's columns; as text also one of messages."""
        for part in CHOSEN:
            name = getattr(self._choice, part)
            if not name:
                continue
            if not self._take(part, self._named(name), "choice"):
                listed = ", ".join(filter(None, self._values)) or "none"
                raise DataError(f"{source}: no column {name!r} for --{part}; its columns: {listed}")
            first = self._values[self.found[part].column].first
            if isinstance(first, Undecoded):
                raise DataError(
                    f"{source}: column {name!r} is of type {first.type}, and --{part} takes texts"
                    f"{' or numbers' * (part == 'label')}; choose another column"
                )
        text = self.found.get("text")
        if text and read_messages(self._values[text.column].first) is not None:
            self._take("messages", self.found.pop("text").column, "choice")

    def take_text_by_name(self) -> None:
        """The text or the messages by their names, and what belongs to them."""
        for name in MESSAGES:
            column = self._named(name)
            if column is not None and read_messages(self._values[column].first) is not None:
                self._take("messages", column, "name")
                return
        prompts = (name for name in COMPLETIONS if self._completions(name))
        firsts = (name for name in (*PAIRS, *ANSWERS) if self._seconds(name))
        for column in (*self._filled(prompts), *map(self._named, firsts)):
            if self._take("text", column, "name"):
                self.complete()
                return
        natural = [
            column
            for name in TEXTS
            if (column := self._named(name)) and self._values[column].has_words
        ]
        self._take_named("text", natural)

    def take_longest_text(self) -> None:
        """The column with the longest natural texts; equal lengths by their order in the file."""
        lengths = {
            name: column.mean_length for name, column in self._free.items() if column.is_text
        }
        self._take("text", max(lengths, key=lengths.__getitem__, default=None), "looks")

    def complete(self) -> None:
        """The completion, input, context or second text that the name of a text calls for."""
        if "text" not in self.found:
            return
        self.found = {"text": self.found.pop("text"), **self.found}
        text = self.found["text"].column.lower()
        is_prompt = not self._values[self.found["text"].column].is_empty
        if is_prompt and self._take_named("completion", self._completions(text)):
            self._take_named("input", INPUTS.get(text, ()))
            if self._choice.pair is None:
                self._take_named("pair", CONTEXTS.get(text, ()))
        elif "completion" not in self.found:
            self._take_named("pair", self._seconds(text))

    def _completions(self, prompt: str) -> list[str]:
        """Completions of a prompt that there are; labelled questions and answers are pairs."""
        choice = self._choice
        if choice.completion is not None or choice.pair or choice.label:
            return []
        free = self._free
        labels = filter(None, map(self._named, LABELS))
        if prompt in ANSWERS and any(free[column].is_class for column in labels):
            return []
        return [
            name
            for name in self._filled(COMPLETIONS.get(prompt, ()))
            if not (name.lower() == "target" and free[name].is_class)
        ]

    def _seconds(self, first: str) -> list[str]:
        """Second texts of a first one that there are."""
        names = (*PAIRS.get(first, ()), *ANSWERS.get(first, ()))
        return [] if self._choice.pair is not None else list(filter(None, map(self._named, names)))

    def take_label(self) -> None:
        """By name also where the first rows repeat few values: the whole file decides."""
        if "label" in self.found:
            return
        free = self._free
        named = list(filter(None, map(self._named, LABELS)))
        likely = [name for name in named if free[name].is_few or free[name].is_target]
        possible = [name for name in named if free[name].may_be_class]
        if self._take("label", next(iter((*likely, *possible)), None), "name"):
            return
        classes = [name for name, column in free.items() if column.is_class and column.repeats]
        if len(classes) == 1:
            self._take("label", classes[0], "looks")


def passed_over(values: Mapping[str, ColumnValues], found: Sequence[FoundColumn]) -> str:
    """What to say of a column that is named as labels are and not taken; "" if there is none."""
    if {"label", "completion", "messages"} & {column.part for column in found}:
        return ""
    taken = {column.column for column in found}
    for name, column in values.items():
        if name.lower() in LABELS and name not in taken and column.first is not None:
            return f'column "{name}" is no label: {column.summary}'
    return ""
