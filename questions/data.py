"""Kept data sets: `data ls`, `data show`, `data rm`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ..options import Question, argument, option, record
from ..results import Document, Table
from . import terminal
from .face.opened import ONLY_FAMILY
from .find_trained_on.families import described
from .terminal.command_line import asking, show_pairs
from .terminal.text import escaped

if TYPE_CHECKING:
    from .face.opened import Opened


class DataTable(Table):
    """Kept data sets: `name`, `base`, `loss`, `examples`, `sha256`, `recipe`, `settings`,
    `counts`, `made_at`."""

    columns = ("name", "base", "loss", "examples", "made_at")
    _key = "data"


@record
class KeptData(Question):
    """The kept data sets: a row each with `name`, `base`, `loss`, `examples`, `sha256`, ….

    >>> len(db.data())
    0
    """

    stability = "provisional"

    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> DataTable:
        listed = db._catalog.data_sets.listed(db._catalog.find_base(self.base))
        return DataTable({"data": listed})


@record
class OneDataSet(Question):
    """A kept data set."""

    stability = "provisional"

    name: str = argument(help="Name that the data set was kept under.")
    base: str | None = option(default=None, help=ONLY_FAMILY)


@record
class ShowData(OneDataSet):
    """Everything that is kept of a data set, but its numbers.

    >>> _ = db.data.find_models("reviews.csv", k=1, keep="reviews")
    >>> db.data.show("reviews").to_json()["counts"]["classes"]
    2
    """

    def answer(self, db: Opened) -> Table:
        data = db._catalog.data_sets.load(self.name, db._catalog.find_base(self.base))
        parts = {part: len(slots) for part, slots in data.sketches.items()}
        return Table({**described(data), "norm": data.fingerprint.norm, "sketches": parts})


@record
class RemoveData(OneDataSet):
    """Forget a kept data set. One row: `removed` and `base`.

    >>> _ = db.data.find_models("reviews.csv", k=1, keep="reviews")
    >>> db.data.remove("reviews").to_json()["removed"]
    'reviews'
    """

    def answer(self, db: Opened) -> Table:
        row = db._catalog.data_sets.remove(self.name, db._catalog.find_base(self.base))
        return Table({"removed": row["name"], "base": row["base"]})


def show_data_sets(document: Document) -> None:
    """The kept data sets, a line each."""
    if document["data"]:
        terminal.say_rows(("name", "base", "loss", "examples", "made_at"), document["data"])
    else:
        terminal.say("no data set is kept: `deltadex find-trained-on FILE --keep NAME` keeps one")


def show_data_set(document: Document) -> None:
    """Everything that is kept of a data set."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name} {entry}" for name, entry in value.items() if entry != {})
        if value not in (None, ""):
            terminal.say(f"[dim]{key:>10}[/]  {escaped(value)}")


@click.group()
def command() -> None:
    """List, show and remove kept data sets: fingerprints, counts, hash and settings, no texts.

    \b
    Example:
      deltadex data ls
      deltadex data show acme-chats
    """


ls = asking(
    KeptData,
    show_data_sets,
    "List the kept data sets.",
    "data ls",
    group=command,
)

show = asking(
    ShowData,
    show_data_set,
    "Show all that is kept of the data set NAME.",
    "data show acme-chats",
    group=command,
)

rm = asking(
    RemoveData,
    show_pairs,
    "Forget the data set NAME.",
    "data rm acme-chats",
    group=command,
    prints_table=False,
    read_only=False,
)
