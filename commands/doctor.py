"""`deltadex doctor`: is the catalog well? What is derived from it is repaired on the way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import Common, option, takes
from ..terminal.text import plain
from .exits import EXIT_SOME_FAILED
from .output import print_document

if TYPE_CHECKING:
    from ..store import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What the doctor may do."""

    check: bool = option("--check", is_flag=True, help="Only look; repair nothing.")


@click.command()
@takes(Examination)
def doctor(common: Common, examination: Examination) -> None:
    """Check the catalog, its derived files, and what they stand in.

    Reads the whole catalog once. What is derived is repaired right away and named: index files,
    sketches, views, notes, temporary files. What is not is never touched: a line says which
    command repairs it. Exit code 1 if a problem remains. A service or an indexing run goes on.

    \b
    Example:
      deltadex doctor
      deltadex doctor --check --json
    """
    from ..store import examine
    from ..terminal import tracked

    findings = []
    track = partial(tracked, quiet=common.quiet)
    for finding in examine(common.db, repairs=not examination.check, track=track):
        findings.append(finding)
        if not common.as_json:
            _show(finding)
    document = _document(common.db, findings)
    print_document(document, lambda _: _show_sum(findings), common)
    if document["problems"]:
        sys.exit(EXIT_SOME_FAILED)


def _document(db: Path, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "db": str(db),
        "checks": [finding.to_json() for finding in findings],
        "repaired": _count(findings, "repaired"),
        "problems": _count(findings, "problem"),
    }


def _count(findings: Sequence[Finding], state: str) -> int:
    return sum(finding.state == state for finding in findings)


def _show(finding: Finding) -> None:
    click.echo(plain(f"{finding.state:<9} {finding.check:<10} {finding.detail}"))
    if finding.advice:
        click.echo(plain(f"{'':<20} → {finding.advice}"))


def _show_sum(findings: Sequence[Finding]) -> None:
    repaired, problems = _count(findings, "repaired"), _count(findings, "problem")
    rest = "all is well" if not problems else f"{problems} to be mended by hand"
    click.echo(f"{repaired} repaired, {rest}" if repaired else rest)
