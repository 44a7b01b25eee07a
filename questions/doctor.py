"""Checks and repairs of a catalog: `doctor`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY
from pathlib import Path

from ..options import Place, argument, option, record
from ..results import Document, Row, Shown, Table
from . import terminal
from .face.opened import Track, untracked
from .terminal.command_line import EXIT_SOME_FAILED, Common, command_with, print_document, tracker


class FindingTable(Table):
    """What the checks of a catalog found, a row for each check."""

    columns = ("check", "state", "detail", "advice")
    _key = "checks"

    @property
    def problems(self) -> int:
        """Findings that need a repair by hand."""
        return int(self._document["problems"])


def doctor(
    path: Place,
    *,
    check: bool = False,
    quick: bool = False,
    track: Track = untracked,
    report: Callable[[Row], None] | None = None,
) -> FindingTable:
    """Check the catalog in the file `path`, and repair what is derived from it.

    Args:
        check: Whether nothing is repaired.
        quick: Whether what reads the whole file is left out; a row says so.
        track: Shows the progress of long checks.
        report: Is called with each row as soon as its check is done.

    Returns:
        A row for each check: `check`, `state` (`ok`, `note`, `repaired`, `problem`), `detail`,
        `advice`. A file that is not there or no catalog is a finding, not an error.

    >>> dx.doctor("family.duckdb", check=True).problems
    0
    """
    from ..store import examine

    rows = []
    for finding in examine(Path(path), repairs=not check, quick=quick, track=track):
        rows.append(finding.to_json())
        if report is not None:
            report(rows[-1])
    states = [row["state"] for row in rows]
    return FindingTable(
        {
            "db": str(path),
            "checks": rows,
            "repaired": states.count("repaired"),
            "problems": states.count("problem"),
        }
    )


@record
class Examination:
    """Check the catalog and its folder; or the catalog or backup FILE.

    Reads the whole file once. Files that nothing reads are removed, and named. Nothing else is
    changed: a line names the command that repairs it. Exit code 1 if a problem remains. A service
    or an indexing run goes on.
    """

    file: Path | None = argument(default=None, file="any")
    _: KW_ONLY
    check: bool = option(default=False, help="Repair nothing.")
    quick: bool = option(
        default=False, help="Leave out what reads the whole file; a line says what that is."
    )


@command_with(
    Examination, examples=("doctor", "doctor --check --json", "doctor family-monday.duckdb --check")
)
def command(common: Common, examination: Examination) -> None:
    table = doctor(
        examination.file or common.db,
        check=examination.check,
        quick=examination.quick,
        track=tracker(quiet=common.quiet),
        report=None if common.as_json else lambda row: terminal.show_answer(_show_finding(row)),
    )
    print_document(table, _show_counts, common)
    if table.problems:
        sys.exit(EXIT_SOME_FAILED)


def _show_finding(finding: Row) -> Shown:
    yield f"{finding['state']:<9} {finding['check']:<10} {finding['detail']}"
    if finding["advice"]:
        yield f"{'':<20} → {finding['advice']}"


def _show_counts(document: Document) -> Shown:
    repaired, problems = document["repaired"], document["problems"]
    rest = f"{problems} to be repaired by hand" if problems else "no problems"
    yield f"{repaired} repaired, {rest}" if repaired else rest
