"""`deltadex stats`: counts of the whole catalog."""

from __future__ import annotations

from dataclasses import dataclass

import click

from .. import terminal
from ..terminal.options import Common, option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """What is counted."""

    content_hash: bool = option(
        "--hash",
        help="Also print a hash of all models, equal for catalogs that say the same of them. "
        "Reads the whole catalog.",
    )


@click.command()
@takes(Counting)
def stats(common: Common, counting: Counting) -> None:
    """Count the models, datasets and recipes of the catalog.

    \b
    Example:
      deltadex stats
    """
    with open_database(common) as db:
        table = db.stats(content_hash=counting.content_hash)
    print_table(table, lambda document: terminal.show_stats(document), common)
