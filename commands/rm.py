"""`deltadex rm`: remove a model from the catalog."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..terminal.options import Common, takes
from .opening import open_database
from .output import print_table, show_pairs
from .show import StoredModel


@click.command()
@takes(StoredModel)
def rm(common: Common, stored: StoredModel) -> None:
    """Forget MODEL. Its files are not touched.

    \b
    Example:
      deltadex rm someone/bert-imdb
    """
    with open_database(common, read_only=False) as db:
        table = db.remove(**asdict(stored))
    print_table(table, show_pairs, common)
