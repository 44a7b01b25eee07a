"""How commands print what a call of the face returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import Common
from ..terminal.text import csv_text, json_text, plain

if TYPE_CHECKING:
    from ..database import Table


def print_table(table: Table, show: Callable[[Any], None], common: Common) -> None:
    """Print what a call of the face returned: as JSON, or as `show` draws it."""
    print_document(table.to_json(), show, common)


def print_document(
    document: Mapping[str, Any], show: Callable[[Any], None], common: Common
) -> None:
    """Print a document: as JSON, or as `show` draws it."""
    if common.as_json:
        click.echo(json_text(document))
    else:
        show(document)


def print_rows_as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A header and one line per row, on stdout."""
    click.echo(csv_text(columns, rows), nl=False)


def show_pairs(document: Mapping[str, Any]) -> None:
    """One line per key."""
    for key, value in document.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(plain(f"{key}: {shown}"))
