"""`deltadex backup`: a copy of the catalog, while it is in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ..terminal.options import Common, argument, option, takes
from ..terminal.text import count
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """Where the copy goes."""

    target: Path = argument()
    force: bool = option("--force", help="Replace TARGET if it is there.")


@click.command()
@takes(Copying)
def backup(common: Common, copying: Copying) -> None:
    """Copy the catalog as it is now into the file TARGET.

    A service or an indexing run goes on meanwhile. The copy is a catalog: ask it with --db, or
    put it in the catalog's place. Beside it, TARGET.manifest.json has its SHA-256, which
    `deltadex doctor TARGET` compares.

    \b
    Example:
      deltadex backup family-monday.duckdb
    """
    with open_database(common, read_only=None) as db:
        table = db.backup(**asdict(copying))
    print_table(table, _show, common)


def _show(document: Mapping[str, Any]) -> None:
    size = document["bytes"] / 1e6
    click.echo(f"written: {document['written']}")
    click.echo(f"{count(document['models'], 'model')}, {size:.1f} MB, {document['seconds']:.1f} s")
    click.echo(f"SHA-256 {document['sha256']}")
