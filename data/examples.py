"""A data set from files to a random sample of its examples, a function of their texts alone.

Every row has a hash of its texts under the seed, and the rows with the smallest hashes are drawn
(bottom-k sampling; Cohen & Kaplan 2007). Neither the order of the rows nor the format or the size
of a block changes which are drawn; equal texts are drawn once; and the first n of a sample are the
sample of n. Where a class would be missed, its row with the smallest hash takes the place of the
last row of a class that has several.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ..errors import DataError
from ..results import agree, count
from . import columns
from .rows import DataTable, NumberedRow, Row
from .rows.data_files import DataFiles, locate_data_files

HASH_BYTES = 8
FOUND_BY = {"choice": "as chosen", "name": "by name", "looks": "by its values"}
Kind = Literal["texts", "classes", "numbers", "completions", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example: the text that a model reads (the prompt where there is a completion), the
    completion whose tokens alone then count, the second text of a pair task, and the name of a
    class or a number of a regression."""

    text: str
    completion: str = ""
    pair: str = ""
    label: str | float | None = None

    @property
    def texts(self) -> tuple[str, str, str]:
        """What tells examples apart, but for their labels."""
        return self.text, self.pair, self.completion


Draft = tuple[Example, tuple[columns.Message, ...]]


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Rows that could not be used for one reason, and where the first of them is."""

    reason: str
    rows: int
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSet:
    """Examples in random order, and how they were read.

    kind: `classes` and `numbers` are labelled texts. classes: of each, by name, how many examples
    are drawn; {} where the labels are none. rows: all that were read. sha256: of the file's bytes,
    or of the names and bytes of a folder's files. notes: what a reader may not expect: another
    encoding, texts that were cut.
    """

    source: str
    examples: tuple[Example, ...]
    kind: Kind
    found: tuple[columns.FoundColumn, ...]
    classes: Mapping[str, int]
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
            f"{self.source}: {len(self.examples):,} of "
            f"{count(self.rows, 'row', form=',')}{part} drawn "
            f"(seed {self.seed})",
            ", ".join(self._described(found) for found in self.found),
        ]
        if self.skipped:
            reasons = ", ".join(
                f"{skip.rows:,} {skip.reason} (first: {skip.first})" for skip in self.skipped
            )
            rows = sum(skip.rows for skip in self.skipped)
            parts.append(f"{count(rows, 'row', form=',')} skipped: {reasons}")
        return "; ".join((*parts, *self.notes))

    def _described(self, found: columns.FoundColumn) -> str:
        details = FOUND_BY[found.by]
        if found.part == "label":
            details += f", {count(len(self.classes), 'class') if self.classes else 'numbers'}"
        return f'{found.part} = column "{found.column}" ({details})'


class HashSample:
    """The drafts with the smallest hashes of those that were offered. Peak: twice `size` drafts."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._key = seed.to_bytes(HASH_BYTES, "little", signed=True)
        self._largest: list[int] = []
        self._drafts: dict[int, Draft] = {}
        self._of_classes: dict[str | float, tuple[int, Draft]] = {}
        self._are_many = False

    def key(self, example: Example) -> int:
        """The hash of an example's texts without its label; UnicodeEncodeError for what is no
        character."""
        texts = "\0".join(example.texts).encode()
        return int.from_bytes(blake2b(texts, digest_size=HASH_BYTES, key=self._key).digest())

    def offer(self, key: int, example: Example, messages: tuple[columns.Message, ...] = ()) -> None:
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
    """The first `n` places, one of each label among them where these are no more than `n`: the
    first of a label that is missed replaces the last one whose label has several."""
    places, counts = list(range(min(n, len(labels)))), Counter(labels[:n])
    missed = [labels.index(label) for label in dict.fromkeys(labels[n:]) if label not in counts]
    if len(counts) + len(missed) > n:
        return places
    for place in reversed(range(len(places))):
        if missed and counts[labels[place]] > 1:
            counts[labels[place]] -= 1
            places[place] = missed.pop()
    return places


Template = Callable[[list[dict[str, str]]], tuple[str, str]]
"""Messages to (prompt, completion) through a chat template; `ValueError` where it refuses them."""

LONGEST_TEXT = 100_000
"""Characters of one part of an example: no model reads more tokens at once than these have here."""

