"""Is the catalog well? What is derived from it is mended on the way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import common
from ..terminal.text import plain
from .boundary import EXIT_SOME_FAILED
from .output import print_document

if TYPE_CHECKING:
    from ..store import Finding


@click.command()
@click.option("--check", "only_look", is_flag=True, help="Only look; mend nothing.")
@common
def doctor(db: Path, as_json: bool, quiet: bool, only_look: bool) -> None:
    """Check the catalog, its derived files, and what they stand in.

    Reads the whole catalog once. What is derived is mended right away and named: index files,
    sketches, views, notes, temporary files. What is not is never touched: a line says which
    command mends it. Exit code 1 if a problem remains. A service or an indexing run goes on.

    \b
    Example:
      deltadex doctor
      deltadex doctor --check --json
    """
    from ..store import examine
    from ..terminal import tracked

    found = []
    for finding in examine(db, repairs=not only_look, track=partial(tracked, quiet=quiet)):
        found.append(finding)
        if not as_json:
            _show(finding)
    document = _document(db, found)
    print_document(document, lambda _: _show_sum(found), as_json)
    if document["problems"]:
        sys.exit(EXIT_SOME_FAILED)


def _document(db: Path, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "db": str(db),
        "checks": [finding.to_json() for finding in found],
        "repaired": _count(found, "repaired"),
        "problems": _count(found, "problem"),
    }


def _count(found: Sequence[Finding], state: str) -> int:
    return sum(finding.state == state for finding in found)


def _show(finding: Finding) -> None:
    click.echo(plain(f"{finding.state:<9} {finding.check:<10} {finding.detail}"))
    if finding.advice:
        click.echo(plain(f"{'':<20} → {finding.advice}"))


def _show_sum(found: Sequence[Finding]) -> None:
    repaired, problems = _count(found, "repaired"), _count(found, "problem")
    rest = "all is well" if not problems else f"{problems} to be mended by hand"
    click.echo(f"{repaired} repaired, {rest}" if repaired else rest)
