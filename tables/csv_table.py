"""Columns separated by a character: `.csv` and `.tsv`, and what calls itself so."""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import filterfalse, islice
from pathlib import Path

from ..errors import DataError
from .table import NumberedRow, Table, distinct_names
from .text_file import HEAD_CHARACTERS, LONGEST_LINE, TextFile

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
"""By character, what a message calls it; tried in this order."""

LONGEST_FIELD = 1 << 30
LONGEST_NAME, MOST_WORDS = 60, 5
"""A header's cell is shorter; a longer one is a text, unless the header is known by another."""

NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
ROWS_BELOW, ROWS_OF_A_CLASS = 1000, 5
"""Rows below the first line that are looked at, and on average of each value of a class."""


def open_csv(file: TextFile, wanted: Collection[str]) -> Table:
    """The table in a file, whose delimiter gives a header with `wanted` columns, if any does.

    A file without a header has numbers as names, from 1. A row with more or fewer fields than the
    header is broken. Peak: a row of at most `LONGEST_LINE` characters.

    Raises:
        DataError: an empty file, or what `TextFile.open` refuses.
    """
    head = file.head()
    lines = head.splitlines()
    is_part = len(head) == HEAD_CHARACTERS
    if is_part and len(lines) > 1:
        lines.pop()
    first = next(line for line in lines if line.strip())
    delimiter, said = _choose_delimiter(file.path, first, wanted)
    has_quotes = not _are_quotes_plain(lines, delimiter, is_part)
    filled = filterfalse(_is_blank, _reader(lines, delimiter, has_quotes))
    names = tuple(field.strip() for field in next(filled))
    has_header = _is_header(names, filled, wanted)
    notes = [said] if said else []
    if not has_header:
        notes.append("no header: columns are named by their numbers")
        names = tuple(str(number) for number in range(1, len(names) + 1))
    names, repeated = distinct_names(names)
    notes.extend(repeated)
    if not has_quotes:
        notes.append("quotes are plain characters in it")
    rows = _Rows(file, names, delimiter, has_quotes, has_header=has_header)
    return Table(path=file.path, columns=names, rows=rows, notes=tuple(notes))


def open_named_csv(
    file: TextFile, wanted: Sequence[str], *, is_ragged: bool = False, is_quoted: bool = True
) -> Table:
    """The table in a file whose first line is a header with one of the `wanted` names.

    The header decides what separates columns; names are in lower case, and of two columns of one
    name the last counts. Where a quote is never closed, quotes are plain characters.

    Args:
        is_ragged: A row that lacks fields has None for them, and further ones are left out.
        is_quoted: Whether a refusal may name the columns that are there.

    Raises:
        DataError: no such name in the header, or what `TextFile.open` refuses.
    """
    first = next((line for line in file.lines() if line and line.strip()), "")
    delimiter, said = _choose_delimiter(file.path, first, wanted)
    names = tuple(column_names(first, delimiter))
    if not set(wanted) & set(names):
        only = f", only {', '.join(filter(None, names)) or 'nothing'}{'; ' * bool(said)}{said}"
        raise DataError(f"{file.path}: no column {wanted[0]!r} in its header{only * is_quoted}")
    has_quotes = _are_quotes_whole(file, delimiter)
    rows = _Rows(file, names, delimiter, has_quotes, is_ragged=is_ragged)
    notes = (said,) if said else ()
    return Table(path=file.path, columns=names, rows=rows, notes=notes, delimiter=delimiter)


def column_names(header: str, delimiter: str) -> list[str]:
    """The names in a header, in lower case; all of it is one name where its quotes are broken."""
    try:
        fields = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        fields = [header]
    return [name.strip().lower() for name in fields]


