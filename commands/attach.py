"""`deltadex attach`: published indexes that are searched beside the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import Common, argument, option, takes
from ..terminal.text import count, plain, size
from .opening import open_database
from .output import print_table

if TYPE_CHECKING:
    from ..database import Create


@dataclass(frozen=True, slots=True, kw_only=True)
class Attaching:
    """Which index, and what is done with it."""

    source: str | None = argument(required=False)
    name: str | None = option("--name", help="What to call the index.")
    lists: bool = option("--list", help="List the attached indexes.")
    refresh: bool = option("--refresh", help="Fetch what changed, of all or of --name.")
    remove: str | None = option("--remove", metavar="NAME", help="Stop searching this index.")


@click.command()
@takes(Attaching)
def attach(common: Common, attaching: Attaching) -> None:
    """Search a published index beside the catalog: a folder, an https:// address or hf://datasets/OWNER/NAME.

    Its files are copied beside the catalog and compared with the SHA-256 of its manifest.
    `find-similar` then searches it together with the catalog's own models of the same base and
    recipe; no other command does.

    \b
    Example:
      deltadex attach hf://datasets/someone/gpt2-index
      deltadex attach --refresh
      deltadex attach --remove gpt2-index
    """
    wanted = [attaching.source, attaching.lists, attaching.refresh, attaching.remove]
    if sum(map(bool, wanted)) != 1:
        raise click.UsageError("give one of SOURCE, --list, --refresh, --remove NAME")
    if attaching.lists:
        with open_database(common) as db:
            print_table(db.attached(), _show_all, common)
        return
    create: Create = "late" if attaching.source is not None else False
    with open_database(common, read_only=False, create=create) as db:
        if attaching.source is not None:
            print_table(db.attach(attaching.source, name=attaching.name), _show, common)
        elif attaching.refresh:
            print_table(db.refresh_attached(attaching.name), _show_all, common)
        else:
            db.detach(str(attaching.remove))
            print_table(db.attached(), _show_all, common)


def _show_all(document: Mapping[str, Any]) -> None:
    if not document["attached"]:
        click.echo("no index is attached")
    for row in document["attached"]:
        _show(row)


def _show(row: Mapping[str, Any]) -> None:
    fetched = f", {size(row['fetched_bytes'])} fetched" if "fetched_bytes" in row else ""
    click.echo(
        plain(
            f"{row['name']}: {count(row['models'], 'model')} of {row['base']} ({row['recipe']}), "
            f"{size(row['bytes'])}{fetched}, from {row['source']}"
        )
    )
