"""Which column plays which part of an example: by the user's choice, its name, or its values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import DataError
from ...tables.table import Undecoded
from .column_values import ColumnValues
from .messages import are_messages

Part = Literal["text", "input", "completion", "pair", "label", "messages"]
FoundBy = Literal["choice", "name", "looks"]

MESSAGES = ("messages", "conversations", "conversation", "chat", "dialog")
TEXTS = (
    "text",
    "sentence",
    "review",
    "review_text",
    "review_body",
    "reviewtext",
    "content",
    "tweet",
    "comment",
    "comment_text",
    "body",
    "document",
    "article",
    "passage",
    "message",
    "post",
    "utterance",
    "query",
    "question",
    "description",
    "headline",
)
COMPLETIONS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("prompt", "chosen"),
    ("prompt", "output"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("instruction", "completion"),
    ("question", "answer"),
    ("question", "answers"),
    ("question", "response"),
    ("query", "response"),
    ("query", "answer"),
    ("input", "output"),
    ("input", "target"),
    ("source", "target"),
    ("inputs", "targets"),
    ("article", "highlights"),
    ("document", "summary"),
    ("dialogue", "summary"),
    ("text", "summary"),
    ("text", "target"),
)
INPUTS = {"instruction": ("input", "context")}
"""What follows an instruction as part of the prompt."""

CONTEXTS = {"question": ("context", "passage")}
PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("question", "sentence"),
    ("question", "passage"),
    ("query", "passage"),
    ("anchor", "positive"),
)
LABELS = (
    "label",
    "labels",
    "class",
    "category",
    "sentiment",
    "emotion",
    "intent",
    "topic",
    "polarity",
    "stars",
    "star_rating",
    "rating",
    "overall",
    "score",
    "target",
    "gold_label",
    "coarse_label",
    "label_coarse",
    "airline_sentiment",
)
USUAL_NAMES = frozenset(
    name.lower()
    for name in (
        *MESSAGES,
        *TEXTS,
        *LABELS,
        *(name for pair in (*COMPLETIONS, *PAIRS) for name in pair),
    )
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


class Columns:
    """The parts that are found so far, and the columns that are left."""

    def __init__(self, names: Sequence[str], values: Mapping[str, ColumnValues]) -> None:
        self.found: dict[Part, FoundColumn] = {}
        self._names = names
        self._values = values
        self._lower = {name.lower(): name for name in reversed(names) if name}

    def named(self, name: str) -> str | None:
        """The column of that name, in any case, that has no part yet."""
        column = name if name in self._names else self._lower.get(name.lower())
        taken = {found.column for found in self.found.values()}
        return None if column in taken else column

    def take(self, part: Part, column: str | None, by: FoundBy) -> bool:
        if column is not None:
            self.found[part] = FoundColumn(part, column, by)
        return column is not None

    def take_named(self, part: Part, names: Collection[str]) -> bool:
        """The first of these columns that there is and that has values which fit."""
        for name in names:
            column = self.named(name)
            if column is not None and not self._values[column].is_empty:
                return self.take(part, column, "name")
        return False

    def free(self) -> dict[str, ColumnValues]:
        taken = {found.column for found in self.found.values()}
        return {name: self._values[name] for name in self._names if name not in taken}


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
    columns = Columns(names, values)
    _take_chosen(source, columns, values, choice)
    if "text" in columns.found and are_messages(values[columns.found["text"].column].first):
        columns.take("messages", columns.found.pop("text").column, "choice")
    if not {"text", "messages"} & set(columns.found):
        _take_by_name(columns, choice)
    else:
        _complete(columns, choice)
    if not {"text", "messages"} & set(columns.found):
        columns.take("text", _longest_text(columns.free()), "looks")
    if not {"text", "messages"} & set(columns.found):
        listed = ", ".join(filter(None, names)) or "none"
        raise DataError(f"{source}: no column of texts found; choose one with --text: {listed}")
    if choice.label is None and not {"completion", "messages"} & set(columns.found):
        _take_label(columns)
    return tuple(columns.found.values())


def _take_chosen(
    source: str, columns: Columns, values: Mapping[str, ColumnValues], choice: ColumnChoice
) -> None:
    chosen: tuple[tuple[Part, str | None], ...] = (
        ("text", choice.text),
        ("label", choice.label),
        ("pair", choice.pair),
        ("completion", choice.completion),
    )
    for part, name in chosen:
        if name and not columns.take(part, columns.named(name), "choice"):
            listed = ", ".join(filter(None, values)) or "none"
            raise DataError(f"{source}: no column {name!r} for --{part}; its columns: {listed}")
        if name and isinstance(first := values[columns.found[part].column].first, Undecoded):
            raise DataError(
                f"{source}: column {name!r} is of type {first.type}, and --{part} takes texts"
                f"{' or numbers' * (part == 'label')}; choose another column"
            )


def _take_by_name(columns: Columns, choice: ColumnChoice) -> None:
    """The text by its name, and what belongs to it."""
    for name in MESSAGES:
        column = columns.named(name)
        if column is not None and are_messages(columns.free()[column].first):
            columns.take("messages", column, "name")
            return
    for text, _ in (*_completions(columns, choice), *_pairs(columns, choice)):
        columns.take("text", columns.named(text), "name")
        _complete(columns, choice)
        return
    free = columns.free()
    natural = [name for name in TEXTS if (column := columns.named(name)) and free[column].has_words]
    columns.take_named("text", natural)


def _completions(columns: Columns, choice: ColumnChoice) -> list[tuple[str, str]]:
    """Prompts with completions that the columns have; labelled questions and answers are pairs."""
    if choice.completion is not None or choice.pair or choice.label:
        return []
    free = columns.free()
    is_labelled = any((column := columns.named(name)) and free[column].is_class for name in LABELS)
    return [
        (prompt, completion)
        for prompt, completion in COMPLETIONS
        if (first := columns.named(prompt))
        and (second := columns.named(completion))
        and not free[first].is_empty
        and not free[second].is_empty
        and not (completion == "target" and free[second].is_class)
        and not (prompt in ("question", "query") and is_labelled)
    ]


def _pairs(columns: Columns, choice: ColumnChoice) -> list[tuple[str, str]]:
    pairs = (*PAIRS, ("question", "answer"), ("query", "response"))
    return [
        (first, second)
        for first, second in pairs
        if choice.pair is None and columns.named(first) and columns.named(second)
    ]


def _complete(columns: Columns, choice: ColumnChoice) -> None:
    """The completion, input, context or second text that the name of a text calls for."""
    if "text" not in columns.found:
        return
    text = columns.found["text"].column.lower()
    taken = columns.found.pop("text")
    completions = [second for first, second in _completions(columns, choice) if first == text]
    pairs = [second for first, second in _pairs(columns, choice) if first.lower() == text]
    columns.found = {"text": taken, **columns.found}
    if completions and columns.take_named("completion", completions):
        columns.take_named("input", INPUTS.get(text, ()))
        if choice.pair is None:
            columns.take_named("pair", CONTEXTS.get(text, ()))
    elif "completion" not in columns.found:
        columns.take_named("pair", pairs)


def _longest_text(free: Mapping[str, ColumnValues]) -> str | None:
    """The column with the longest natural texts; equal lengths by their order in the file."""
    lengths = {name: column.mean_length for name, column in free.items() if column.is_text}
    return max(lengths, key=lengths.__getitem__, default=None)


def _take_label(columns: Columns) -> None:
    """By name also where the first rows repeat few values: the whole file decides about classes."""
    if columns.found.get("label"):
        return
    free = columns.free()
    named = [column for name in LABELS if (column := columns.named(name))]
    likely = [name for name in named if free[name].is_few or free[name].is_target]
    possible = [name for name in named if free[name].may_be_class]
    if columns.take("label", next(iter((*likely, *possible)), None), "name"):
        return
    classes = [name for name, column in free.items() if column.is_class and column.repeats]
    if len(classes) == 1:
        columns.take("label", classes[0], "looks")


def passed_over(values: Mapping[str, ColumnValues], found: Sequence[FoundColumn]) -> str:
    """What to say of a column that is named as labels are and not taken; "" if there is none."""
    if {"label", "completion", "messages"} & {column.part for column in found}:
        return ""
    taken = {column.column for column in found}
    for name, column in values.items():
        if name.lower() in LABELS and name not in taken and column.first is not None:
            return f'column "{name}" is no label: {column.summary}'
    return ""
