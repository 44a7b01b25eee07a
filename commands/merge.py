"""Several machines' catalogs brought together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..terminal.options import common
from ..terminal.text import plain
from .output import print_document

SHOWN = 20
"""Conflicts that are printed; `--json` lists all."""


@click.command()
@click.argument(
    "catalogs",
    nargs=-1,
    required=True,
    metavar="TARGET SOURCE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@common
def merge(db: Path, as_json: bool, quiet: bool, catalogs: tuple[Path, ...]) -> None:
    """Bring all that the SOURCE catalogs know into the catalog TARGET.

    Sources are only read. What TARGET has stays: where a source has other weights or labels
    for a model of the same base and id, that is listed as a conflict. Merging again adds
    nothing. With --db every catalog named is a source, and the target is --db, which may be
    new.

    \b
    Example:
      deltadex merge all.duckdb machine-2.duckdb machine-3.duckdb
      deltadex merge machine-1.duckdb machine-2.duckdb --db all.duckdb
    """
    from ..store import Catalog, merge_catalogs
    from ..terminal import tracked

    given = click.get_current_context().get_parameter_source("db")
    is_new = given is ParameterSource.COMMANDLINE
    target, sources = (db, catalogs) if is_new else (catalogs[0], catalogs[1:])
    if not sources:
        raise click.UsageError(
            f"nothing to merge into {target}: name the catalogs after it, or the target with --db"
        )
    with Catalog.open(target, create=is_new) as catalog:
        merged = merge_catalogs(
            catalog, sources, tracked=lambda batches: tracked(batches, "merging", quiet=quiet)
        )
    print_document(merged.to_json(), _show, as_json)


def _show(document: Mapping[str, Any]) -> None:
    for one in document["sources"]:
        counts = ", ".join(f"{one[key]} {key}" for key in ("added", "updated", "unchanged"))
        differing = f", {one['differing']} of other weights" if one["differing"] else ""
        click.echo(f"{one['source']}: {counts}{differing}")
    click.echo(f"{document['target']}: {document['models']} models, {document['seconds']:.1f} s")
    _show_conflicts(document["conflicts"])


def _show_conflicts(conflicts: Sequence[Mapping[str, Any]]) -> None:
    if conflicts:
        click.echo(f"\n{len(conflicts)} conflicts; what the target says stays:")
    for conflict in conflicts[:SHOWN]:
        name = conflict["model"] or conflict["base"]
        click.echo(f"  {plain(name)}: {conflict['about']}")
        kept, other = conflict["kept"], conflict["other"]
        for key in kept:
            if kept[key] != other[key]:
                click.echo(plain(f"    {key}: {_text(kept[key])}, not {_text(other[key])}"))
    if len(conflicts) > SHOWN:
        click.echo(f"  … and {len(conflicts) - SHOWN} more: --json lists them")


def _text(value: object) -> str:
    return "nothing" if value is None else str(value)
