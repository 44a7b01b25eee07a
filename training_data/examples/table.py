"""What every format is read as: numbered rows with named columns, as often as they are needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Row = Mapping[str, object]
NumberedRow = tuple[int, Row | str]
"""The number of a row, or of its last line, from 1, and its values or why it has none."""


HALF_PAIR = "\ud800"
"""In a text, what a file calls half of a surrogate pair; a byte that is no UTF-8 is another."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """In place of a value whose type holds neither text nor labels: a moment, bytes, …."""

    type: str


def distinct_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of columns, equal ones told apart by numbers, and what to say of that."""
    distinct: dict[str, None] = {}
    notes = []
    taken = set(names)
    for name in names:
        other, number = name, 0
        while other in distinct or (number and other in taken):
            number += 1
            other = f"{name}_{number}"
        distinct[other] = None
        if number and name:
            notes.append(f'several columns are named "{name}": the next is read as "{other}"')
    return tuple(distinct), tuple(notes)


@runtime_checkable
class Table(Protocol):
    """A data file that can be read again and again.

    Attributes:
        columns: The names of its columns, known from its beginning.
        unit: What a row's number counts.
        class_names: For a column of class numbers, their names.
        notes: What a reader may not expect of the file.
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def unit(self) -> str: ...

    @property
    def class_names(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def rows(self, columns: Collection[str]) -> Iterator[NumberedRow]:
        """The rows in file order, with these columns alone."""
        ...
