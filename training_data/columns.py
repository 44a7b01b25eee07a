"""Which column plays which part of an example: by the user's choice, its name, or its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import DataError
from ..tables.table import Undecoded
from .values import ColumnValues, read_messages

Part = Literal["text", "input", "completion", "pair", "label", "messages"]
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
        return tuple(filter(None, (self.text, self.label, self.pair, self.completion)))


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column, its part in an example, and what it was found by."""

    part: Part
    column: str
    by: FoundBy


def find_columns(
    source: str,
    names: Sequence[str],
    values: Mapping[str, ColumnValues],
    choice: ColumnChoice,
) -> tuple[FoundColumn, ...]:
    """The columns of an example's parts, `text` or `messages` among them.

    The user's choice comes first, then names, then values: the text is the column with the longest
    natural texts, the label the one column with few short values that repeat.

    Raises:
        DataError: a chosen column is not there, or no column holds texts.
    """
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
        chosen: dict[Part, str | None] = {
            "text": self._choice.text,
            "label": self._choice.label,
            "pair": self._choice.pair,
            "completion": self._choice.completion,
        }
        for part, name in chosen.items():
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
