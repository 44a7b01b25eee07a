"""`deltadex find-data`: the kept data sets nearest to a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, base_option, recipe_option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A model of the catalog."""

    model: str = argument()
    base: str | None = base_option()
    recipe: str | None = recipe_option()


@click.command("find-data")
@takes(Asked)
def find_data(common: Common, asked: Asked) -> None:
    """Show the kept data sets nearest to MODEL: what it may have been trained on.

    `deltadex find-trained-on FILE --keep NAME` keeps a data set.

    \b
    Example:
      deltadex find-data someone/bert-imdb
    """
    with open_database(common) as db:
        table = db.find_data(**asdict(asked))
    print_table(table, terminal.show_nearest_data, common)
