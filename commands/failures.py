"""`deltadex failures`: models that are not in the index."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ..terminal.options import Common, base_option, takes
from .catalog import open_catalog
from .output import print_document


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureListing:
    """Whose failures are listed."""

    base: str | None = base_option()


@click.command()
@takes(FailureListing)
def failures(common: Common, listing: FailureListing) -> None:
    """Models that are not in the index, grouped by reason.

    \b
    Example:
      deltadex failures
    """
    from ..terminal import show_failures

    with open_catalog(common.db) as catalog:
        document = {"failures": catalog.failures(catalog.find_base(listing.base))}
    print_document(document, show_failures, common)
