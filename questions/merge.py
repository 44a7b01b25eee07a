"""What other catalogs know comes into one: `merge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..options import Place, Question, argument, record
from ..results import Shown, Table, count
from .face.opened import Opened
from .terminal.command_line import Common, command_with, exit_by, open_database, print_document

TAKEN = ("added", "updated", "unchanged", "differing", "data_sets")
"""Counts of what a merge found in its sources and could use."""

CONFLICTS_SHOWN = 20
"""Conflicts that are printed; `--json` lists all."""


@record
class Merge(Question):
    """Bring all that other catalogs know into this one.

    A source is a catalog, or a folder of parts from `deltadex index --parts`; it is only read. What
    the target has stays: where a source has other weights or labels for a model of the same base
    and id, that is listed as a conflict. Merging again adds nothing. The first catalog named is the
    target; with --db every one is a source, and the target is --db, which may be new.

    Returns:
        One row: counts, `sources`, `conflicts`, and `damaged` parts, which were left out.

    Raises:
        RequestError: a source is this catalog.

    >>> db.merge("other.duckdb")[0]["unchanged"]
    4
    """

    sources: tuple[Place, ...] = argument(
        several=True,
        file="existing or address",
        metavar="TARGET SOURCE...",
        help="Catalogs, or folders and fsspec addresses of parts (`index(..., parts=...)`).",
    )

    def answer(self, db: Opened) -> Table:
        from ..store import merge_catalogs

        return Table(merge_catalogs(db._catalog, self.sources, track=db._track))


def _show_merge(document: Mapping[str, Any]) -> Shown:
    for source in document["sources"]:
        counts = ", ".join(f"{source[key]} {key}" for key in ("added", "updated", "unchanged"))
        differing = f", {source['differing']} of other weights" if source["differing"] else ""
        data = f", data sets added: {source['data_sets']}" if source["data_sets"] else ""
        yield f"{source['source']}: {counts}{differing}{data}"
    yield f"{document['target']}: {count(document['models'], 'model')}, {document['seconds']:.1f} s"
    for reason in document["damaged"]:
        yield f"left out: {reason}"
    yield from _show_conflicts(document["conflicts"])


def _show_conflicts(conflicts: Sequence[Mapping[str, Any]]) -> Shown:
    if conflicts:
        yield f"{count(len(conflicts), 'conflict')} (the target's values were kept):"
    for conflict in conflicts[:CONFLICTS_SHOWN]:
        name = conflict["model"] or conflict["base"]
        yield f"  {name}: {conflict['about']}"
        ours, theirs = conflict["kept"], conflict["other"]
        for key in ours:
            if ours[key] != theirs[key]:
                yield f"    {key}: {_text(ours[key])}, not {_text(theirs[key])}"
    if len(conflicts) > CONFLICTS_SHOWN:
        yield f"  … and {len(conflicts) - CONFLICTS_SHOWN} more: --json lists them"


def _text(value: object) -> str:
    return "nothing" if value is None else str(value)


@command_with(
    Merge,
    continues=True,
    examples=(
        "merge all.duckdb machine-2.duckdb machine-3.duckdb",
        "merge machine-1.duckdb machine-2.duckdb --db all.duckdb",
        "merge parts/ --db all.duckdb",
    ),
)
def command(common: Common, asked: Merge) -> None:
    db_source = click.get_current_context().get_parameter_source("db")
    is_new = db_source is ParameterSource.COMMANDLINE
    names = asked.sources
    target, sources = (common.db, names) if is_new else (Path(names[0]), names[1:])
    if not sources:
        raise click.UsageError(
            f"nothing to merge into {target}: name the catalogs after it, or the target with --db"
        )
    with open_database(common, target, read_only=False, create=is_new and "late") as db:
        table = Merge(sources).answer(db)
    print_document(table, _show_merge, common)
    document = table.to_json()
    exit_by(document["damaged"], any(document[taken] for taken in TAKEN))
