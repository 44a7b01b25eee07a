"""`deltadex merge`: several machines' catalogs brought together."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..terminal.options import Common, argument, takes
from ..terminal.text import count, plain
from .exits import EXIT_NOTHING_DONE, EXIT_SOME_FAILED
from .opening import open_database
from .output import print_table

TAKEN = ("added", "updated", "unchanged", "differing", "data_sets")
"""Counts of what a merge found in its sources and could use."""

SHOWN = 20
"""Conflicts that are printed; `--json` lists all."""


class PlaceOfModels(click.Path):
    """A file or folder that exists, or an address."""

    def __init__(self) -> None:
        super().__init__(exists=True, path_type=str)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """The catalogs that are named."""

    catalogs: tuple[str, ...] = argument(
        nargs=-1, required=True, metavar="TARGET SOURCE...", type=PlaceOfModels()
    )


@click.command()
@takes(Merging)
def merge(common: Common, merging: Merging) -> None:
    """Bring all that the SOURCE catalogs know into the catalog TARGET.

    A SOURCE is a catalog, or a folder of parts from `deltadex index --parts`; it is only read.
    What TARGET has stays: where a source has other weights or labels for a model of the same
    base and id, that is listed as a conflict. Merging again adds nothing. With --db every
    catalog named is a source, and the target is --db, which may be new.

    \b
    Example:
      deltadex merge all.duckdb machine-2.duckdb machine-3.duckdb
      deltadex merge machine-1.duckdb machine-2.duckdb --db all.duckdb
      deltadex merge parts/ --db all.duckdb
    """
    db_source = click.get_current_context().get_parameter_source("db")
    is_new = db_source is ParameterSource.COMMANDLINE
    names = merging.catalogs
    target, sources = (common.db, names) if is_new else (Path(names[0]), names[1:])
    if not sources:
        raise click.UsageError(
            f"nothing to merge into {target}: name the catalogs after it, or the target with --db"
        )
    with open_database(common, target, read_only=False, create=is_new and "late") as db:
        table = db.merge(*sources)
    print_table(table, _show, common)
    if (document := table.to_json())["damaged"]:
        is_any_taken = any(document[taken] for taken in TAKEN)
        sys.exit(EXIT_SOME_FAILED if is_any_taken else EXIT_NOTHING_DONE)


def _show(document: Mapping[str, Any]) -> None:
    for source in document["sources"]:
        counts = ", ".join(f"{source[key]} {key}" for key in ("added", "updated", "unchanged"))
        differing = f", {source['differing']} of other weights" if source["differing"] else ""
        data = f", data sets added: {source['data_sets']}" if source["data_sets"] else ""
        click.echo(f"{source['source']}: {counts}{differing}{data}")
    click.echo(
        f"{document['target']}: {count(document['models'], 'model')}, {document['seconds']:.1f} s"
    )
    for reason in document["damaged"]:
        click.echo(plain(f"left out: {reason}"))
    _show_conflicts(document["conflicts"])


def _show_conflicts(conflicts: Sequence[Mapping[str, Any]]) -> None:
    if conflicts:
        count = f"{len(conflicts)} conflict{'' if len(conflicts) == 1 else 's'}"
        click.echo(f"\n{count} (the target's values were kept):")
    for conflict in conflicts[:SHOWN]:
        name = conflict["model"] or conflict["base"]
        click.echo(f"  {plain(name)}: {conflict['about']}")
        ours, theirs = conflict["kept"], conflict["other"]
        for key in ours:
            if ours[key] != theirs[key]:
                click.echo(plain(f"    {key}: {_text(ours[key])}, not {_text(theirs[key])}"))
    if len(conflicts) > SHOWN:
        click.echo(f"  … and {len(conflicts) - SHOWN} more: --json lists them")


def _text(value: object) -> str:
    return "nothing" if value is None else str(value)
