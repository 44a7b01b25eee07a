"""Records as JSON: one in each line, or one list of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from ..errors import DataError
from .table import HALF_PAIR, NumberedRow, Row, Table
from .text_file import LONGEST_LINE, TextFile

ROWS_FOR_COLUMNS = 1000
BLOCK_CHARACTERS = 1 << 20
ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
SURROGATE = re.compile("[\ud800-\udfff]")
TOO_DEEP = "nested too deeply"


def open_json(file: TextFile) -> Table:
    """The table in a `.json` or `.jsonl` file; its columns are the keys of the first records.

    What a record lacks is None. Peak: a record of at most `LONGEST_LINE` characters, and a block.

    Raises:
        DataError: an empty file, one object that is no record, or what `TextFile.open` refuses.
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

    return Table(path=file.path, columns=tuple(names), rows=rows, unit=unit)


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
                yield number, _record(json.loads(line), line)
            except ValueError:
                yield number, "not JSON"
            except RecursionError:
                yield number, TOO_DEEP


def _record(value: object, text: str) -> Row | str:
    if not isinstance(value, dict):
        return "not an object with columns"
    if ESCAPED_SURROGATE.search(text) and not SURROGATE.search(text):
        # of an escape, and not for a byte that is no UTF-8, which others stand for
        whole, n_halves = SURROGATE.subn(HALF_PAIR, json.dumps(value, ensure_ascii=False))
        return json.loads(whole) if n_halves else value
    return value


def _list_rows(path: Path, characters: TextIOWrapper) -> Iterator[NumberedRow]:
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
            yield number, _record(value, text[start:stop])
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
