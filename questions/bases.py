"""The bases that models are compared with: `bases`."""

from __future__ import annotations

from dataclasses import KW_ONLY

import click

from ..errors import RequestError
from ..options import Place, Question, argument, option, record
from ..results import Document, Section, Shown, Table
from .face.opened import Opened
from .terminal.command_line import Common, asking, command_with, exit_by, print_answer
from .terminal.text import plain


class KnownBaseTable(Table):
    """The bases that models are compared with: `base`, `state`, what its config says, `bytes` that
    are kept of it, and the `reason` where it could not be read."""

    columns = ("base", "state", "type", "layers", "width", "vocabulary", "models", "reason")
    _key = "bases"


@record
class AddBases(Question):
    """Register bases that `trace` compares models with: folders or Hub ids.

    At most 2 MiB of each is kept.

    Returns:
        A row for each base that was read, and `failed`: `base` and `reason` of the others.

    >>> len(db.known_bases.add("base"))
    1
    """

    stability = "provisional"

    bases: tuple[Place, ...] = argument(
        several=True, metavar="BASE...", help="Folders, or ids of models on the Hub."
    )

    def answer(self, db: Opened) -> KnownBaseTable:
        from ..provenance import register

        rows, failed = [], []
        for base in self.bases:
            try:
                rows.append(register(db._catalog, str(base)).to_json())
            except RequestError as err:
                failed.append({"base": str(base), "reason": str(err)})
        return KnownBaseTable({"bases": rows, "failed": failed})


@record
class KnownBases(Question):
    """List the known bases; those of families are read now, where they were not before.

    >>> [row["state"] for row in db.known_bases()]
    ['known']
    """

    stability = "provisional"

    _: KW_ONLY
    offline: bool = option(default=False, help="Read only files that are on this machine.")

    def answer(self, db: Opened) -> KnownBaseTable:
        from ..provenance import known_bases

        known = known_bases(db._catalog, db._track, offline=self.offline)
        return KnownBaseTable({"bases": [base.to_json() for base in known], "failed": []})


def show_bases(document: Document) -> Shown:
    """A row for each base that models are compared with; on stderr those that were not read."""
    if document["bases"]:
        yield Section.of(KnownBaseTable.columns, document["bases"])
    elif not document["failed"]:
        yield "no base is known: `deltadex bases add BASE`, or index a family"
    for row in document["failed"]:
        click.echo(plain(row["reason"]), err=True)


@click.group()
def command() -> None:
    """List and add the bases that `trace` compares models with.

    \b
    Example:
      deltadex bases add google-bert/bert-base-uncased
      deltadex bases ls
    """


@command_with(
    AddBases, group=command, examples=("bases add google-bert/bert-base-uncased ./our-base",)
)
def add(common: Common, asked: AddBases) -> None:
    if not asked.bases:
        raise click.UsageError("no base given: name a folder or a Hub id")
    table = print_answer(common, asked, show_bases, read_only=False, create="late")
    exit_by(table.to_json()["failed"], len(table))


ls = asking(KnownBases, show_bases, "bases ls", group=command, read_only=None)
