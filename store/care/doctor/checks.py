"""What every check is given, and the finding that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...catalog import Catalog
from ...session import Session

State = Literal["ok", "note", "repaired", "problem"]

NAMES_SHOWN = 3
"""Names that a finding lists; it counts the others."""

ROWS_AT_ONCE = 4 * 122_880
"""Of a scan: one of DuckDB's row groups for each of four threads."""

REINDEX = "`deltadex rm` each of them, then index it again"

RUN_REPAIR = "`deltadex doctor` without --check repairs it"

Part = tuple[str, int, int]
"""A table, and the first and the last number of some of its rows."""

Track = Callable[[Sequence[Part], str], Iterator[Part]]
"""Gives the same parts, and shows the progress of the named work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        check: What was examined.
        advice: What to do about it; empty where nothing is to be done.
    """

    check: str
    state: State
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The open catalog that is examined.

    Attributes:
        session: A session of its own.
        repairs: Whether derived data is repaired, or only examined.
    """

    catalog: Catalog
    session: Session
    repairs: bool
    track: Track

    def select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        return self.session.execute(sql, list(values))

    def n_commits(self) -> int:
        """How many changes were committed since deltadex counts them."""
        return int(self.select("SELECT commits FROM meta")[0][0])

    def tables(self) -> list[str]:
        """Names of the catalog's tables, sorted."""
        rows = self.select(
            "SELECT table_name FROM duckdb_tables() "
            "WHERE database_name = 'catalog' AND schema_name = 'main' ORDER BY 1"
        )
        return [str(name) for (name,) in rows]

    def parts(self, table: str) -> list[Part]:
        """All rows of a table, in parts."""
        [(last,)] = self.select(f"SELECT coalesce(max(rowid), -1) FROM {quoted(table)}")
        starts = range(0, int(last) + 1, ROWS_AT_ONCE)
        return [(table, start, start + ROWS_AT_ONCE - 1) for start in starts]


def listed(names: Sequence[str], n_all: int | None = None) -> str:
    """`a, b, c and 5 more`."""
    more = (n_all if n_all is not None else len(names)) - min(NAMES_SHOWN, len(names))
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def counted(n: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
