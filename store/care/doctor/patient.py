"""What every check is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...catalog import Catalog
from ...session import Session
from .finding import Part, Track

ROWS_AT_ONCE = 4 * 122_880
"""Of a scan: DuckDB's row groups, one a thread."""


@dataclass(frozen=True, slots=True)
class Patient:
    """An open catalog.

    Attributes:
        session: A session of its own.
        repairs: Whether what is derived is mended, or only looked at.
    """

    catalog: Catalog
    session: Session
    repairs: bool
    track: Track

    @property
    def path(self) -> Path:
        return self.catalog.path

    def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self.session.execute(sql, list(values))

    def change(self, *statements: str) -> None:
        """All of these, or none.

        Raises:
            StoreError: none.
        """

        def made(session: Session) -> None:
            for sql in statements:
                session.execute(sql)

        self.write(made)

    def write(self, change: Callable[[Session], None]) -> None:
        """Make a change in one transaction.

        Raises:
            StoreError: it was not made.
        """
        self.session.write(change)

    def tables(self) -> list[str]:
        """Names of the catalog's tables, sorted."""
        rows = self.ask(
            "SELECT table_name FROM duckdb_tables() "
            "WHERE database_name = 'catalog' AND schema_name = 'main' ORDER BY 1"
        )
        return [str(name) for (name,) in rows]

    def parts(self, table: str) -> list[Part]:
        """All rows of a table, some at a time."""
        [(last,)] = self.ask(f"SELECT coalesce(max(rowid), -1) FROM {quoted(table)}")
        starts = range(0, int(last) + 1, ROWS_AT_ONCE)
        return [(table, start, start + ROWS_AT_ONCE - 1) for start in starts]


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
