"""How commands ask a catalog, print what it answers, and end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, TypeVar

import click

from .. import database, terminal
from ..options import option, record
from ..terminal.text import csv_text, json_text, plain
from .command_line import Common

EXIT_SOME_FAILED, EXIT_NOTHING_DONE = 1, 3
"""Exit codes beside 0 (done) and 2 (usage)."""

Thing = TypeVar("Thing")


def open_database(
    common: Common,
    path: Path | None = None,
    *,
    read_only: bool | None = True,
    create: database.Create = False,
    engine: str = "faiss",
) -> database.Opened:
    """The catalog of `--db`, or another; raises as `deltadex.open`."""
    return database.open_as(
        database.Opened,
        path or common.db,
        read_only=read_only,
        create=create,
        engine=engine,
        track=tracker(quiet=common.quiet),
    )


def tracker(*, quiet: bool) -> database.Track:
    """Progress on stderr, loaded when something is tracked."""

    def track(things: Iterable[Thing], what: str, *, total: int | None = None) -> Iterator[Thing]:
        return terminal.tracked(things, what, quiet=quiet, total=total)

    return track


def print_answer(
    common: Common, asked: database.Tabled, show: Callable[[Any], None], **opening: Any
) -> database.Table:
    """Ask the catalog, print the answer and return it; `opening` is passed to `open_database`."""
    with open_database(common, **opening) as db:
        table = asked.answer(db)
    print_document(table.to_json(), show, common)
    return table


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

    def print(
        self,
        table: database.Table,
        names: Sequence[str],
        show: Callable[[Any], None],
        common: Common,
    ) -> None:
        """Print rows: as CSV with a header, as JSON, or as `show` draws them."""
        if self.as_csv:
            rows = ([row[name] for name in names] for row in table)
            click.echo(csv_text(names, rows), nl=False)
        else:
            print_document(table.to_json(), show, common)


def show_pairs(document: Mapping[str, Any]) -> None:
    """One line per key."""
    for key, value in document.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(plain(f"{key}: {shown}"))
