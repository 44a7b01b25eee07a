"""`deltadex ls`: the models of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click

from ..terminal.options import Common, Filters, base_option, option, takes
from .catalog import open_catalog
from .output import print_document, print_rows_as_csv


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which models are listed."""

    base: str | None = base_option()
    status: str | None = option(
        "--status",
        type=click.Choice(["indexed", "failed", "skipped", "no-update"]),
        help="Only models of this status.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the list is shown."""

    columns: str | None = option(
        "--columns",
        metavar="A,B,…",
        help="Show these columns.  [default: model,status,code,dataset,author,run; JSON has all]",
    )
    sort: str | None = option(
        "--sort", metavar="COLUMN", help="Sort by a column.  [default: base, then model]"
    )
    reverse: bool = option("--reverse", is_flag=True, help="Sort the largest first.")
    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Show the first N models."
    )
    as_csv: bool = option("--csv", is_flag=True, help="Print CSV on stdout.")
    wide: bool = option(
        "--wide", is_flag=True, help="Do not shorten cells to the width of the terminal."
    )


@click.command("ls")
@takes(Listing, Filters, Layout)
def list_models(common: Common, listing: Listing, filters: Filters, layout: Layout) -> None:
    """The models of the catalog.

    Columns are the keys that --json prints.

    \b
    Example:
      deltadex ls --where "dataset IS NULL AND status = 'indexed'"
      deltadex ls --columns model,downloads --sort downloads --reverse --limit 20
    """
    from ..store import ModelRow
    from ..terminal import MODEL_COLUMNS, show_models

    if layout.as_csv and common.as_json:
        raise click.UsageError("give --csv, or --json")
    known = ModelRow.columns()
    columns = _columns(layout.columns, known) if layout.columns is not None else None
    (sort,) = _columns(layout.sort, known) if layout.sort is not None else (None,)
    with open_catalog(common.db) as catalog:
        base = catalog.find_base(listing.base)
        rows = catalog.models(base=base, status=listing.status, **asdict(filters))
    models = _sorted([row.to_json() for row in rows], sort, reverse=layout.reverse)[: layout.limit]
    shown = columns or MODEL_COLUMNS
    if layout.as_csv:
        print_rows_as_csv(shown, ([model[column] for column in shown] for model in models))
        return
    if columns is not None:
        models = [{column: model[column] for column in columns} for model in models]
    document = {"models": models, "total": len(rows)}
    print_document(document, partial(show_models, columns=shown, wide=layout.wide), common)


def _columns(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The columns that a user names.

    Raises:
        click.UsageError: naming the one that is none, and those that are.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    # the table `models` calls it so
    columns = tuple("model" if name == "id" else name for name in names)
    unknown = [name for name in columns if name not in known]
    if unknown or not columns:
        raise click.UsageError(
            f"no column {(unknown or [text])[0]!r}; columns: {', '.join(sorted(known))}"
        )
    return columns


def _sorted(
    rows: Sequence[dict[str, Any]], column: str | None, *, reverse: bool
) -> list[dict[str, Any]]:
    """The rows by one column, unknown values last; equal ones in the order that they had."""
    if column is None:
        return list(reversed(rows)) if reverse else list(rows)
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]
    return sorted(known, key=lambda row: row[column], reverse=reverse) + unknown
