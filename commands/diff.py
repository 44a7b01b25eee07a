"""`deltadex diff`: two models of a family compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, argument, base_option, takes
from .output import print_table
from .studies import open_for_study


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two models of a family."""

    first: str = argument(metavar="A")
    second: str = argument(metavar="B")
    base: str | None = base_option()


@click.command()
@takes(Pair)
def diff(common: Common, pair: Pair) -> None:
    """Compare two indexed models of a family.

    \b
    Example:
      deltadex diff someone/bert-imdb someone/bert-sst2
    """
    with open_for_study(common) as db:
        table = db.diff(**asdict(pair))
    print_table(table, terminal.show_diff, common)
