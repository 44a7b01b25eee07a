"""Tables in files of text: what separates columns, JSON, or a text in each line or paragraph."""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import re
import stat
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import TextIOWrapper
from itertools import filterfalse, groupby, islice
from pathlib import Path
from typing import cast

from ...errors import DataError, DeltadexError
from ...results import count

Row = Mapping[str, object]
NumberedRow = tuple[int, Row | str]
"""The number of a row, or of its last line, from 1, and its values or why it has none."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """In place of a value whose type holds neither text nor labels: a moment, bytes, …."""

    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """A data file that can be read again and again.

    rows: in file order, with these columns alone; `unit` is what their numbers count. class_names:
    of a column of class numbers. notes: what a reader may not expect. delimiter: "" where text is
    not separated.
    """

    path: Path
    columns: tuple[str, ...]
    rows: Callable[[Collection[str]], Iterator[NumberedRow]]
    unit: str = "line"
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    delimiter: str = ""

    def refuse_repeated(self, names: Iterable[str]) -> None:
        """Raises `DataError` where two columns have one of the names."""
        for name in names:
            if self.columns.count(name) > 1:
                raise DataError(f"{self.path}: two columns {name!r} in its header")


MOST_COLUMNS = 1_000
"""Of a table of texts; what looks for the columns of examples compares them all."""


def distinct_names(path: Path, names: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of columns, equal ones told apart by numbers, and what to say of that; a
    `DataError` of more than `MOST_COLUMNS`."""
    if len(names) > MOST_COLUMNS:
        raise DataError(f"{path}: {len(names):,} columns; at most {MOST_COLUMNS:,} are read")
    distinct: dict[str, None] = {}
    notes = []
    for name in names:
        other, number = name, 0
        while other in distinct or (number and other in names):
            number += 1
            other = f"{name}_{number}"
        distinct[other] = None
        if number and name:
            notes.append(f'several columns are named "{name}": the next is read as "{other}"')
    return tuple(distinct), tuple(notes)


GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""UTF-32 first: its mark in little-endian order begins with that of UTF-16."""

BINARY_MAGICS = {
    b"PAR1": "a parquet file",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive",
    b"SQLite format 3\x00": "an SQLite database",
    b"%PDF": "a PDF",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ\x00": "an xz file",
}
HEAD_BYTES = 1 << 16
BINARY_SHARE = 0.05
"""Text has next to no control characters; a tenth of compressed or random bytes are some."""

CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))
BLOCK_BYTES = 1 << 20
HEAD_CHARACTERS = 1 << 20
"""What decides how a file is read: separators, quotes, a header, paragraphs."""

LONGEST_LINE = 1 << 23
"""Characters: 32 MiB in memory at most."""

MOST_TIMES_ITS_SIZE, LEAST_LIMIT = 200, 1 << 28
"""Natural text is packed to a tenth. What is larger unpacked than both is no data set."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of text, which may be compressed by gzip, whatever its name.

    The encoding holds where no byte order mark says another; a byte that does not fit becomes a
    surrogate. The content is there where it was read at once, as from a pipe; control characters
    are not refused then.
    """

    path: Path
    encoding: str = "utf-8"
    content: bytes | None = None

    @classmethod
    def read(cls, path: Path) -> TextFile:
        """A file, or a pipe, that is read at once; DataError where it cannot be."""
        try:
            return cls(path, content=path.read_bytes())
        except OSError as err:
            raise DataError(f"{path}: {err.strerror}") from err

    @property
    def digest(self) -> str:
        """16 characters that tell contents apart."""
        return hashlib.sha256(self.content or b"").hexdigest()[:16]

    @contextmanager
    def open(self) -> Iterator[io.TextIOWrapper]:
        """Its characters, with their ends of lines. Peak: `BLOCK_BYTES` of the file and the same
        decompressed.

        Raises DataError: no such file, a binary file, a damaged or truncated gzip file, broken
        UTF-16.
        """
        with ExitStack() as files, translated_errors(self.path):
            raw = io.FileIO(self.path) if self.content is None else io.BytesIO(self.content)
            unread = cast(io.RawIOBase, raw)
            source = files.enter_context(io.BufferedReader(unread, BLOCK_BYTES))
            data = source
            if source.peek(2)[:2] == GZIP_MAGIC:
                unpacked = files.enter_context(_LimitedGzip(self.path, source))
                data = io.BufferedReader(cast(io.RawIOBase, unpacked), BLOCK_BYTES)
            head = data.peek(HEAD_BYTES)[:HEAD_BYTES]
            mark = next((name for mark, name in BYTE_ORDER_MARKS if head.startswith(mark)), None)
            if mark is None and self.content is None:
                _refuse_binary(self.path, head)
            errors = "strict" if mark in ("utf-16", "utf-32") else "surrogateescape"
            yield files.enter_context(
                io.TextIOWrapper(data, encoding=mark or self.encoding, errors=errors, newline="")
            )

    def head(self) -> str:
        """The first `HEAD_CHARACTERS`; DataError where the file is empty, or what `open`
        refuses."""
        with self.open() as characters:
            head = characters.read(HEAD_CHARACTERS)
        if not head.strip():
            raise DataError(f"{self.path}: the file is empty")
        return head

    def lines(self) -> Iterator[str | None]:
        """The lines with their ends; None for a line of more than `LONGEST_LINE` characters."""
        with self.open() as characters:
            read = characters.readline
            while line := read(LONGEST_LINE):
                if len(line) < LONGEST_LINE or line[-1] in "\r\n":
                    yield line
                    continue
                while (rest := read(LONGEST_LINE)) and rest[-1] not in "\r\n":
                    pass
                yield None


@contextmanager
def errors_as(kind: type[DeltadexError]) -> Iterator[None]:
    """A `DataError` of the block as an error of another kind, in the same words."""
    try:
        yield
    except DataError as err:
        raise kind(str(err)) from err


def refuse_pipe(path: Path) -> None:
    """Raises `DataError` for what is no file on a disk, before an open waits for its other end."""
    with translated_errors(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a folder" if stat.S_ISDIR(mode) else "a device"
        raise DataError(f"{path}: {kind}, not a file; write the data to a file and name that")


def unpacked_limit(path: Path) -> int:
    """The most bytes that a file may have when it is unpacked."""
    return max(LEAST_LIMIT, MOST_TIMES_ITS_SIZE * path.stat().st_size)


def too_large(path: Path) -> DataError:
    return DataError(
        f"{path}: {path.stat().st_size:,} bytes that unpack to more than "
        f"{unpacked_limit(path) >> 20:,} MiB; if these are data, write them unpacked as .csv or "
        ".jsonl"
    )


class _LimitedGzip(gzip.GzipFile):
    """A gzip file that ends in a `DataError` where it unpacks to more than `unpacked_limit`."""

    def __init__(self, path: Path, source: io.BufferedIOBase) -> None:
        super().__init__(fileobj=source, mode="rb")
        self._path, self._left = path, unpacked_limit(path)

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._path)
        return data


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """What can go wrong while a data file is read, as a `DataError` with its remedy."""
    try:
        yield
    except FileNotFoundError as err:
        raise DataError(f"{path}: no such file") from err
    except EOFError as err:
        raise DataError(
            f"{path}: the gzip file ends before its data does; copy or download it again"
        ) from err
    except (gzip.BadGzipFile, zlib.error) as err:
        raise DataError(f"{path}: a damaged gzip file ({err}); copy or download it again") from err
    except OSError as err:
        raise DataError(f"{path}: {err.strerror or err}") from err
    except UnicodeDecodeError as err:
        raise DataError(
            f"{path}: its byte order mark says {err.encoding.upper()}, which its bytes are not "
            f"({err.reason}); save it as UTF-8"
        ) from err


def _refuse_binary(path: Path, head: bytes) -> None:
    kind = next((kind for magic, kind in BINARY_MAGICS.items() if head.startswith(magic)), None)
    if kind is not None:
        raise DataError(f"{path}: {kind}, not a file of text; give it the ending of its format")
    controls = len(head) - len(head.translate(None, CONTROL_BYTES))
    if controls > BINARY_SHARE * len(head):
        raise DataError(
            f"{path}: a binary file, or UTF-16 without a byte order mark; save it as UTF-8 text"
        )


DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
"""By character, what a message calls it; tried in this order."""

LONGEST_FIELD = 1 << 30
LONGEST_NAME, MOST_WORDS = 60, 5
"""A header's cell is shorter; a longer one is a text, unless the header is known by another."""

NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
ROWS_BELOW, ROWS_OF_A_CLASS = 1000, 5
"""Rows below the first line that are looked at, and on average of each value of a class."""


