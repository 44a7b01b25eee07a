"""`deltadex map`: a family drawn into a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click

from ..terminal.options import Common, base_option, option, recipe_option, seed_option, takes
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMap:
    """What is drawn, and how."""

    path: Path = option(
        "-o",
        "--output",
        default="deltadex-map.html",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A page (.html) or a picture (.png, .svg).",
    )
    layout: Literal["auto", "pca", "tsne", "umap"] = option(
        "--layout",
        default="auto",
        help="auto is t-SNE, of landmarks where models are many; umap needs deltadex[umap].",
    )
    seed: int = seed_option("Random seed of the layout.")
    colour: Literal["dataset", "author", "kind"] | None = option(
        "--colour", help="Colour a picture by this column.  [default: dataset]"
    )
    dark: bool = option(
        "--dark", help="Draw a picture light on dark; a page follows its reader's setting."
    )
    recipe: str | None = recipe_option()
    base: str | None = base_option()


@click.command("map")
@takes(FamilyMap)
def map(common: Common, family: FamilyMap) -> None:
    """Draw a family as one HTML file or a picture: similar models lie near each other.

    \b
    Example:
      deltadex map -o family.html
      deltadex map -o figure.svg --layout umap --colour author
    """
    with open_database(common) as db:
        table = db.map(**asdict(family))
    print_table(table, _show, common)


def _show(document: Mapping[str, Any]) -> None:
    for key in ("written", "models", "layout"):
        click.echo(f"{key}: {document[key]}")
