"""`deltadex stats`: counts of the whole catalog."""

from __future__ import annotations

import click

from .. import terminal
from ..terminal.options import Common, takes
from .opening import open_database
from .output import print_table


@click.command()
@takes()
def stats(common: Common) -> None:
    """How many models, datasets and recipes the catalog holds.

    \b
    Example:
      deltadex stats
    """
    with open_database(common) as db:
        table = db.stats()
    print_table(table, lambda document: terminal.show_stats(document), common)