def open_csv(file: TextFile, wanted: Collection[str]) -> DataTable:
    """The table in a file, whose delimiter gives a header with `wanted` columns, if any does.

    A file without a header has numbers as names, from 1. A row with more or fewer fields than the
    header is broken. DataError for what `head` refuses. Peak: a row of `LONGEST_LINE` characters.
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
    names, repeated = distinct_names(file.path, names)
    notes.extend(repeated)
    if not has_quotes:
        notes.append("quotes are plain characters in it")
    rows = partial(_rows, file, names, delimiter, has_quotes, has_header=has_header)
    return DataTable(path=file.path, columns=names, rows=rows, notes=tuple(notes))


def open_named_csv(
    file: TextFile, wanted: Sequence[str], *, is_ragged: bool = False, is_quoted: bool = True
) -> DataTable:
    """The table in a file whose first line is a header with one of the `wanted` names.

    Names are in lower case. Where a quote is never closed, quotes are plain characters. Of a ragged
    file, a row that lacks fields has None for them, and further ones are left out. Raises
    DataError: no such name (with those that are there, unless the file may not be quoted), a wanted
    one twice, or what `TextFile.open` refuses.
    """
    first = next((line for line in file.lines() if line and line.strip()), "")
    if not first:
        raise DataError(f"{file.path}: the file is empty")
    delimiter, said = _choose_delimiter(file.path, first, wanted)
    names = tuple(column_names(first, delimiter))
    if not set(wanted) & set(names):
        _refuse_binary(file.path, (file.content or b"")[:HEAD_BYTES])
        only = f", only {', '.join(filter(None, names)) or 'blanks'}{'; ' * bool(said)}{said}"
        raise DataError(f"{file.path}: no column {wanted[0]!r} in its header{only * is_quoted}")
    has_quotes = _are_quotes_whole(file, delimiter)
    rows = partial(_rows, file, names, delimiter, has_quotes, is_ragged=is_ragged)
    notes = (said,) if said else ()
    table = DataTable(path=file.path, columns=names, rows=rows, notes=notes, delimiter=delimiter)
    table.refuse_repeated(wanted)
    return table


def column_names(header: str, delimiter: str) -> list[str]:
    """The names in a header, in lower case; all of it is one name where its quotes are broken."""
    try:
        fields = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        fields = [header]
    return [name.strip().lower() for name in fields]


def _choose_delimiter(path: Path, header: str, columns: Collection[str]) -> tuple[str, str]:
    """The character under which a header has one of these columns, the ending's first, or else
    makes most columns; and what to say of it."""
    own = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    tried = dict.fromkeys((own, *DELIMITERS))
    names = {delimiter: column_names(header, delimiter) for delimiter in tried}
    most = max(tried, key=lambda delimiter: len(names[delimiter]))
    found = next((d for d in tried if not set(columns).isdisjoint(names[d])), most)
    return found, f"its columns are separated by {DELIMITERS[found]}" * (found != own)


def _rows(
    file: TextFile,
    names: Sequence[str],
    delimiter: str,
    has_quotes: bool,
    columns: Collection[str],
    *,
    has_header: bool = True,
    is_ragged: bool = False,
) -> Iterator[NumberedRow]:
    places = [(name, place) for place, name in enumerate(names) if name in columns]
    width, number = len(names), 0
    lines: list[str] = []  # of the row that is being read

    def read() -> Iterator[str]:
        nonlocal number
        characters = 0
        for number, line in enumerate(file.lines(), start=1):
            characters = characters * bool(lines) + len(line or "")
            if line is None or characters > LONGEST_LINE:
                raise DataError(
                    f"{file.path}, line {number}: a row of more than {LONGEST_LINE:,} "
                    "characters; is there a quote before it that is never closed?"
                )
            lines.append(line)
            yield line

    for fields in _reader(read(), delimiter, has_quotes):
        if has_header:
            has_header = _is_blank(fields)
        elif len(lines) > 1 and sum(line.count('"') for line in lines) % 2:  # only the last row can
            yield number, "a quote that is never closed"
        elif not any(fields):
            yield number, "empty"
        elif len(fields) != width and not is_ragged:
            kind = "more" if len(fields) > width else "fewer"
            yield number, f"{kind} fields than the header"
        else:
            cells = [*fields, *[None] * (width - len(fields))]
            yield number, {name: cells[place] for name, place in places}
        lines.clear()


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
    """Whether the lines are a table without quoting, and none with it: taken as plain characters,
    quotes leave every line as many fields, and a field begins with a quote that it does not end
    with. `is_part`: the last row may be cut."""
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
    """Whether the first line names columns: where a cell is a wanted name, or all are short, none
    is a number, and none stands twice; otherwise where a column has few values below, none the
    cell's."""
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


ROWS_FOR_COLUMNS = 1000
BLOCK_CHARACTERS = 1 << 20
TOO_DEEP = "nested too deeply"


