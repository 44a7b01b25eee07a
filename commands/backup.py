"""A copy of the catalog, while it is in use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import StoreFull
from ..terminal.options import common
from .output import print_document

if TYPE_CHECKING:
    from ..store import Catalog


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace TARGET if it is there.")
@common
def backup(db: Path, as_json: bool, quiet: bool, target: Path, force: bool) -> None:
    """Copy the catalog as it is now into the file TARGET.

    A service or an indexing run goes on meanwhile. The copy is a catalog: ask it with --db, or
    put it in the catalog's place.

    \b
    Example:
      deltadex backup family-monday.duckdb
    """
    from ..store import back_up

    with _opened(db) as catalog:
        document = back_up(catalog, target, replace=force).to_json()
    print_document(document, _show, as_json)


def _opened(db: Path) -> Catalog:
    """The catalog, held so that others are let in; a file that nobody may write, for reading."""
    from ..store import Catalog

    try:
        return Catalog.open(db, create=False)
    except StoreFull:
        return Catalog.open(db, create=False, read_only=True)


def _show(document: Mapping[str, Any]) -> None:
    size = document["bytes"] / 1e6
    click.echo(f"written: {document['written']}")
    click.echo(f"{document['models']} models, {size:.1f} MB, {document['seconds']:.1f} s")
