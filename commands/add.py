"""`deltadex add`: single models."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from ..terminal.options import Common, argument, option, takes
from .index import Indexing, Strictness, run_indexing


@dataclass(frozen=True, slots=True, kw_only=True)
class NewModels:
    """Single models of a family."""

    models: tuple[str, ...] = argument(nargs=-1, required=True, metavar="MODEL...")
    base: str = option("--base", required=True, help="The base that they descend from.")


@click.command()
@takes(NewModels, Indexing, Strictness)
def add(common: Common, members: NewModels, indexing: Indexing, strictness: Strictness) -> None:
    """Add single models: Hub ids or folders.

    \b
    Example:
      deltadex add someone/bert-imdb ./my-run --base bert-base-uncased
    """
    run_indexing(
        common,
        strictness,
        lambda db, progress: db.add(
            *members.models, base=members.base, **asdict(indexing), progress=progress
        ),
    )
