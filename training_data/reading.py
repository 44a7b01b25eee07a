"""A data set from files to a sample of its examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from ..errors import DataError
from ..tables import NumberedRow, Table
from ..tables.data_files import DataFiles, locate_data_files
from ..tables.table import HALF_PAIR
from .columns import USUAL_NAMES, ColumnChoice, FoundColumn, find_columns, passed_over
from .examples import ClassCount, Example, ExampleSet, Kind, Sample, SkippedRows
from .rows import LISTS, LONGEST_TEXT, NOT_TEXT, RowReader, Template, is_cut
from .values import MOST_COUNTED, LabelKind, as_number, label_kind, look_at

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
    columns: ColumnChoice | None = None,
    *,
    max_examples: int = 512,
    seed: int = 0,
    split: str | None = None,
    template: Template | None = None,
    name: str | None = None,
) -> ExampleSet:
    """At most `max_examples` examples of a data set, drawn at random by a hash of their texts.

    Reads `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet`, `.arrow` and text files, text also as
    `.gz`; a folder that `datasets` saved; a downloaded repository with such files. Files are read
    from beginning to end, twice (a digest, the rows). Peak, whatever their size: the drawn
    examples of at most 100,000 characters a part, one row of at most 8 Mi characters (or 256 rows
    of parquet, a batch of Arrow), and blocks of 1 MiB; about 100 MiB with ordinary rows.

    Args:
        columns: The user's choice; other columns are found by their names and values.
        split: Of a folder with several; `train` if none is chosen.
        template: Messages to (prompt, completion); without one, `role: content` lines.
        name: What messages call the data set; by default the name of the file or folder.

    Raises:
        DataError: a file that cannot be read, no column of texts, a chosen column that is not
            there, labels that are lists, fewer than `MIN_EXAMPLES` usable rows that differ.
        ValueError: `max_examples` is below `MIN_EXAMPLES`.
    """
    if max_examples < MIN_EXAMPLES:
        raise ValueError(f"max_examples is {max_examples}; at least {MIN_EXAMPLES} are needed")
    files = locate_data_files(Path(path), split)
    choice = columns or ColumnChoice()
    name = name or files.root.name
    scan = _scan(name, files, choice, Sample(max_examples, seed), "utf-8")
    if scan.undecodable > scan.decoded:
        scan = _scan(name, files, choice, Sample(max_examples, seed), "cp1252")
    return _example_set(files, scan, seed, template)


@dataclass(slots=True)
class _Scan:
    """What one pass over all rows found.

    Attributes:
        decoded: Rows with characters beyond ASCII, all of them decoded.
        undecodable: Rows with bytes that are not of the encoding.
    """

    source: str
    sample: Sample
    found: tuple[FoundColumn, ...]
    notes: list[str]
    rows: int = 0
    decoded: int = 0
    undecodable: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, SkippedRows] = field(default_factory=dict)

    def skip(self, reason: str, where: str) -> None:
        before = self.skipped.get(reason) or SkippedRows(reason, 0, where)
        self.skipped[reason] = replace(before, rows=before.rows + 1)

    def add(self, table: Table, row: NumberedRow, reader: RowReader, is_one: bool) -> None:
        number, values = row
        self.rows += 1
        draft = values if isinstance(values, str) else reader.draft(values)
        if not isinstance(draft, str):
            example, messages = draft
            try:
                key = self.sample.key(example)
            except UnicodeEncodeError as err:
                is_byte = err.object[err.start] != HALF_PAIR
                self.undecodable += is_byte
                draft = "undecodable" if is_byte else "half of a surrogate pair"
            else:
                self.decoded += not example.text.isascii()
                self.sample.offer(key, example, messages)
                self._count(example.label)
                return
        where = f"{table.unit} {number}"
        self.skip(draft, where if is_one else f"{table.path.name}, {where}")

    def _count(self, label: str | float | None) -> None:
        if isinstance(label, str) and (label in self.labels or len(self.labels) < MOST_COUNTED):
            self.labels[label] += 1


def _scan(
    name: str, files: DataFiles, choice: ColumnChoice, sample: Sample, encoding: str
) -> _Scan:
    tables = files.tables(encoding, (*(name.lower() for name in choice.names), *USUAL_NAMES))
    names = tuple(dict.fromkeys(name for table in tables for name in table.columns))
    first = tables[0]
    head = [row for _, row in _head(first)]
    rows = [row for row in head if not isinstance(row, str)]
    if not rows:
        raise DataError(
            f"{first.path.name}: no row with values in it{''.join(f'; {row}' for row in head[:1])}"
        )
    values = look_at(rows, names)
    found = find_columns(name, names, values, choice)
    parts = {column.column for column in found}
    scan = _Scan(name, sample, found, list(first.notes))
    if choice.label is None and (note := passed_over(values, found)):
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
        reader = RowReader.of(found, {**table.class_names, **files.class_names})
        for row in table.rows(parts):
            scan.add(table, row, reader, len(tables) == 1)
    return scan


def _head(table: Table) -> Iterator[NumberedRow]:
    """The first rows, as many as have `CHARACTERS_LOOKED_AT` together."""
    characters = 0
    for row in islice(table.rows(table.columns), ROWS_LOOKED_AT):
        values = () if isinstance(row[1], str) else row[1].values()
        characters += sum(len(value) for value in values if isinstance(value, str))
        if characters > CHARACTERS_LOOKED_AT:
            return
        yield row


def _example_set(files: DataFiles, scan: _Scan, seed: int, template: Template | None) -> ExampleSet:
    _refuse_lists(scan)
    has_label = any(column.part == "label" for column in scan.found)
    labelled = label_kind(scan.labels) if has_label else None
    examples = tuple(_finished(scan, template, are_classes=labelled == "classes"))
    _refuse_broken(scan)
    _refuse_few(scan, examples)
    kind, found, examples = _labelled(scan, examples, labelled)
    cut = sum(map(is_cut, examples))
    if cut:
        scan.notes.append(f"{cut} example{'s' * (cut != 1)} cut to {LONGEST_TEXT:,} characters")
    if kind == "messages" and template is None:
        scan.notes.append('messages joined as "role: content", without a chat template')
    drawn_of = Counter(example.label for example in examples)
    classes = tuple(
        ClassCount(name, scan.labels[name], drawn_of[name])
        for name in sorted(scan.labels)
        if labelled == "classes"
    )
    drawn = sum(count.drawn > 0 for count in classes)
    if drawn < len(classes):
        scan.notes.append(f"{drawn:,} of the classes are drawn; raise --max-examples for more")
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
    """The drawn examples, messages through the chat template."""
    for example, messages in scan.sample.drawn(are_classes=are_classes):
        if messages and template is not None:
            try:
                text, completion = template([dict(message) for message in messages])
            except ValueError as err:
                scan.skip(f"refused by the chat template ({err})", "among those drawn")
                continue
            example = replace(example, text=text, completion=completion)
        yield example


def _refuse_lists(scan: _Scan) -> None:
    if LISTS in scan.skipped:
        column = next(found.column for found in scan.found if found.part == "label")
        raise DataError(
            f"{scan.source}: column {column!r} has lists of labels, and one label a row is needed; "
            "choose another column with --label, or --label '' for none"
        )


def _refuse_broken(scan: _Scan) -> None:
    """A file of which more than a tenth cannot be read is not read at all."""
    broken = [skip for skip in scan.skipped.values() if skip.reason not in HARMLESS]
    rows = sum(skip.rows for skip in broken)
    if rows > MAX_BROKEN_SHARE * scan.rows:
        reasons = ", ".join(f"{skip.rows:,} {skip.reason} ({skip.first})" for skip in broken)
        raise DataError(f"{scan.source}: {rows:,} of {scan.rows:,} rows cannot be used: {reasons}")


def _refuse_few(scan: _Scan, examples: Sequence[Example]) -> None:
    if len(examples) >= MIN_EXAMPLES:
        return
    reasons = ", ".join(f"{skip.rows:,} {skip.reason}" for skip in scan.skipped.values())
    number = f"{len(examples)} example{'s' * (len(examples) != 1)} in {scan.rows:,} rows"
    raise DataError(
        f"{scan.source}: {number}, equal texts counted once{'; skipped: ' * bool(reasons)}"
        f"{reasons}; at least {MIN_EXAMPLES} are needed"
    )


def _labelled(
    scan: _Scan, examples: tuple[Example, ...], labelled: LabelKind | None
) -> tuple[Kind, tuple[FoundColumn, ...], tuple[Example, ...]]:
    """The kind of the examples; numbers of a regression as numbers; no label that only names."""
    found = {column.part: column for column in scan.found}
    kind: Kind = "texts"
    if labelled == "names":
        column = found.pop("label")
        more = " or more" * (len(scan.labels) >= MOST_COUNTED)
        rows = scan.rows - sum(skip.rows for skip in scan.skipped.values())
        different = f"{len(scan.labels):,}{more} different values in {rows:,} rows"
        if column.by == "choice":
            raise DataError(
                f"{scan.source}: column {column.column!r} has no classes: {different}; choose "
                "another column with --label, or --label '' for none"
            )
        scan.notes.append(f'column "{column.column}" is no label: {different}')
        examples = tuple(replace(example, label=None) for example in examples)
    elif labelled == "numbers":
        kind = "numbers"
        examples = tuple(
            replace(example, label=as_number(str(example.label))) for example in examples
        )
    elif labelled == "classes":
        kind = "classes"
    kind = "completions" if "completion" in found else kind
    kind = "messages" if "messages" in found else kind
    return kind, tuple(found.values()), examples