def _choose_delimiter(path: Path, header: str, columns: Collection[str]) -> tuple[str, str]:
    """The character under which a header has one of these columns, and what to say of it.

    The one that the file's ending stands for is tried first; where the columns are under none, the
    answer is the one that makes most columns of the header, the ending's among equals.
    """
    own = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    tried = dict.fromkeys((own, *DELIMITERS))
    names = {delimiter: column_names(header, delimiter) for delimiter in tried}
    most = max(tried, key=lambda delimiter: len(names[delimiter]))
    found = next((d for d in tried if not set(columns).isdisjoint(names[d])), most)
    return found, f"its columns are separated by {DELIMITERS[found]}" * (found != own)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Reads the rows of a file whose columns, delimiter and quotes are known.

    Attributes:
        has_quotes: Otherwise a quote is a character like any other.
    """

    file: TextFile
    names: Sequence[str]
    delimiter: str
    has_quotes: bool
    has_header: bool = True
    is_ragged: bool = False

    def __call__(self, columns: Collection[str]) -> Iterator[NumberedRow]:
        places = [(name, place) for place, name in enumerate(self.names) if name in columns]
        width, is_header = len(self.names), self.has_header
        record = _Record(self.file)
        for fields in _reader(record, self.delimiter, self.has_quotes):
            if is_header:
                is_header = _is_blank(fields)
            elif record.ends_in_quotes:
                yield record.number, "a quote that is never closed"
            elif not any(fields):
                yield record.number, "empty"
            elif len(fields) != width and not self.is_ragged:
                kind = "more" if len(fields) > width else "fewer"
                yield record.number, f"{kind} fields than the header"
            else:
                cells = [*fields, *[None] * (width - len(fields))]
                yield record.number, {name: cells[place] for name, place in places}
            record.lines.clear()


class _Record:
    """The lines of a file, and those of the row that is being read."""

    def __init__(self, file: TextFile) -> None:
        self.lines: list[str] = []
        self.number = 0
        self._file = file

    def __iter__(self) -> Iterator[str]:
        characters = 0
        for line in self._file.lines():
            self.number += 1
            characters = characters * bool(self.lines) + len(line or "")
            if line is None or characters > LONGEST_LINE:
                raise DataError(
                    f"{self._file.path}, line {self.number}: a row of more than {LONGEST_LINE:,} "
                    "characters; is there a quote before it that is never closed?"
                )
            self.lines.append(line)
            yield line

    @property
    def ends_in_quotes(self) -> bool:
        """Whether the row has several lines and an odd number of quotes: only the last can."""
        return len(self.lines) > 1 and bool(sum(line.count('"') for line in self.lines) % 2)


def _is_blank(fields: Sequence[str]) -> bool:
    return not "".join(fields).strip()


def _reader(lines: Iterable[str], delimiter: str, has_quotes: bool) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_FIELD)
    if has_quotes:
        return csv.reader(lines, delimiter=delimiter)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def _are_quotes_whole(file: TextFile, delimiter: str) -> bool:
    csv.field_size_limit(LONGEST_FIELD)
    lines = (line or "" for line in file.lines())
    try:
        deque(csv.reader(lines, delimiter=delimiter, strict=True), maxlen=0)
    except csv.Error:
        return False
    return True


def _are_quotes_plain(lines: Sequence[str], delimiter: str, is_part: bool) -> bool:
    """Whether the lines are a table without quoting, and none with it.

    Taken as plain characters, quotes leave every line with the same number of fields, and a field
    begins with a quote that it does not end with. `is_part`: the last row may be cut.
    """
    rows = [line.split(delimiter) for line in lines if line.strip()]
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return False
    if all(field[:1] != '"' or _is_quoted(field) for row in rows for field in row):
        return False
    reader = csv.reader([f"{line}\n" for line in lines], delimiter=delimiter, strict=True)
    try:
        return len({len(row) for row in reader if row}) > 1
    except csv.Error:
        return not is_part or reader.line_num < len(lines)


def _is_quoted(field: str) -> bool:
    inner = field.strip()[1:-1].replace('""', "")
    return len(field) > 1 and field.rstrip()[-1] == '"' and '"' not in inner


def _is_header(
    names: Sequence[str], rows: Iterable[Sequence[str]], wanted: Collection[str]
) -> bool:
    """Whether the first line names columns.

    It does where a cell is a wanted name, or where all are short, none is a number, and none stands
    twice. Otherwise it does where a column has few values below, none of them the cell's.
    """
    named = [name for name in names if name]
    if any(name.lower() in wanted and not NUMBER.fullmatch(name) for name in named):
        return True
    if not named or any(map(NUMBER.fullmatch, named)):
        return False
    is_short = all(len(name) <= LONGEST_NAME and len(name.split()) <= MOST_WORDS for name in named)
    if is_short and len(set(named)) == len(named):
        return True
    values = [Counter[str]() for _ in names]
    for fields in islice(rows, ROWS_BELOW):
        for column, value in zip(values, fields, strict=False):
            column[value.strip()] += 1
    classes = [
        name not in column
        for name, column in zip(names, values, strict=True)
        if name and 0 < len(column) <= column.total() // ROWS_OF_A_CLASS
    ]
    return bool(classes) and all(classes)
