"""`deltadex ls`: the models of the catalog."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from ..terminal.options import Common, Filters, base_option, option, takes
from .catalog import open_catalog
from .output import print_document


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which models are listed."""

    base: str | None = base_option()
    status: str | None = option(
        "--status",
        type=click.Choice(["indexed", "failed", "skipped", "no-update"]),
        help="Only models of this status.",
    )


@click.command("ls")
@takes(Listing, Filters)
def list_models(common: Common, listing: Listing, filters: Filters) -> None:
    """The models of the catalog.

    \b
    Example:
      deltadex ls --where "dataset IS NULL AND status = 'indexed'"
    """
    from ..terminal import show_models

    with open_catalog(common.db) as catalog:
        rows = catalog.models(**asdict(listing), **asdict(filters))
    print_document({"models": [row.to_json() for row in rows]}, show_models, common)
