"""Kept data sets near a model: `find-data`."""

from __future__ import annotations

from ..options import argument, record
from ..results import Document, Shown, Table
from . import terminal
from .face.opened import Family, Opened
from .find_trained_on.find_trained_on import MEANING, known_of_data
from .terminal.command_line import asking


class NearestDataTable(Table):
    """The kept data sets nearest to a model: `rank`, `data`, `verdict`, `probability`, `z`,
    `z_error`, `fdr`, `cosine`, `examples`, `loss`."""

    columns = ("rank", "data", "verdict", "probability", "z", "z_error", "fdr", "loss", "examples")
    _key = "data"


@record
class FindData(Family):
    """Show the kept data sets nearest to a model: what it may have been trained on.

    `deltadex find-trained-on FILE --keep NAME` keeps a data set.

    Raises:
        RequestError: no data set is kept for the family.

    >>> _ = db.data.find_models("reviews.csv", k=1, keep="reviews")
    >>> db.data.nearest("imdb-0")[0]["data"]
    'reviews'
    """

    stability = "provisional"

    model: str = argument(help="Id of the model.")

    def answer(self, db: Opened) -> NearestDataTable:
        from ..search import find_data

        base = db._catalog.find_base(self.base)
        found = find_data(db._catalog, self.model, base=base, recipe=self.recipe)
        return NearestDataTable({**found, "meaning": MEANING})


def show_nearest_data(document: Document) -> Shown:
    yield f"kept data nearest to {document['query']['model']}"
    yield known_of_data(document)
    heads = ("rank", "data", *terminal.EVIDENCE_OF_DATA, "loss", "examples")
    yield terminal.evidence_table(heads, document["data"])
    yield f"It says at most: {document['meaning']}"


command = asking(FindData, show_nearest_data, "find-data someone/bert-imdb")
