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
    """Count the models, datasets and recipes of the catalog.

    \b
    Example:
      deltadex stats
    """
    with open_database(common) as db:
        table = db.stats()
    print_table(table, lambda document: terminal.show_stats(document), common)
