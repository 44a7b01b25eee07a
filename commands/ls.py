"""`deltadex ls`: the models of the catalog."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import click

from .. import terminal
from ..database import Filters
from ..terminal.options import Common, base_option, option, takes
from .opening import open_database
from .output import Display, print_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which models are listed."""

    base: str | None = base_option()
    status: Literal["indexed", "failed", "skipped", "no-update"] | None = option(
        "--status", help="Only models of this status."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which columns are shown, and which models come first."""

    columns: str | None = option(
        "--columns",
        metavar="A,B,…",
        help="Show these columns.  [default: model,status,code,dataset,author,run; JSON has all]",
    )
    sort: str | None = option(
        "--sort", metavar="COLUMN", help="Sort by a column.  [default: base, then model]"
    )
    reverse: bool = option("--reverse", help="Sort the largest first.")
    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Show the first N models."
    )


@click.command("ls")
@takes(Listing, Filters, Order, Display)
def ls(common: Common, listing: Listing, filters: Filters, order: Order, display: Display) -> None:
    """List the models of the catalog.

    Columns are the keys that --json prints.

    \b
    Example:
      deltadex ls --where "dataset IS NULL AND status = 'indexed'"
      deltadex ls --columns model,downloads --sort downloads --reverse --limit 20
    """
    display.check(common)
    columns = None if order.columns is None else order.columns.split(",")
    with open_database(common) as db:
        table = db.models(
            **asdict(listing) | asdict(filters) | asdict(order) | {"columns": columns}
        )
    print_rows(
        table,
        table.columns,
        lambda document: terminal.show_models(document, columns=table.columns, wide=display.wide),
        display,
        common,
    )
