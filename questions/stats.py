"""Counts of models, data sets and recipes: `stats`."""

from __future__ import annotations

from dataclasses import KW_ONLY

from ..options import Question, option, record
from ..results import Document, Section, Shown, Table, percent, size
from .face.opened import Opened
from .plan import COMPARED
from .terminal.command_line import asking


class StatsTable(Table):
    """Counts of the whole catalog, a row for each family."""

    columns = ("base", "models", "indexed", "labelled", "datasets")
    _key = "bases"


@record
class Stats(Question):
    """Count the models, datasets and recipes of the catalog, and its bytes.

    >>> db.stats()[0]["labelled"]
    4
    """

    _: KW_ONLY
    content_hash: bool = option(
        "--hash",
        default=False,
        doors="local",
        help="Give `content_sha256` too, a hash of all models: equal for catalogs that say the "
        "same of them, however and wherever they were indexed. Reads the whole catalog.",
    )

    def answer(self, db: Opened) -> StatsTable:
        from ..store import content_sha256

        counts = db._catalog.stats()
        if self.content_hash:
            counts["content_sha256"] = content_sha256(db._catalog)
        return StatsTable(counts)


def show_stats(document: Document) -> Shown:
    yield f"{document['path']} · {size(document['bytes'])}"
    yield Section.of(StatsTable.columns, document["bases"])
    recipes = [recipe | {"recipe": recipe["id"]} for recipe in document["recipes"]]
    yield Section.of(("base", "recipe", "rank", "dim", "models"), recipes)
    if indexed := sum(document["verified"].values()):
        verified = document["verified"].items()
        shares = (f"{percent(n / indexed)} {COMPARED[way]}" for way, n in verified)
        yield f"bytes of weight files, by models: {', '.join(shares)}"
    if "content_sha256" in document:
        yield f"content: sha256 {document['content_sha256']}"


command = asking(Stats, show_stats, "stats")
