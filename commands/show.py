"""`deltadex show`: everything that is known of one model."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ..terminal.options import Common, argument, base_option, takes
from .catalog import open_catalog
from .output import print_document


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model of the catalog."""

    model: str = argument()
    base: str | None = base_option()


@click.command()
@takes(StoredModel)
def show(common: Common, stored: StoredModel) -> None:
    """Everything known of MODEL, and what it changed, slot by slot.

    \b
    Example:
      deltadex show someone/bert-imdb
    """
    from ..terminal import show_model

    with open_catalog(common.db) as catalog:
        document = catalog.describe(stored.model, catalog.find_base(stored.base))
    print_document(document, show_model, common)
