"""A SELECT over the tables of the catalog: `sql`."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadQuery
from ..options import Question, argument, record
from ..results import Document, Section, Table
from .face.opened import Opened
from .face.worker import Worker, WorkerCrashed, WorkerOutOfMemory, WorkerTooSlow
from .terminal.command_line import Common, Display, command_with, from_stdin

if TYPE_CHECKING:
    from ..store import QueryResult


SELECT_BYTES = 1 << 30
"""Memory of the process that runs a SELECT of somebody else."""

STACK_BYTES = 8 << 20
"""Of a thread of DuckDB, one a processor."""


class QueryTable(Table):
    """The rows that a SELECT returns."""

    _key = "rows"

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.columns = tuple(document["columns"])


@record
class Select(Question):
    """Print what one SELECT gives, from the tables of the catalog.

    QUERY is DuckDB's SQL, which cannot write and reads no file; `-` reads it from standard input.
    It is answered also while a service or an indexing run holds the catalog. Tables and views:
    docs/catalog.md, or "SHOW TABLES".

    Raises:
        BadQuery: the statement is no single SELECT of the catalog's tables.

    >>> db.sql("SELECT count(*) AS n FROM models")[0]["n"]
    4
    """

    statement: str = argument(metavar="QUERY", help="One SELECT in DuckDB's SQL.")

    def answer(self, db: Opened) -> QueryTable:
        return self.of(db.path)

    def of(self, path: Path, *, seconds: float | None = None, rows: int = 0) -> QueryTable:
        """The rows from the catalog in a file, which nobody has to open for it; at most so many,
        where there is a limit of `seconds`, else `BadQuery`: then it runs in a process of its own,
        which is killed when the time or 1 GiB of memory is used up."""
        from ..store import query_catalog

        if seconds is None:
            result = query_catalog(path, self.statement)
        else:
            result = _query_apart(path, self.statement, seconds, rows)
        return QueryTable(result.to_json())


def _query_apart(path: Path, sql: str, seconds: float, rows: int) -> QueryResult:
    from ..store import check_query, query_catalog

    check_query(sql)
    memory = SELECT_BYTES + STACK_BYTES * (os.cpu_count() or 1)
    with closing(Worker("running a SELECT", memory, repeats=False)) as worker:
        try:
            return worker.run(query_catalog, path, sql, rows, seconds=seconds)
        except WorkerTooSlow as err:
            raise BadQuery(f"sql: stopped after {seconds:g} s: ask for less") from err
        except (WorkerOutOfMemory, WorkerCrashed) as err:
            raise BadQuery("sql: not enough memory: ask for less") from err


@command_with(
    Select,
    Display,
    examples=(
        'sql "SELECT dataset, count(*) AS models FROM models GROUP BY ALL ORDER BY 2 DESC"',
        'sql "FROM coverage" --csv',
        "sql - -o families.md < families.sql",
    ),
)
def command(common: Common, asked: Select, display: Display) -> None:
    display.check(common)
    statement = from_stdin() if asked.statement == "-" else asked.statement
    table = Select(statement).of(common.db)
    heads = table.columns
    # a column of blanks is not shown
    rows = [["NULL" if row[name] is None else row[name] for name in heads] for row in table]
    shown = Section.of(heads, rows, heads) if rows else "  ".join(heads)
    display.print(table, lambda _: [shown], common)
