"""`deltadex label`: what a model was trained on, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click

from ..terminal.options import Common, argument, base_option, option, takes
from ..terminal.text import plain
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLabel:
    """A model of the catalog, and its new labels."""

    model: str = argument()
    dataset: str | None = argument(required=False)
    author: str | None = option("--author", help="Who trained it.")
    run: str | None = option("--run", help="The training run; its checkpoints share it.")
    clear: bool = option("--clear", help="Remove its dataset.")
    base: str | None = base_option()


@click.command()
@takes(NewLabel)
def label(common: Common, new: NewLabel) -> None:
    """Label the indexed MODEL: it was trained on DATASET.

    The label counts as one from a labels file: it overrides what the model says of itself, and
    stays when the model is indexed again.

    \b
    Example:
      deltadex label someone/bert-imdb imdb
      deltadex label someone/mystery --clear
    """
    with open_database(common, read_only=False) as db:
        table = db.label(**asdict(new))
    print_table(table, _show, common)


def _show(document: Mapping[str, Any]) -> None:
    click.echo(plain(document["model"]))
    for name in ("dataset", "author", "run"):
        value, before = document[name] or "–", document["before"][name] or "–"
        change = "" if value == before else f"  (was {before})"
        click.echo(plain(f"  {name}: {value}{change}"))
