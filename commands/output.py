"""How commands print what a call of the face returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any

import click

from ..options import option, record
from ..terminal.text import csv_text, json_text, plain
from .command_line import Common
from .opening import open_database

if TYPE_CHECKING:
    from ..database import Create, Table, Tabled


def print_answer(
    common: Common,
    asked: Tabled,
    show: Callable[[Any], None],
    *,
    read_only: bool | None = True,
    create: Create = False,
    engine: str = "faiss",
) -> Table:
    """Ask the catalog, print the answer as JSON or as `show` draws it, and return it."""
    with open_database(common, read_only=read_only, create=create, engine=engine) as db:
        table = asked.answer(db)
    print_table(table, show, common)
    return table


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


@record
class Display:
    """How rows are shown."""

    _: KW_ONLY
    as_csv: bool = option("--csv", default=False, help="Print CSV on stdout.")
    wide: bool = option(default=False, help="Do not shorten cells to the width of the terminal.")

    def check(self, common: Common) -> None:
        """Raises `click.UsageError` where two forms are wanted."""
        if self.as_csv and common.as_json:
            raise click.UsageError("give --csv, or --json")


def print_rows(
    table: Table,
    columns: Sequence[str],
    show: Callable[[Any], None],
    display: Display,
    common: Common,
) -> None:
    """Print rows: as CSV with a header, as JSON, or as `show` draws them."""
    if display.as_csv:
        rows = ([row[column] for column in columns] for row in table)
        click.echo(csv_text(columns, rows), nl=False)
    else:
        print_table(table, show, common)


def show_pairs(document: Mapping[str, Any]) -> None:
    """One line per key."""
    for key, value in document.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(plain(f"{key}: {shown}"))