def open_json(file: TextFile) -> DataTable:
    """The table in a `.json` or `.jsonl` file; its columns are the keys of the first records, and
    what a record lacks is None. Peak: a record of at most `LONGEST_LINE` characters, and a block.

    Raises DataError: an empty file, one object that is no record, or what `TextFile.open` refuses.
    """
    head = file.head().lstrip()
    is_list = head[0] == "["
    if head[0] == "{" and head.splitlines()[0].rstrip()[-1] in "{[,":
        raise DataError(
            f"{file.path}: one JSON object over many lines, not a list of records; write a list, "
            "or one record in each line"
        )
    unit = "record" if is_list else "line"
    names: dict[str, None] = {}
    broken = ""
    for number, record in islice(json_rows(file, is_list=is_list), ROWS_FOR_COLUMNS):
        if isinstance(record, str):
            broken = broken or f"; {unit} {number}: {record}"
        else:
            names.update(dict.fromkeys(record))
    if not names:
        raise DataError(f"{file.path}: no record with a column{broken}")

    def rows(columns: Collection[str]) -> Iterator[NumberedRow]:
        for number, record in json_rows(file, is_list=is_list):
            if not isinstance(record, str):
                record = {name: record.get(name) for name in columns}
            yield number, record

    return DataTable(path=file.path, columns=tuple(names), rows=rows, unit=unit)


def json_rows(file: TextFile, *, is_list: bool = False) -> Iterator[NumberedRow]:
    """The records of a file with all their keys, in each line or in one list."""
    if is_list:
        with file.open() as characters:
            yield from _list_rows(file.path, characters)
        return
    for number, line in enumerate(file.lines(), start=1):
        if line is None:
            yield number, f"more than {LONGEST_LINE:,} characters"
        elif not line.strip():
            yield number, "empty"
        else:
            try:
                yield number, _record(json.loads(line))
            except ValueError:
                yield number, "not JSON"
            except RecursionError:
                yield number, TOO_DEEP


def _record(value: object) -> Row | str:
    return value if isinstance(value, dict) else "not an object with columns"


def _list_rows(path: Path, characters: TextIOWrapper) -> Iterator[NumberedRow]:
    """The elements of one list, decoded one by one as its text comes in."""
    decoder = json.JSONDecoder()
    text = characters.read(BLOCK_CHARACTERS).lstrip()[1:]
    number = start = 0
    while True:
        while start < len(text) and text[start] in " \t\r\n,":
            start += 1
        if text[start : start + 1] == "]":
            if (text[start + 1 :] + characters.read(BLOCK_CHARACTERS)).strip():
                raise DataError(
                    f"{path}: there is more after its list of {count(number, 'record', form=',')}; "
                    "write one list, or one record in each line"
                )
            return
        try:
            value, stop = decoder.raw_decode(text, start)
            whole = stop < len(text)
        except ValueError:
            whole = False
        except RecursionError as err:
            raise DataError(f"{path}: record {number + 1} is {TOO_DEEP}") from err
        if whole:
            number += 1
            yield number, _record(value)
            start = stop
            continue
        text, start = text[start:], 0
        if len(text) > LONGEST_LINE:
            raise DataError(
                f"{path}: record {number + 1} is not JSON, or has more than {LONGEST_LINE:,} "
                "characters"
            )
        more = characters.read(max(BLOCK_CHARACTERS, len(text)))
        if not more:
            raise DataError(
                f"{path}: the list ends in record {number + 1}, or that record is not JSON"
            )
        text += more


COLUMN = "text"
MIN_LINES_OF_PARAGRAPHS = 2.0
"""Lines in a mean block between blank lines, from which on a block is one text."""

PARAGRAPHS = 3


def open_lines(file: TextFile) -> DataTable:
    """The table in a file of plain text: a text in each line, or in each paragraph, its lines
    joined by spaces, where at least `PARAGRAPHS` blocks stand between blank lines and have
    `MIN_LINES_OF_PARAGRAPHS` lines on average, as in a book. DataError for what `TextFile.open`
    refuses."""
    head = file.head().replace("\r\n", "\n").replace("\r", "\n").strip()
    lines = [block.count("\n") + 1 for block in re.split(r"\n\s*\n", head)]
    has_paragraphs = len(lines) >= PARAGRAPHS and sum(lines) / len(lines) >= MIN_LINES_OF_PARAGRAPHS

    def rows(columns: Collection[str]) -> Iterator[NumberedRow]:
        numbered = enumerate(file.lines(), start=1)
        if not has_paragraphs:
            yield from (_joined([line]) for line in numbered)
            return
        for is_text, block in groupby(
            numbered, lambda line: line[1] is None or not line[1].isspace()
        ):
            if is_text:
                yield _joined(block)

    unit = "paragraph" if has_paragraphs else "line"
    return DataTable(
        path=file.path, columns=(COLUMN,), rows=rows, notes=(f"a text in each {unit}",)
    )


def _joined(lines: Iterable[tuple[int, str | None]]) -> NumberedRow:
    parts: list[str] = []
    characters = last = 0
    for number, line in lines:
        last = number
        characters += LONGEST_LINE + 1 if line is None else len(line)
        if characters <= LONGEST_LINE and line is not None:
            parts.append(line.strip())
    if characters > LONGEST_LINE:
        return last, f"more than {LONGEST_LINE:,} characters"
    return last, {COLUMN: " ".join(parts)}
