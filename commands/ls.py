"""`deltadex ls`: the models of the catalog."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, Filters, base_option, option, takes
from .opening import open_database
from .output import print_rows_as_csv, print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which models are listed."""

    base: str | None = base_option()
    status: str | None = option(
        "--status",
        type=click.Choice(["indexed", "failed", "skipped", "no-update"]),
        help="Only models of this status.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How the list is shown."""

    columns: str | None = option(
        "--columns",
        metavar="A,B,…",
        help="Show these columns.  [default: model,status,code,dataset,author,run; JSON has all]",
    )
    sort: str | None = option(
        "--sort", metavar="COLUMN", help="Sort by a column.  [default: base, then model]"
    )
    reverse: bool = option("--reverse", is_flag=True, help="Sort the largest first.")
    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Show the first N models."
    )
    as_csv: bool = option("--csv", is_flag=True, help="Print CSV on stdout.")
    wide: bool = option(
        "--wide", is_flag=True, help="Do not shorten cells to the width of the terminal."
    )


@click.command("ls")
@takes(Listing, Filters, Display)
def ls(common: Common, listing: Listing, filters: Filters, display: Display) -> None:
    """List the models of the catalog.

    Columns are the keys that --json prints.

    \b
    Example:
      deltadex ls --where "dataset IS NULL AND status = 'indexed'"
      deltadex ls --columns model,downloads --sort downloads --reverse --limit 20
    """
    if display.as_csv and common.as_json:
        raise click.UsageError("give --csv, or --json")
    with open_database(common) as db:
        table = db.models(
            base=listing.base,
            status=listing.status,
            columns=None if display.columns is None else display.columns.split(","),
            sort=display.sort,
            reverse=display.reverse,
            limit=display.limit,
            **asdict(filters),
        )
    if display.as_csv:
        rows = ([row[column] for column in table.columns] for row in table)
        print_rows_as_csv(table.columns, rows)
        return
    print_table(
        table,
        lambda document: terminal.show_models(document, columns=table.columns, wide=display.wide),
        common,
    )
