"""`deltadex diff`: two models of a family in a screen."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ..terminal.options import Common, argument, base_option, takes
from .output import print_document
from .subject import reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two models of a family."""

    first: str = argument(metavar="A")
    second: str = argument(metavar="B")
    base: str | None = base_option()


@click.command()
@takes(Pair)
def diff(common: Common, pair: Pair) -> None:
    """What differs between two indexed models of a family, in a screen.

    \b
    Example:
      deltadex diff someone/bert-imdb someone/bert-sst2
    """
    from ..study.diff import diff_models
    from ..terminal import show_diff

    with reading(common.db) as catalog:
        base = catalog.find_base(pair.base)
        document = diff_models(catalog, pair.first, pair.second, base).to_json()
    print_document(document, show_diff, common)
