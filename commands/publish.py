"""`deltadex publish`: a family as an index that others can attach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ..terminal.options import Common, argument, base_option, option, recipe_option, takes
from ..terminal.text import count, plain, size
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """What is published, and where."""

    target: str = argument()
    base: str | None = base_option()
    recipe: str | None = recipe_option()
    exclude: Path | None = option(
        "--exclude",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Remove the models of this list for good: one id per line.",
    )
    base_name: str | None = option(
        "--base-name", help="What the index calls the base, e.g. its Hub id."
    )
    licence: str = option(
        "--licence", default="other", help="Licence of the index; models keep their own."
    )
    with_gated: bool = option("--with-gated", help="Also publish models that are gated on the Hub.")


@click.command()
@takes(Publishing)
def publish(common: Common, publishing: Publishing) -> None:
    """Publish a family's fingerprints as an index into TARGET: a folder, or hf://datasets/OWNER/NAME.

    The index holds ids, labels, authors, licences, hashes and pooled vectors, at most 6 KiB per
    model under the default recipe: no weights, no paths, no models that are private on the Hub. A
    later publication writes only what changed. An upload takes the token from HF_TOKEN.

    \b
    Example:
      deltadex publish gpt2-index
      deltadex publish hf://datasets/someone/gpt2-index --exclude removed.txt
    """
    options = asdict(publishing)
    options["exclude"] = publishing.exclude or ()
    with open_database(common) as db:
        table = db.publish(options.pop("target"), **options)
    print_table(table, _show, common)


def _show(document: Mapping[str, Any]) -> None:
    click.echo(
        plain(f"{document['base']}: {count(document['models'], 'model')} in {document['target']}")
    )
    click.echo(
        f"{document['added']} added, {document['dropped']} dropped; "
        f"{size(document['written_bytes'])} written of {size(document['bytes'])}, "
        f"{document['bytes_per_model']:.0f} bytes per model"
    )
    for reason, n in document["left_out"].items():
        click.echo(f"left out: {n} ({reason})")
    if not document["changed"]:
        click.echo("nothing changed")
    if "commit" in document:
        click.echo(
            plain(f"{size(document['uploaded_bytes'])} uploaded, commit {document['commit']}")
        )
    click.echo(f"manifest SHA-256 {document['manifest']}")
