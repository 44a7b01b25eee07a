"""`deltadex export`: the catalog for other tools."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from ..terminal.options import Common, argument, base_option, option, recipe_option, takes
from .opening import open_database
from .output import print_document, show_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What is written, and where."""

    target: Path = argument()
    format: Literal["parquet", "safetensors"] = option(
        "--format",
        default="parquet",
        help="Write tables into a folder, or one recipe's vectors into a file.",
    )
    recipe: str | None = recipe_option()
    base: str | None = base_option()


@click.command()
@takes(Export)
def export(common: Common, options: Export) -> None:
    """Write the catalog to TARGET for other tools.

    \b
    Example:
      deltadex export ./tables
      deltadex export vectors.safetensors --format safetensors --base bert-base-uncased
    """
    with open_database(common) as db:
        written = db.export(**asdict(options))
    print_document({"written": [str(path) for path in written]}, show_pairs, common)
