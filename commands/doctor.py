"""`deltadex doctor`: check the catalog, and repair what is derived from it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..terminal.options import Common, argument, option, takes
from ..terminal.text import plain
from .exits import EXIT_SOME_FAILED
from .opening import tracker
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What the doctor looks at, and what it may do."""

    file: Path | None = argument(required=False)
    check: bool = option("--check", help="Repair nothing.")


@click.command()
@takes(Examination)
def doctor(common: Common, examination: Examination) -> None:
    """Check the catalog, its derived files and their folder; or the catalog or backup FILE.

    Reads the whole file once. What is derived is repaired right away and named: indexes,
    sketches, views, notes, temporary files. A backup is compared with its manifest. Nothing else
    is changed: a line names the command that repairs it. Exit code 1 if a problem remains. A
    service or an indexing run goes on.

    \b
    Example:
      deltadex doctor
      deltadex doctor --check --json
      deltadex doctor family-monday.duckdb --check
    """
    from ..database import doctor as examine

    table = examine(
        examination.file or common.db,
        check=examination.check,
        track=tracker(quiet=common.quiet),
        report=None if common.as_json else _show,
    )
    print_table(table, _show_counts, common)
    if table.problems:
        sys.exit(EXIT_SOME_FAILED)


def _show(finding: Mapping[str, Any]) -> None:
    click.echo(plain(f"{finding['state']:<9} {finding['check']:<10} {finding['detail']}"))
    if finding["advice"]:
        click.echo(plain(f"{'':<20} → {finding['advice']}"))


def _show_counts(document: Mapping[str, Any]) -> None:
    repaired, problems = document["repaired"], document["problems"]
    rest = f"{problems} to be repaired by hand" if problems else "no problems"
    click.echo(f"{repaired} repaired, {rest}" if repaired else rest)
