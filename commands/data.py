"""`deltadex data`: the data sets that were kept as queries."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, base_option, takes
from .opening import open_database
from .output import print_table, show_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Which data sets are listed."""

    base: str | None = base_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A kept data set."""

    name: str = argument()
    base: str | None = base_option()


@click.group()
def data() -> None:
    """List, show and remove kept data sets: fingerprints, counts, hash and settings, no texts.

    \b
    Example:
      deltadex data ls
      deltadex data show acme-chats
    """


@data.command()
@takes(Family)
def ls(common: Common, family: Family) -> None:
    """List the kept data sets.

    \b
    Example:
      deltadex data ls
    """
    with open_database(common) as db:
        table = db.data(**asdict(family))
    print_table(table, terminal.show_data_sets, common)


@data.command()
@takes(Kept)
def show(common: Common, kept: Kept) -> None:
    """Show all that is kept of the data set NAME.

    \b
    Example:
      deltadex data show acme-chats
    """
    with open_database(common) as db:
        table = db.show_data(**asdict(kept))
    print_table(table, terminal.show_data_set, common)


@data.command()
@takes(Kept)
def rm(common: Common, kept: Kept) -> None:
    """Forget the data set NAME.

    \b
    Example:
      deltadex data rm acme-chats
    """
    with open_database(common, read_only=False) as db:
        table = db.remove_data(**asdict(kept))
    print_table(table, show_pairs, common)
