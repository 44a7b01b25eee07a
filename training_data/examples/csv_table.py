"""Columns separated by a character: `.csv` and `.tsv`, and what calls itself so."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ...errors import DataError
from ...text_files.csv_columns import DELIMITERS, LONGEST_FIELD, choose_delimiter
from ...text_files.text_stream import LONGEST_LINE, TextStream, open_text
from .table import NumberedRow, distinct_names

HEAD_CHARACTERS = 1 << 20
"""What decides the delimiter, the header and the meaning of quotes."""

LONGEST_NAME, MOST_WORDS = 60, 5
"""A header's cell is shorter; a longer one is a text, unless the header is known by another."""

NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
ROWS_BELOW, ROWS_OF_A_CLASS = 1000, 5
"""Rows below the first line that are looked at, and on average of each value of a class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """A file whose header, delimiter and quotes are known.

    Attributes:
        has_header: Otherwise the columns are named by their numbers, from 1.
        has_quotes: Otherwise a quote is a character like any other.
    """

    path: Path
    columns: tuple[str, ...]
    delimiter: str
    encoding: str
    has_header: bool
    has_quotes: bool
    notes: tuple[str, ...]
    unit: str = "line"
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.name

    def rows(self, columns: Collection[str]) -> Iterator[NumberedRow]:
        """The rows with these columns; a row with more or fewer fields than the header is broken.

        Peak: a row of at most `LONGEST_LINE` characters.
        """
        places = [(name, self.columns.index(name)) for name in columns]
        width = len(self.columns)
        with open_text(self.path, self.encoding) as stream:
            record = _Record(self.path, stream)
            reader = _reader(record, self.delimiter, self.has_quotes)
            is_header = self.has_header
            for fields in reader:
                if is_header:
                    is_header = not fields
                    record.lines.clear()
                    continue
                if record.ends_in_quotes(fields):
                    reason = "a quote that is never closed"
                elif not any(fields):
                    reason = "empty"
                elif len(fields) != width:
                    reason = "more fields than the header"
                    if len(fields) < width:
                        reason = "fewer fields than the header"
                else:
                    reason = ""
                row = reason or {name: fields[place] for name, place in places}
                yield record.number, row
                record.lines.clear()


def open_csv(path: Path, encoding: str, wanted: Collection[str]) -> CsvTable:
    """The table in a file, whose delimiter gives a header with `wanted` columns, if any does.

    Raises:
        DataError: an empty file, or what `open_text` refuses.
    """
    with open_text(path, encoding) as stream:
        head = stream.characters.read(HEAD_CHARACTERS)
        used = stream.encoding
    lines = head.splitlines()
    is_part = len(head) == HEAD_CHARACTERS
    if is_part and len(lines) > 1:
        lines.pop()
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise DataError(f"{path}: the file is empty")
    lower = path.name.lower().removesuffix(".gz")
    own = "\t" if lower.endswith(".tsv") else ","
    delimiter = choose_delimiter(first, wanted, own)
    has_quotes = not _are_quotes_plain(lines, delimiter, is_part)
    rows = filter(None, _reader(lines, delimiter, has_quotes))
    names = tuple(field.strip() for field in next(rows))
    has_header = _is_header(names, rows, wanted)
    notes = []
    if delimiter != own:
        notes.append(f"its columns are separated by {DELIMITERS[delimiter]}")
    if not has_header:
        notes.append("no header: columns are named by their numbers")
        names = tuple(str(number) for number in range(1, len(names) + 1))
    names, repeated = distinct_names(names)
    notes.extend(repeated)
    if not has_quotes:
        notes.append("quotes are plain characters in it")
    return CsvTable(
        path=path,
        columns=names,
        delimiter=delimiter,
        encoding=used,
        has_header=has_header,
        has_quotes=has_quotes,
        notes=tuple(notes),
    )


class _Record:
    """The lines of a file, and those of the row that is being read."""

    def __init__(self, path: Path, stream: TextStream) -> None:
        self.lines: list[str] = []
        self.number = 0
        self._path = path
        self._lines = stream.lines()

    def __iter__(self) -> Iterator[str]:
        characters = 0
        for line in self._lines:
            self.number += 1
            characters = characters * bool(self.lines) + len(line or "")
            if line is None or characters > LONGEST_LINE:
                raise DataError(
                    f"{self._path}, line {self.number}: a row of more than {LONGEST_LINE:,} "
                    "characters; is there a quote before it that is never closed?"
                )
            self.lines.append(line)
            yield line

    def ends_in_quotes(self, fields: Sequence[str]) -> bool:
        """Whether the row has several lines and an odd number of quotes: only the last can."""
        return len(self.lines) > 1 and bool(sum(line.count('"') for line in self.lines) % 2)


def _reader(lines: Iterable[str], delimiter: str, has_quotes: bool) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_FIELD)
    if has_quotes:
        return csv.reader(lines, delimiter=delimiter)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


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
