"""How a command ends: picture, document, exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import Common
from ..terminal.text import csv_text, json_text, plain
from .exits import EXIT_SOME_FAILED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def print_document(
    document: Mapping[str, Any], show: Callable[[Any], None], common: Common
) -> None:
    """Print the document: as JSON, or as `show` draws it."""
    if common.as_json:
        click.echo(json_text(document))
    else:
        show(document)


def print_studies(document: Mapping[str, Any], show: Callable[[Any], None], common: Common) -> None:
    """Print the document; exit 1 where it lists models that could not be studied."""
    print_document(document, show, common)
    if document.get("failed"):
        sys.exit(EXIT_SOME_FAILED)


def finish_study(
    document: Mapping[str, Any],
    draw: Callable[[], Figure],
    picture: Path | None,
    title: str,
    show: Callable[[Any], None],
    common: Common,
) -> None:
    """Draw the picture if there is to be one, then `print_studies`."""
    if picture is not None:
        from ..study.pictures import save_picture

        save_picture(draw, picture, title=title)
        document = dict(document) | {"picture": str(picture)}
    print_studies(document, show, common)


def check_picture(picture: Path | None) -> None:
    """Refuse a file name that no picture can have, before anything is computed.

    Raises:
        StudyError: its ending is not one of a picture.
    """
    if picture is not None:
        from ..study.pictures import check_ending

        check_ending(picture)


def print_rows_as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A header and one line per row, on stdout."""
    click.echo(csv_text(columns, rows), nl=False)


def show_pairs(document: Mapping[str, Any]) -> None:
    """One line per key."""
    for key, value in document.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(plain(f"{key}: {shown}"))
