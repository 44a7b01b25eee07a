"""A row of a table to an example, or to the reason why it gives none.

Of a conversation the last answer is the completion of what comes before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..tables import Row
from .columns import FoundColumn, Part
from .examples import Draft, Example
from .values import NO_CLASS, Message, class_name, read_messages

Template = Callable[[list[dict[str, str]]], tuple[str, str]]
"""Messages to (prompt, completion) through a chat template; `ValueError` where it refuses them."""

LONGEST_TEXT = 100_000
"""Characters of one part of an example: no model reads more tokens at once than these have here."""

MIN_CHARACTERS = 2
LISTS = "label is a list"
NOT_TEXT = "not a text"
NOT_LABEL = "label is neither a text nor a number"


@dataclass(frozen=True, slots=True)
class RowReader:
    """The columns of a table's rows, and the names of its classes."""

    columns: Mapping[Part, str]
    class_names: Sequence[str] = ()

    @classmethod
    def of(
        cls, found: Sequence[FoundColumn], class_names: Mapping[str, Sequence[str]]
    ) -> RowReader:
        columns = {column.part: column.column for column in found}
        return cls(columns, class_names.get(columns.get("label", ""), ()))

    def draft(self, row: Row) -> Draft | str:
        """The example that a row holds, with its messages, or why it holds none."""
        messages: tuple[Message, ...] = ()
        completion = ""
        if "messages" in self.columns:
            read = read_messages(row[self.columns["messages"]])
            messages = until_last_answer(read or ())
            if read is None or not messages:
                return "not messages" if read is None else "no answer of the assistant"
            text, completion = plain_template(messages)
        else:
            text = self._text(row, "text")
            if "input" in self.columns and text and (more := self._text(row, "input")):
                text = f"{text}\n\n{more}"
            completion = self._text(row, "completion")
        if not text:
            value = row[self.columns["text"]] if "text" in self.columns else None
            return "empty" if value is None or isinstance(value, str | list | dict) else NOT_TEXT
        if len(text) < MIN_CHARACTERS:
            return "too short"
        if "completion" in self.columns and not completion:
            return "no completion"
        label = self._label(row)
        if label is None and "label" in self.columns:
            value = row[self.columns["label"]]
            if isinstance(value, list | dict):
                return LISTS
            is_missing = value is None or isinstance(value, str | int | float)
            return "no label" if is_missing else NOT_LABEL
        pair = self._text(row, "pair")
        if "pair" in self.columns and "completion" not in self.columns and not pair:
            return "no second text"
        if "\0" in text or "\0" in completion or "\0" in pair:
            return "NUL characters"
        cut = text[-LONGEST_TEXT:] if completion else text[:LONGEST_TEXT]
        example = Example(
            text=cut, completion=completion[:LONGEST_TEXT], pair=pair[:LONGEST_TEXT], label=label
        )
        return example, messages

    def _text(self, row: Row, part: Part) -> str:
        column = self.columns.get(part)
        if column is None:
            return ""
        value = row[column]
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, dict):
            value = value.get("text")
        if isinstance(value, list):
            value = next(iter(value), None)
        return value.strip() if isinstance(value, str) else ""

    def _label(self, row: Row) -> str | None:
        column = self.columns.get("label")
        name = class_name(row[column]) if column is not None else None
        if not self.class_names or name is None:
            return name or None
        if name == NO_CLASS:
            return None
        place = int(name) if name.isdecimal() else len(self.class_names)
        return self.class_names[place] if place < len(self.class_names) else name


def is_cut(example: Example) -> bool:
    """Whether a part of it was cut, or just fits."""
    return LONGEST_TEXT in (len(example.text), len(example.completion), len(example.pair))


def until_last_answer(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages up to the last one of the assistant; () if it never answers."""
    places = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "assistant" and message["content"].strip()
    ]
    return tuple(messages[: places[-1] + 1]) if places else ()


def plain_template(messages: Sequence[Message]) -> tuple[str, str]:
    """(prompt, completion) without a chat template: `role: content`, a message in each line."""
    *before, answer = messages
    lines = [f"{message['role']}: {message['content']}\n" for message in before]
    return "".join(lines) + f"{answer['role']}:", f" {answer['content']}"


def chat_template(tokenizer: Any) -> Template | None:
    """Messages to (prompt, completion) as the tokenizer writes them; None without a template."""
    if not getattr(tokenizer, "chat_template", None):
        return None

    def apply(messages: list[dict[str, str]]) -> tuple[str, str]:
        """Raises `ValueError` for conversations that the template refuses."""
        from jinja2 import TemplateError

        try:
            before = tokenizer.apply_chat_template(
                messages[:-1], tokenize=False, add_generation_prompt=True
            )
            whole = tokenizer.apply_chat_template(messages, tokenize=False)
        except TemplateError as err:
            raise ValueError(f"the chat template refuses it: {err}") from err
        if not whole.startswith(before):
            return before, messages[-1]["content"]
        return before, whole[len(before) :]

    return apply
