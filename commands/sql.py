"""`deltadex sql`: a SELECT over the catalog."""

from __future__ import annotations

from dataclasses import dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, option, takes
from .output import print_rows_as_csv, print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A statement, and how its rows are shown."""

    statement: str = argument(metavar="QUERY")
    as_csv: bool = option("--csv", is_flag=True, help="Print CSV on stdout.")
    wide: bool = option(
        "--wide", is_flag=True, help="Do not shorten cells to the width of the terminal."
    )


@click.command()
@takes(Query)
def sql(common: Common, query: Query) -> None:
    """Print what a SELECT gives, from the tables of the catalog.

    QUERY is DuckDB's SQL: one SELECT, which cannot write and reads no file. It is answered also
    while a service or an indexing run holds the catalog. Tables and views: docs/catalog.md, or
    "SHOW TABLES".

    \b
    Example:
      deltadex sql "SELECT dataset, count(*) AS models FROM models GROUP BY ALL ORDER BY 2 DESC"
      deltadex sql "FROM coverage" --csv
    """
    if query.as_csv and common.as_json:
        raise click.UsageError("give --csv, or --json")
    from ..database import query as run_query

    table = run_query(common.db, query.statement)
    rows = [[row[name] for name in table.names] for row in table]
    if query.as_csv:
        print_rows_as_csv(table.names, rows)
        return
    print_table(table, lambda _: terminal.show_rows(table.names, rows, wide=query.wide), common)
