"""`deltadex sql`: a SELECT over the catalog."""

from __future__ import annotations

from dataclasses import dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, takes
from .output import Display, print_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A statement."""

    statement: str = argument(metavar="QUERY")


@click.command()
@takes(Query, Display)
def sql(common: Common, query: Query, display: Display) -> None:
    """Print what a SELECT gives, from the tables of the catalog.

    QUERY is DuckDB's SQL: one SELECT, which cannot write and reads no file. It is answered also
    while a service or an indexing run holds the catalog. Tables and views: docs/catalog.md, or
    "SHOW TABLES".

    \b
    Example:
      deltadex sql "SELECT dataset, count(*) AS models FROM models GROUP BY ALL ORDER BY 2 DESC"
      deltadex sql "FROM coverage" --csv
    """
    display.check(common)
    from ..database import query as run_query

    table = run_query(common.db, query.statement)
    rows = ([row[name] for name in table.names] for row in table)
    print_rows(
        table,
        table.names,
        lambda _: terminal.show_rows(table.names, rows, wide=display.wide),
        display,
        common,
    )
