"""A file of numbers by model, or by group of texts, in columns that a header names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import RequestError, offered
from ...tables import Row, Table, TextFile, errors_as, open_named_csv
from ..texts import GROUP_COLUMNS

Over = Literal["models", "groups"]

NAME_COLUMNS: Mapping[Over, tuple[str, ...]] = {
    "models": ("model", "id"),
    "groups": (*GROUP_COLUMNS, "script"),
}

MISSING = ("", "na", "n/a", "nan", "null", "none", "-")
"""Cells that say that there is no number, in lower case."""

COMMA = re.compile(r"[+-]?\d*,\d+")
POINT = re.compile(r"[+-]?\d*\.\d+")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """Numbers by column and name.

    Attributes:
        names: Of models or groups, in file order.
        columns: By column, the numbers of the names that have one.
        broken: Rows and cells that could not be used.
    """

    names: tuple[str, ...]
    columns: Mapping[str, Mapping[str, float]]
    broken: tuple[str, ...]


def read_columns(path: Path, wanted: Sequence[str], over: Over) -> ColumnFile:
    """The wanted columns of a file, or every column of numbers where none is named.

    The header names a column `model`, or `group` (also `language`, `lang`), and the numbers'.
    Columns are separated by commas, semicolons, tabs or pipes; the header decides. Without commas
    between columns a number may have a decimal comma. Cells such as NA are empty.

    Raises:
        RequestError: no such file or column, or no number in it.
    """
    keys = NAME_COLUMNS[over]
    with errors_as(RequestError):
        table = open_named_csv(TextFile.read(path), keys)
        key = next(name for name in keys if name in table.columns)
        named = [name.strip().lower() for name in wanted]
        others = [name for name in table.columns if name and name != key]
        missing = [name for name in named if name not in others]
        if missing:
            raise RequestError(
                f"{path}: no column {missing[0]!r}{offered(missing[0], others, 'columns')}"
            )
        twice = next((name for name in others if others.count(name) > 1), None)
        if twice is not None:
            raise RequestError(f"{path}: two columns {twice!r} in its header")
        rows, broken = _rows_by_name(table, key)
    columns: dict[str, dict[str, float]] = {}
    filled = {
        column: {
            n: cell
            for n, row in rows.items()
            if (cell := str(row[column]).strip()).lower() not in MISSING
        }
        for column in named or others
    }
    broken += _decimal_marks(path, filled, table.delimiter)
    for column, cells in filled.items():
        numbers = {name: _number(cell, table.delimiter) for name, cell in cells.items()}
        unusable = [name for name, value in numbers.items() if value is None]
        if unusable and not named:
            if len(unusable) < len(numbers):  # else a column of words
                first = unusable[0]
                broken.append(
                    f"{path.name}: {column} is left out: {cells[first]!r} of {first} is no number"
                )
            continue
        broken += [f"{path.name}: {column} of {n} is {cells[n]!r}, no number" for n in unusable]
        columns[column] = {name: value for name, value in numbers.items() if value is not None}
    columns = {column: numbers for column, numbers in columns.items() if numbers or named}
    if not any(columns.values()):
        raise RequestError(f"{path}: no number in {', '.join(named or others) or 'any column'}")
    return ColumnFile(names=tuple(rows), columns=columns, broken=tuple(broken))


def _rows_by_name(table: Table, key: str) -> tuple[dict[str, Row], list[str]]:
    """The rows by the name in a column, and what is wrong with those that cannot be used."""
    rows: dict[str, Row] = {}
    broken = []
    for number, (_, row) in enumerate(table.rows(table.columns), start=1):
        name = "" if isinstance(row, str) else str(row[key]).strip()
        if isinstance(row, str) and row != "empty":
            wrong = "not as many fields as the header"
        elif isinstance(row, str) or not name:
            wrong = f"no {key}"
        elif name in rows:
            wrong = f"{key} {name!r} is there twice"
        else:
            rows[name] = row
            continue
        broken.append(f"{table.path.name}:{number}: {wrong}")
    return rows, broken


def _decimal_marks(
    path: Path, filled: Mapping[str, Mapping[str, str]], delimiter: str
) -> list[str]:
    """A remark on commas that may separate thousands.

    Raises:
        RequestError: both commas and points, so that one of them separates thousands.
    """
    if delimiter == ",":
        return []
    cells = [
        (f"{cell} ({column} of {name})", cell)
        for column, own in filled.items()
        for name, cell in own.items()
    ]
    commas = [(where, cell) for where, cell in cells if COMMA.fullmatch(cell)]
    point = next((where for where, cell in cells if POINT.fullmatch(cell)), None)
    if commas and point:
        raise RequestError(
            f"{path}: numbers with a comma, {commas[0][0]}, and with a point, {point}: write one "
            "decimal mark, and none between thousands"
        )
    if commas and all(THOUSANDS.fullmatch(cell) for _, cell in commas):
        where, cell = commas[0]
        return [f"{path.name}: {where} is read as {cell.replace(',', '.')}: a comma is decimal"]
    return []


def _number(cell: str, delimiter: str) -> float | None:
    try:
        value = float(cell.replace(",", ".") if delimiter != "," else cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
