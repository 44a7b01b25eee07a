"""`deltadex stats`: counts of the whole catalog."""

from __future__ import annotations

import click

from ..terminal.options import Common, takes
from .catalog import open_catalog
from .output import print_document


@click.command()
@takes()
def stats(common: Common) -> None:
    """How many models, datasets and recipes the catalog holds.

    \b
    Example:
      deltadex stats
    """
    from ..terminal import show_stats

    with open_catalog(common.db) as catalog:
        document = catalog.stats()
    print_document(document, show_stats, common)
