"""`deltadex label`: what a model was trained on, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..terminal.options import Common, argument, base_option, option, takes
from ..terminal.text import plain
from .output import print_document

if TYPE_CHECKING:
    from ..store import ModelRow

LABELS = ("dataset", "author", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLabel:
    """A model of the catalog, and what is said of it."""

    model: str = argument()
    dataset: str | None = argument(required=False)
    author: str | None = option("--author", help="Who trained it.")
    run: str | None = option("--run", help="The training run; its checkpoints share it.")
    clear: bool = option("--clear", is_flag=True, help="Its dataset is unknown.")
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
    from ..store import Catalog

    dataset = _dataset(new)
    with Catalog.open(common.db, create=False) as catalog:
        before, after = catalog.label(
            new.model, catalog.find_base(new.base), dataset=dataset, author=new.author, run=new.run
        )
    document = {
        "model": after.id,
        "base": after.base,
        **_labels(after),
        "before": _labels(before),
    }
    print_document(document, _show, common)


def _dataset(new: NewLabel) -> str | None:
    """The dataset to store, "" for none; None where the label is about something else.

    Raises:
        click.UsageError: nothing is said, or two things at once.
    """
    if new.clear and new.dataset is not None:
        raise click.UsageError("give a DATASET, or --clear")
    if new.clear:
        return ""
    if new.dataset is None and new.author is None and new.run is None:
        raise click.UsageError("give a DATASET, or --clear, --author or --run")
    if any(value is not None and not value.strip() for value in (new.dataset, new.author, new.run)):
        raise click.UsageError("an empty label says nothing; --clear takes the dataset away")
    return None if new.dataset is None else new.dataset.strip()


def _labels(row: ModelRow) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in LABELS},
        "label_source": row.record.label_source,
    }


def _show(document: Mapping[str, Any]) -> None:
    click.echo(plain(document["model"]))
    for name in LABELS:
        value, before = document[name] or "–", document["before"][name] or "–"
        change = "" if value == before else f"  (was {before})"
        click.echo(plain(f"  {name}: {value}{change}"))
