"""`deltadex failures`: models that are not in the index."""

from __future__ import annotations

from dataclasses import dataclass

import click

from .. import terminal
from ..terminal.options import Common, base_option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureListing:
    """Whose failures are listed."""

    base: str | None = base_option()


@click.command()
@takes(FailureListing)
def failures(common: Common, listing: FailureListing) -> None:
    """List the models that are not indexed, by reason.

    \b
    Example:
      deltadex failures
    """
    with open_database(common) as db:
        table = db.failures(listing.base)
    print_table(table, lambda document: terminal.show_failures(document), common)