MIN_CHARACTERS = 2
LISTS = "label is a list"
NOT_TEXT = "not a text"
NOT_LABEL = "label is neither a text nor a number"


class RowReader:
    def __init__(
        self, found: Sequence[columns.FoundColumn], class_names: Mapping[str, Sequence[str]]
    ) -> None:
        self.columns = {column.part: column.column for column in found}
        self.class_names = class_names.get(self.columns.get("label", ""), ())

    def draft(self, row: Row) -> Draft | str:
        """The example that a row holds, with its messages, or why it holds none."""
        values = {part: row[column] for part, column in self.columns.items()}
        messages: tuple[columns.Message, ...] = ()
        if "messages" in values:
            read = columns.read_messages(values["messages"])
            messages = until_last_answer(read or ())
            if read is None or not messages:
                return "not messages" if read is None else "no answer of the assistant"
            text, completion = plain_template(messages)
        else:
            text, more = _text(values.get("text")), _text(values.get("input"))
            text = f"{text}\n\n{more}" if text and more else text
            completion = _text(values.get("completion"))
        if not text:
            value = values.get("text")
            return "empty" if value is None or isinstance(value, str | list | dict) else NOT_TEXT
        if len(text) < MIN_CHARACTERS:
            return "too short"
        if "completion" in values and not completion:
            return "no completion"
        label = self._label(values.get("label"))
        if label is None and "label" in values:
            value = values["label"]
            if isinstance(value, list | dict):
                return LISTS
            is_missing = value is None or isinstance(value, str | int | float)
            return "no label" if is_missing else NOT_LABEL
        pair = _text(values.get("pair"))
        if "pair" in values and "completion" not in values and not pair:
            return "no second text"
        if "\0" in text or "\0" in completion or "\0" in pair:
            return "NUL characters"
        cut = text[-LONGEST_TEXT:] if completion else text[:LONGEST_TEXT]
        example = Example(
            text=cut, completion=completion[:LONGEST_TEXT], pair=pair[:LONGEST_TEXT], label=label
        )
        return example, messages

    def _label(self, value: object) -> str | None:
        name = columns.class_name(value)
        if not self.class_names or name is None:
            return name or None
        if name == columns.NO_CLASS:
            return None
        place = int(name) if name.isdecimal() else len(self.class_names)
        return self.class_names[place] if place < len(self.class_names) else name


def _text(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("text")
    if isinstance(value, list):
        value = next(iter(value), None)
    return value.strip() if isinstance(value, str) else ""


def until_last_answer(messages: Sequence[columns.Message]) -> tuple[columns.Message, ...]:
    """The messages up to the last one of the assistant; () if it never answers."""
    places = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "assistant" and message["content"].strip()
    ]
    return tuple(messages[: places[-1] + 1]) if places else ()


def plain_template(messages: Sequence[columns.Message]) -> tuple[str, str]:
    """(prompt, completion) without a chat template: `role: content`, a message in each line."""
    *before, answer = messages
    lines = [f"{message['role']}: {message['content']}\n" for message in before]
    return "".join(lines) + f"{answer['role']}:", f" {answer['content']}"


def chat_template(tokenizer: Any) -> Template | None:
    """Messages to (prompt, completion) as the tokenizer writes them; None without a template."""
    if not getattr(tokenizer, "chat_template", None):
        return None

    def apply(messages: list[dict[str, str]]) -> tuple[str, str]:
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


MIN_EXAMPLES = 8
ROWS_LOOKED_AT = 2000
CHARACTERS_LOOKED_AT = 1 << 24
MAX_BROKEN_SHARE = 0.1
HARMLESS = frozenset(
    {
        "empty",
        "too short",
        "no label",
        "no completion",
        "no second text",
        "no answer of the assistant",
        NOT_TEXT,
    }
)
"""Rows that a sound file may hold; a file with many of the others is damaged."""


