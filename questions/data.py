"""Kept data sets: `data ls`, `data show`, `data rm`."""

from __future__ import annotations

import click

from ..options import Question, argument, option, record
from ..results import Document, Section, Shown, Table
from .face.opened import ONLY_FAMILY, Opened
from .find_trained_on.answers import described
from .terminal.command_line import asking, show_pairs


class KeptDataTable(Table):
    """Kept data sets: `name`, `base`, `loss`, `examples`, `sha256`, `recipe`, `settings`,
    `counts`, `made_at`."""

    columns = ("name", "base", "loss", "examples", "made_at")
    _key = "data"


@record
class KeptData(Question):
    """List the kept data sets.

    >>> len(db.data())
    0
    """

    stability = "provisional"

    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> KeptDataTable:
        listed = db._catalog.data_sets.listed(db._catalog.find_base(self.base))
        return KeptDataTable({"data": listed})


@record
class OneDataSet(Question):
    """A kept data set."""

    stability = "provisional"

    name: str = argument(help="Name that the data set was kept under.")
    base: str | None = option(default=None, help=ONLY_FAMILY)


@record
class ShowData(OneDataSet):
    """Show all that is kept of a data set, but its numbers.

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


def show_data_sets(document: Document) -> Shown:
    if document["data"]:
        yield Section.of(KeptDataTable.columns, document["data"])
    else:
        yield "no data set is kept: `deltadex find-trained-on FILE --keep NAME` keeps one"


@click.group()
def command() -> None:
    """List, show and remove kept data sets: fingerprints, counts, hash and settings, no texts.

    \b
    Example:
      deltadex data ls
      deltadex data show acme-chats
    """


ls = asking(KeptData, show_data_sets, "data ls", group=command)

show = asking(ShowData, show_pairs, "data show acme-chats", group=command)

rm = asking(
    RemoveData, show_pairs, "data rm acme-chats", group=command, prints_table=False, read_only=False
)
