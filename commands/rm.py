"""`deltadex rm`: a model is forgotten."""

from __future__ import annotations

import click

from ..terminal.options import Common, takes
from .output import print_document, show_pairs
from .show import StoredModel


@click.command()
@takes(StoredModel)
def rm(common: Common, stored: StoredModel) -> None:
    """Forget MODEL. Its files are not touched.

    \b
    Example:
      deltadex rm someone/bert-imdb
    """
    from ..store import Catalog

    with Catalog.open(common.db, create=False) as catalog:
        row = catalog.remove(stored.model, catalog.find_base(stored.base))
    print_document({"removed": row.id, "base": row.base}, show_pairs, common)
