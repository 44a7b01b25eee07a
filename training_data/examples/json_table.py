"""Records as JSON: one in each line, or one list of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from ...errors import DataError
from ...text_files.text_stream import LONGEST_LINE, TextStream, open_text
from .table import HALF_PAIR, NumberedRow, Row

ROWS_FOR_COLUMNS = 1000
BLOCK_CHARACTERS = 1 << 20
ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
SURROGATE = re.compile("[\ud800-\udfff]")
TOO_DEEP = "nested too deeply"

Record = tuple[int, Row | str, str]
"""The number of a record, its values or why it has none, and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTable:
    """A file of JSON objects.

    Attributes:
        is_list: Whether the file is one list; otherwise a line is a record.
    """

    path: Path
    columns: tuple[str, ...]
    encoding: str
    is_list: bool
    unit: str
    notes: tuple[str, ...] = ()
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.name

    def rows(self, columns: Collection[str]) -> Iterator[NumberedRow]:
        """The records with these columns; what a record lacks is None.

        Peak: a record of at most `LONGEST_LINE` characters, and a block.
        """
        for number, record, text in _records(self.path, self.encoding, self.is_list):
            if isinstance(record, str):
                yield number, record
                continue
            row = {name: record.get(name) for name in columns}
            if ESCAPED_SURROGATE.search(text) and not SURROGATE.search(text):
                # of an escape, and not for a byte that is no UTF-8, which others stand for
                row = json.loads(SURROGATE.sub(HALF_PAIR, json.dumps(row, ensure_ascii=False)))
            yield number, row


def open_json(path: Path, encoding: str) -> JsonTable:
    """The table in a `.json` or `.jsonl` file; its columns are the keys of the first records.

    Raises:
        DataError: an empty file, one object that is no record, or what `open_text` refuses.
    """
    with open_text(path, encoding) as stream:
        head = stream.characters.read(BLOCK_CHARACTERS).lstrip()
        used = stream.encoding
    if not head:
        raise DataError(f"{path}: the file is empty")
    is_list = head[0] == "["
    if head[0] == "{" and head.splitlines()[0].rstrip()[-1] in "{[,":
        raise DataError(
            f"{path}: one JSON object over many lines, not a list of records; write a list, or "
            "one record in each line"
        )
    names: dict[str, None] = {}
    broken = ""
    for number, record, _ in islice(_records(path, used, is_list), ROWS_FOR_COLUMNS):
        if isinstance(record, str):
            broken = broken or f"{'record' if is_list else 'line'} {number}: {record}"
        else:
            names.update(dict.fromkeys(record))
    if not names:
        raise DataError(f"{path}: no record with a column{'; ' * bool(broken)}{broken}")
    return JsonTable(
        path=path,
        columns=tuple(names),
        encoding=used,
        is_list=is_list,
        unit="record" if is_list else "line",
    )


def _records(path: Path, encoding: str, is_list: bool) -> Iterator[Record]:
    with open_text(path, encoding) as stream:
        yield from _list_records(path, stream.characters) if is_list else _line_records(stream)


def _line_records(stream: TextStream) -> Iterator[Record]:
    for number, line in enumerate(stream.lines(), start=1):
        if line is None:
            yield number, f"more than {LONGEST_LINE:,} characters", ""
        elif not line.strip():
            yield number, "empty", line
        else:
            try:
                yield number, _record(json.loads(line)), line
            except ValueError:
                yield number, "not JSON", line
            except RecursionError:
                yield number, TOO_DEEP, line


def _record(value: object) -> Row | str:
    return value if isinstance(value, dict) else "not an object with columns"


def _list_records(path: Path, characters: TextIOWrapper) -> Iterator[Record]:
    """The elements of one list, decoded one by one as its text comes in."""
    decoder = json.JSONDecoder()
    text = characters.read(BLOCK_CHARACTERS).lstrip()[1:]
    number = start = 0
    while True:
        while start < len(text) and text[start] in " \t\r\n,":
            start += 1
        if text[start : start + 1] == "]":
            _refuse_more(path, number, text[start + 1 :], characters)
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
            yield number, _record(value), text[start:stop]
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


def _refuse_more(path: Path, number: int, text: str, characters: TextIOWrapper) -> None:
    """Raises `DataError` where more than white space stands after a list of `number` records."""
    while not text.strip():
        text = characters.read(BLOCK_CHARACTERS)
        if not text:
            return
    raise DataError(
        f"{path}: there is more after its list of {number:,} records; write one list, or one "
        "record in each line"
    )
