"""`deltadex show`: everything that is known of one model."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, base_option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model of the catalog."""

    model: str = argument()
    base: str | None = base_option()


@click.command()
@takes(StoredModel)
def show(common: Common, stored: StoredModel) -> None:
    """Show everything known of MODEL, and what it changed, slot by slot.

    \b
    Example:
      deltadex show someone/bert-imdb
    """
    with open_database(common) as db:
        table = db.show(**asdict(stored))
    print_table(table, lambda document: terminal.show_model(document), common)
