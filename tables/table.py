"""What every format is read as: numbered rows with named columns, as often as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Row = Mapping[str, object]
NumberedRow = tuple[int, Row | str]
"""The number of a row, or of its last line, from 1, and its values or why it has none."""

HALF_PAIR = "\ud800"
"""In a text, what a file calls half of a surrogate pair; a byte that is no UTF-8 is another."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """In place of a value whose type holds neither text nor labels: a moment, bytes, …."""

    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A data file that can be read again and again.

    Attributes:
        columns: The names of its columns, known from its beginning.
        rows: The rows in file order, with these columns alone.
        unit: What a row's number counts.
        class_names: For a column of class numbers, their names.
        notes: What a reader may not expect of the file.
        delimiter: What separates columns of text; "" in other formats.
    """

    path: Path
    columns: tuple[str, ...]
    rows: Callable[[Collection[str]], Iterator[NumberedRow]]
    unit: str = "line"
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    delimiter: str = ""


def distinct_names(names: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of columns, equal ones told apart by numbers, and what to say of that."""
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
