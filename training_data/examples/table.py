"""What every format is read as: numbered rows with named columns, as often as they are needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol, runtime_checkable

Row = Mapping[str, object]
NumberedRow = tuple[int, Row | str]
"""The number of a row, or of its last line, from 1, and its values or why it has none."""


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
