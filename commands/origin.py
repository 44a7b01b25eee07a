"""Questions about where models come from: lineage."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from .. import database, terminal
from ..options import option, record
from .command_line import Common, command, open_database, output_file, print_document


@record
class LineageFile:
    """The picture of a lineage, and how much of it is printed."""

    _: KW_ONLY
    output: Path | None = output_file("Draw the tree: .svg, .png, .html, or .dot for Graphviz.")
    everything: bool = option("--all", default=False, help="Print every model and every claim.")


@command(database.Lineage, LineageFile)
def lineage(common: Common, asked: database.Lineage, file: LineageFile) -> None:
    """Show which models of a family were trained from which.

    Every edge has a probability; a model of which none is likely enough hangs at BASE. Cards are
    no evidence: what they say is shown beside it.

    \b
    Example:
      deltadex lineage bert-base-uncased
      deltadex lineage bert-base-uncased -o tree.svg
      deltadex lineage --json
    """
    if file.output is not None:
        database.check_lineage_ending(file.output)
    with open_database(common) as db:
        table = asked.answer(db)
    document = table.to_json()
    if file.output is not None:
        document["picture"] = str(table.save(file.output))

    def show(document: Any) -> None:
        terminal.show_lineage(document, everything=file.everything)

    print_document(document, show, common)
