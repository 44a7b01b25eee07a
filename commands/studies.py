"""`deltadex rank`, `deltadex geometry` and every other study: a command for each record."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, Literal

import click

from .. import database, terminal
from ..options import option, record
from ..study.registry import record_of
from .command_line import EXIT_SOME_FAILED, Common, command, print_document, tracker


@record
class Drawing:
    """The picture of a study, and what is printed beside it."""

    _: KW_ONLY
    output: Path | None = option(
        "-o",
        "--output",
        default=None,
        file="file",
        help="Draw it: a .png or .svg file, or a page (.html) with tables of the values.",
    )
    width: Literal["column", "full"] = option(
        default="full", help="Width of the picture: 85 mm (a column of a page) or 180 mm."
    )
    everything: bool = option(
        "--all", default=False, help="Print every measure that the report has."
    )


def command_of(method: str) -> click.Command:
    """The command of a study, by the name of its method."""
    study = record_of(method)
    lines = "\n".join(f"  deltadex {example}" for example in study.examples)
    says = re.split(r"\n\n(?:Returns:|Raises:|>>>)", inspect.getdoc(study) or "")[0]

    @command(
        study,
        *([Drawing] if study.has_picture else []),
        name=method.replace("_", "-"),
        help=f"{says}\n\n\b\nExample:\n{lines}",
    )
    def run(common: Common, asked: Any, drawing: Drawing = Drawing()) -> None:  # noqa: B008
        if drawing.output is not None:
            database.check_picture_ending(drawing.output)  # before anything is computed
        # the catalog stores studies; a folder can be studied without one
        path = common.db if common.db.exists() else None
        track = tracker(quiet=common.quiet)
        with database.open(path, read_only=None if path else False, track=track) as db:
            table = db.studies.ask(asked)
            document = table.to_json()
            if drawing.output is not None:
                picture = table.save_picture(drawing.output, width=drawing.width)
                document["picture"] = str(picture)

        def show(document: Any) -> None:
            terminal.show_study(table.sections(everything=drawing.everything), document)

        print_document(document, show, common)
        if document.get("failed"):
            sys.exit(EXIT_SOME_FAILED)

    return run
