"""Where models come from: audit."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path

from .. import database, terminal
from ..options import record
from .command_line import Common, command, open_database, output_file, print_document


@record
class AuditFile:
    """The file of an audit."""

    _: KW_ONLY
    output: Path | None = output_file("Write the findings: .csv, .tex or .md.")


@command(database.Audit, AuditFile)
def audit(common: Common, asked: database.Audit, file: AuditFile) -> None:
    """List what stands out among the models of a family, or of one model.

    Copies, frozen parts, edits along one direction, updates below storage rounding, outliers,
    licences in conflict with an ancestor's, cards that name another base or data set than the
    weights do. docs/audit.md has the error rate of each, and what it cannot see.

    \b
    Example:
      deltadex audit bert-base-uncased --kind edit
      deltadex audit --where "downloads > 1000" -o findings.md
    """
    if file.output:
        database.check_table_ending(file.output)
    with open_database(common) as db:
        table = asked.answer(db)
    if file.output:
        table.save(file.output)
    print_document(table.to_json(), lambda document: terminal.show_audit(document), common)
