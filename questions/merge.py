"""What other catalogs know comes into one: `merge`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..options import Place, Question, argument, record
from ..results import Table, count
from .face.opened import Opened
from .terminal.command_line import (
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    Common,
    command_with,
    open_database,
    print_document,
)
from .terminal.text import plain

TAKEN = ("added", "updated", "unchanged", "differing", "data_sets")
"""Counts of what a merge found in its sources and could use."""

CONFLICTS_SHOWN = 20
"""Conflicts that are printed; `--json` lists all."""


@record
class Merge(Question):
    """Bring all that other catalogs know into this one, which wins where they differ.

    Returns:
        One row: counts, `sources`, `conflicts`, and `damaged` parts, which were left out.

    Raises:
        RequestError: a source is this catalog.

    >>> db.merge("other.duckdb")[0]["unchanged"]
    4
    """

    sources: tuple[Place, ...] = argument(
        several=True,
        help="Catalogs, or folders and fsspec addresses of parts (`index(..., parts=...)`).",
    )

    def answer(self, db: Opened) -> Table:
        from ..store import merge_catalogs

        merged = merge_catalogs(
            db._catalog,
            self.sources,
            tracked=lambda batches: db._track(batches, "merging", total=len(batches)),
        )
        return Table(merged.to_json())


def _show_merge(document: Mapping[str, Any]) -> None:
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
        click.echo(f"\n{count(len(conflicts), 'conflict')} (the target's values were kept):")
    for conflict in conflicts[:CONFLICTS_SHOWN]:
        name = conflict["model"] or conflict["base"]
        click.echo(f"  {plain(name)}: {conflict['about']}")
        ours, theirs = conflict["kept"], conflict["other"]
        for key in ours:
            if ours[key] != theirs[key]:
                click.echo(plain(f"    {key}: {_text(ours[key])}, not {_text(theirs[key])}"))
    if len(conflicts) > CONFLICTS_SHOWN:
        click.echo(f"  … and {len(conflicts) - CONFLICTS_SHOWN} more: --json lists them")


def _text(value: object) -> str:
    return "nothing" if value is None else str(value)


@record
class Merging:
    """The catalogs that are named."""

    catalogs: tuple[Place, ...] = argument(
        several=True, file="existing or address", metavar="TARGET SOURCE..."
    )


@command_with(Merging, continues=True)
def command(common: Common, merging: Merging) -> None:
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
        table = Merge(sources).answer(db)
    print_document(table, _show_merge, common)
    if (document := table.to_json())["damaged"]:
        is_any_taken = any(document[taken] for taken in TAKEN)
        sys.exit(EXIT_SOME_FAILED if is_any_taken else EXIT_NOTHING_DONE)
