"""Groups of a family, and datasets for its unlabelled models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..terminal.options import base_option, common, recipe_option
from .output import print_document


@click.command()
@click.option(
    "--min-size",
    type=click.IntRange(min=2),
    help="Fewest models of a cluster.  [default: grows with the family, from 3]",
)
@click.option(
    "--suggest/--no-suggest",
    default=True,
    show_default=True,
    help="Datasets for unlabelled models, where held-out labelled ones vouch for them.",
)
@click.option(
    "--unknown",
    "unknown_share",
    type=click.FloatRange(min=0, max=1, max_open=True),
    default=0.5,
    show_default=True,
    metavar="SHARE",
    help="Share of the unlabelled whose dataset no labelled model has; 0 if labels name them all.",
)
@recipe_option
@base_option
@common
def cluster(db: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """Groups of models that lie close together, and what unlabelled ones were trained on.

    A suggestion comes with the precision to expect; without enough evidence there is none.

    \b
    Example:
      deltadex cluster --base bert-base-uncased --min-size 4
    """
    from ..store import Catalog
    from ..terminal import show_clusters

    with Catalog.open(db, read_only=True, create=False) as catalog:
        from ..search import cluster_family

        document = cluster_family(catalog, **options).to_json()
    print_document(document, show_clusters, as_json)
