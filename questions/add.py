"""Single models come into a catalog: `add`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from ..indexer import Fingerprinting
from ..options import Place, argument, option, record
from .face.opened import Opened
from .index import IndexReport, Strictness, index_models, run_with_progress
from .terminal.command_line import Common, command_with

if TYPE_CHECKING:
    from ..indexer import Progress


@record
class Add(Fingerprinting):
    """Add single models: Hub ids or folders; otherwise as `index`.

    >>> db.add("models/imdb-0", base="base").to_json()["failed"]
    []
    """

    models: tuple[Place, ...] = argument(
        several=True, metavar="MODEL...", help="Folders, or ids of models on the Hub."
    )
    _: KW_ONLY
    base: Place = option(help="The base that the models descend from.")
    progress: Progress | None = None

    def answer(self, db: Opened) -> IndexReport:
        return index_models(self, db)


@command_with(
    Add, Strictness, examples=("add someone/bert-imdb ./my-run --base bert-base-uncased",)
)
def command(common: Common, asked: Add, strictness: Strictness) -> None:
    run_with_progress(common, asked, strictness)