def read_examples(
    path: str | Path,
    choice: columns.ColumnChoice | None = None,
    *,
    max_examples: int = 512,
    seed: int = 0,
    split: str | None = None,
    template: Template | None = None,
    name: str | None = None,
) -> ExampleSet:
    """At most `max_examples` examples of a data set, drawn at random by a hash of their texts.

    Reads `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet`, `.arrow` and text files, text also as
    `.gz`; a folder that `datasets` saved; a downloaded repository with such files. Of several
    splits `train` is read if none is chosen. Columns that are not chosen are found by their names
    and values; messages go through the template, or are `role: content` lines. Peak, whatever the
    files' size: the drawn examples of at most 100,000 characters a part, one row of at most 8 Mi
    characters (or 256 rows of parquet, a batch of Arrow), and blocks of 1 MiB; about 100 MiB with
    ordinary rows.

    Raises DataError: a file that cannot be read, no column of texts, a chosen column that is not
    there, labels that are lists, fewer than `MIN_EXAMPLES` usable rows that differ.
    """
    files = locate_data_files(Path(path), split)
    choice = choice or columns.ColumnChoice()
    name = name or files.root.name
    scan = _scan(name, files, choice, HashSample(max_examples, seed), "utf-8")
    if scan.undecodable > scan.decoded:
        scan = _scan(name, files, choice, HashSample(max_examples, seed), "cp1252")
    return _example_set(files, scan, seed, template)


@dataclass(slots=True)
class _Scan:
    """What one pass over all rows found; of rows with characters beyond ASCII, those that were
    decoded, and those with bytes that are not of the encoding."""

    source: str
    sample: HashSample
    found: tuple[columns.FoundColumn, ...]
    notes: list[str]
    rows: int = 0
    decoded: int = 0
    undecodable: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, SkippedRows] = field(default_factory=dict)

    def skip(self, reason: str, where: str) -> None:
        before = self.skipped.get(reason) or SkippedRows(reason, 0, where)
        self.skipped[reason] = replace(before, rows=before.rows + 1)

    def add(self, table: DataTable, row: NumberedRow, reader: RowReader, is_one: bool) -> None:
        number, values = row
        self.rows += 1
        draft = values if isinstance(values, str) else reader.draft(values)
        if not isinstance(draft, str):
            example, messages = draft
            try:
                key = self.sample.key(example)
            except UnicodeEncodeError:
                self.undecodable += 1
                draft = "undecodable"
            else:
                self.decoded += not example.text.isascii()
                self.sample.offer(key, example, messages)
                label = example.label
                if isinstance(label, str) and (
                    label in self.labels or len(self.labels) < columns.MOST_COUNTED
                ):
                    self.labels[label] += 1
                return
        where = f"{table.unit} {number}"
        self.skip(draft, where if is_one else f"{table.path.name}, {where}")


def _scan(
    name: str, files: DataFiles, choice: columns.ColumnChoice, sample: HashSample, encoding: str
) -> _Scan:
    tables = files.tables(
        encoding, (*(name.lower() for name in choice.names), *columns.USUAL_NAMES)
    )
    names = tuple(dict.fromkeys(name for table in tables for name in table.columns))
    first = tables[0]
    head = [row for _, row in _head(first)]
    rows = [row for row in head if not isinstance(row, str)]
    if not rows:
        raise DataError(
            f"{first.path.name}: no row with values in it{''.join(f'; {row}' for row in head[:1])}"
        )
    values = {name: columns.ColumnValues(row.get(name) for row in rows) for name in names}
    found = columns.find_columns(name, names, values, choice)
    parts = {column.column for column in found}
    scan = _Scan(name, sample, found, list(first.notes))
    if choice.label is None and (note := columns.passed_over(values, found)):
        scan.notes.append(note)
    if encoding == "cp1252":
        scan.notes.append("not UTF-8: read as Windows-1252")
    for table in tables:
        missing = sorted(parts - set(table.columns))
        if missing:
            raise DataError(
                f"{table.path.name}: no column {missing[0]!r}, which {first.path.name} has; "
                "name one file"
            )
        reader = RowReader(found, {**table.class_names, **files.class_names})
        for row in table.rows(parts):
            scan.add(table, row, reader, len(tables) == 1)
    return scan


def _head(table: DataTable) -> Iterator[NumberedRow]:
    """The first rows, as many as have `CHARACTERS_LOOKED_AT` together."""
    characters = 0
    for row in islice(table.rows(table.columns), ROWS_LOOKED_AT):
        values = () if isinstance(row[1], str) else row[1].values()
        characters += sum(len(value) for value in values if isinstance(value, str))
        if characters > CHARACTERS_LOOKED_AT:
            return
        yield row


