"""`deltadex cluster`: groups of a family, and datasets for its unlabelled models."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from .. import terminal
from ..terminal.options import Common, base_option, option, recipe_option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """How a family is grouped."""

    min_size: int | None = option(
        "--min-size",
        type=click.IntRange(min=2),
        help="Fewest models of a cluster.  [default: grows with the family, from 3]",
    )
    suggest: bool = option(
        "--suggest/--no-suggest",
        default=True,
        help="Suggest datasets for unlabelled models, by their nearest labelled models.",
    )
    unknown_share: float = option(
        "--unknown",
        type=click.FloatRange(min=0, max=1),
        default=1.0,
        metavar="SHARE",
        help="Share of the unlabelled whose dataset no labelled model has, at most; 0 if labels "
        "name them all.",
    )
    recipe: str | None = recipe_option()
    base: str | None = base_option()


@click.command()
@takes(Clustering)
def cluster(common: Common, clustering: Clustering) -> None:
    """Group models that lie close together, and suggest datasets for unlabelled models.

    At most 20 % of the suggestions are expected to be wrong; weaker evidence is shown as a hint.

    \b
    Example:
      deltadex cluster --base bert-base-uncased --min-size 4
    """
    with open_database(common) as db:
        table = db.cluster(**asdict(clustering))
    print_table(table, terminal.show_clusters, common)
