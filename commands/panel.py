"""Panels: data sets whose gradients several families have."""

from __future__ import annotations

import sys
from dataclasses import KW_ONLY
from pathlib import Path

import click

from .. import database, terminal
from ..options import as_kind, record
from .command_line import (
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    Common,
    command,
    open_database,
    output_file,
    print_answer,
    print_document,
    show_pairs,
)


@click.group()
def panel() -> None:
    """Build, list, show and drop panels: data sets that models of several bases are compared by.

    \b
    Example:
      deltadex panel build
      deltadex panel ls
    """


@command(database.BuildPanel, group=panel, continues=True)
def build(common: Common, asked: database.BuildPanel) -> None:
    """Compute the gradient of each data set of a panel on the base of every family.

    FOLDER has a file or folder for each data set; without it, the panel that comes with deltadex is
    computed. What is done is stored, and not computed again: the command continues where it
    stopped, and costs nothing after models were added.

    \b
    Example:
      deltadex panel build our-data/
      deltadex panel build reviews.csv questions.csv --name ours --dry-run
    """
    with open_database(common, read_only=asked.dry_run) as db:
        report = asked.answer(db)
    print_document(report, terminal.show_panel_report, common)
    if report.failed:
        sys.exit(EXIT_SOME_FAILED if report.is_any_there else EXIT_NOTHING_DONE)


@command(database.Panels, group=panel)
def ls(common: Common, asked: database.Panels) -> None:
    """List the panels, and on which bases they were computed.

    \b
    Example:
      deltadex panel ls
    """
    print_answer(common, asked, lambda document: terminal.show_panels(document))


@record
class PanelFile:
    """The file of a panel."""

    _: KW_ONLY
    output: Path | None = output_file(
        "Write z of every data set with the models of all bases: .csv, or drawn as .png, .svg, "
        ".html; or each model's highest z: .md, .tex."
    )


@command(database.ShowPanel, PanelFile, group=panel)
def show(common: Common, asked: database.ShowPanel, file: PanelFile) -> None:
    """Show the data sets of the panel NAME, and the bases that have each.

    \b
    Example:
      deltadex panel show our-data
      deltadex panel show our-data -o heat-map.png
    """
    if file.output is not None:
        database.check_scores_ending(file.output)
    with open_database(common) as db:
        table = asked.answer(db)
        if file.output is not None:
            as_kind(database.ScorePanel, asked).answer(db).save(file.output)
    print_document(table, terminal.show_panel, common)


@command(database.DropPanel, group=panel, prints_table=False)
def drop(common: Common, asked: database.DropPanel) -> None:
    """Forget the panel NAME, of every base or of one.

    \b
    Example:
      deltadex panel drop our-data
    """
    print_answer(common, asked, show_pairs, read_only=False)