def _example_set(files: DataFiles, scan: _Scan, seed: int, template: Template | None) -> ExampleSet:
    label = next((found.column for found in scan.found if found.part == "label"), None)
    if LISTS in scan.skipped:
        raise DataError(
            f"{scan.source}: column {label!r} has lists of labels, and one label a row is needed; "
            "choose another column with --label, or --label '' for none"
        )
    labelled = None if label is None else columns.label_kind(scan.labels)
    examples = tuple(_finished(scan, template, are_classes=labelled == "classes"))
    _refuse_broken(scan, len(examples))
    kind, found, examples = _labelled(scan, examples, labelled)
    parts = ((len(one.text), len(one.completion), len(one.pair)) for one in examples)
    cut = sum(LONGEST_TEXT in lengths for lengths in parts)
    if cut:
        scan.notes.append(f"{count(cut, 'example')} cut to {LONGEST_TEXT:,} characters")
    if kind == "messages" and template is None:
        scan.notes.append('messages joined as "role: content", without a chat template')
    drawn_of = Counter(example.label for example in examples)
    names = sorted(scan.labels) if labelled == "classes" else ()
    classes = {name: drawn_of[name] for name in names}
    drawn = sum(n > 0 for n in classes.values())
    if drawn < len(classes):
        scan.notes.append(
            f"{drawn:,} of the classes {agree(drawn, 'is')} drawn; raise --max-examples for more"
        )
    return ExampleSet(
        source=scan.source,
        examples=examples,
        kind=kind,
        found=found,
        classes=classes,
        rows=scan.rows,
        skipped=tuple(scan.skipped.values()),
        sha256=files.sha256(),
        seed=seed,
        split=files.split,
        notes=tuple(scan.notes),
    )


def _finished(scan: _Scan, template: Template | None, *, are_classes: bool) -> Iterator[Example]:
    for example, messages in scan.sample.drawn(are_classes=are_classes):
        if messages and template is not None:
            try:
                text, completion = template([dict(message) for message in messages])
            except ValueError as err:
                scan.skip(f"refused by the chat template ({err})", "among those drawn")
                continue
            example = replace(example, text=text, completion=completion)
        yield example


def _refuse_broken(scan: _Scan, n_examples: int) -> None:
    """A file of which more than a tenth cannot be read is not read at all, and one of few rows."""
    broken = [skip for skip in scan.skipped.values() if skip.reason not in HARMLESS]
    rows = sum(skip.rows for skip in broken)
    if rows > MAX_BROKEN_SHARE * scan.rows:
        reasons = ", ".join(f"{skip.rows:,} {skip.reason} ({skip.first})" for skip in broken)
        of = count(scan.rows, "row", form=",")
        raise DataError(f"{scan.source}: {rows:,} of {of} cannot be used: {reasons}")
    if n_examples < MIN_EXAMPLES:
        reasons = ", ".join(f"{skip.rows:,} {skip.reason}" for skip in scan.skipped.values())
        raise DataError(
            f"{scan.source}: {count(n_examples, 'example')} in "
            f"{count(scan.rows, 'row', form=',')}, equal texts counted "
            f"once{'; skipped: ' * bool(reasons)}{reasons}; at least {MIN_EXAMPLES} are needed"
        )


def _labelled(
    scan: _Scan, examples: tuple[Example, ...], labelled: columns.LabelKind | None
) -> tuple[Kind, tuple[columns.FoundColumn, ...], tuple[Example, ...]]:
    """The kind of the examples; numbers of a regression as numbers; no label that only names."""
    found = {column.part: column for column in scan.found}
    kind: Kind = "texts" if labelled is None or labelled == "names" else labelled
    if labelled == "names":
        column = found.pop("label")
        n, more = len(scan.labels), len(scan.labels) >= columns.MOST_COUNTED
        rows = scan.rows - sum(skip.rows for skip in scan.skipped.values())
        different = count(n, "different value", or_more=more, form=",")
        different += f" in {count(rows, 'row', form=',')}"
        if column.by == "choice":
            raise DataError(
                f"{scan.source}: column {column.column!r} has no classes: {different}; choose "
                "another column with --label, or --label '' for none"
            )
        scan.notes.append(f'column "{column.column}" is no label: {different}')
        examples = tuple(replace(example, label=None) for example in examples)
    elif labelled == "numbers":
        examples = tuple(
            replace(example, label=columns.as_number(str(example.label))) for example in examples
        )
    kind = "completions" if "completion" in found else kind
    kind = "messages" if "messages" in found else kind
    return kind, tuple(found.values()), examples
