"""A family drawn into a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import base_option, common, recipe_option
from .output import print_document

if TYPE_CHECKING:
    from ..web.map_document import Colour


@click.command("map")
@click.option(
    "-o",
    "--output",
    default="deltadex-map.html",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A page (.html) or a picture (.png, .svg).",
)
@click.option(
    "--layout",
    type=click.Choice(["auto", "pca", "tsne", "umap"]),
    default="auto",
    show_default=True,
    help="auto is t-SNE, of landmarks where models are many; umap needs deltadex[umap].",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**32 - 1),
    default=0,
    show_default=True,
    help="Another number, another map of the same neighbourhoods.",
)
@click.option(
    "--colour",
    type=click.Choice(["dataset", "author", "kind"]),
    help="What a picture's colours tell.  [default: dataset]",
)
@click.option("--dark", is_flag=True, help="A picture on dark; a page follows its reader.")
@recipe_option
@base_option
@common
def map_command(
    db: Path,
    as_json: bool,
    quiet: bool,
    output: Path,
    colour: Colour | None,
    dark: bool,
    **options: Any,
) -> None:
    """Draw a family as one HTML file or a picture: near means alike.

    \b
    Example:
      deltadex map -o family.html
      deltadex map -o figure.svg --layout umap --colour author
    """
    from ..store import Catalog
    from ..web import map_family

    if output.suffix.lower() == ".html" and (colour or dark):
        raise click.UsageError("--colour and --dark are for a .png or .svg picture")
    with Catalog.open(db, read_only=True, create=False) as catalog:
        document = map_family(catalog, output, colour=colour or "dataset", dark=dark, **options)
    print_document(document, _show, as_json)


def _show(document: Mapping[str, Any]) -> None:
    for key in ("written", "models", "layout"):
        click.echo(f"{key}: {document[key]}")
