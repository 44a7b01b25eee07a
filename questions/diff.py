"""What differs between two models: `diff`."""

from __future__ import annotations

from functools import partial

from ..options import Question, argument, option, record
from ..results import Document, Section, Shown, Table, share
from .face.opened import ONLY_FAMILY, Opened
from .terminal.command_line import asking


class DifferenceTable(Table):
    """Two models: a row for each of the slots that differ most."""

    columns = ("slot", "change", "stable_rank", "cosine")
    _key = "most_different"


@record
class Diff(Question):
    """Compare two indexed models of a family, slot by slot.

    >>> db.diff("imdb-0", "sst2-0").to_json()["unit"]
    'relative'
    """

    first: str = argument(metavar="A", help="Id of a model.")
    second: str = argument(metavar="B", help="Id of another model.")
    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> DifferenceTable:
        from ..search import pair_cosine
        from ..study.diff import diff_models

        document = db._catalog.look(
            lambda: diff_models(
                db._catalog,
                self.first,
                self.second,
                db._catalog.find_base(self.base),
                partial(pair_cosine, db._catalog),
            )
        )
        return DifferenceTable(document)


def show_diff(document: Document) -> Shown:
    """A sentence, then roles, layers and the slots that differ most."""
    models = document["models"]
    yield document["sentence"]
    for title, sums in (("|ΔW| by role", "by_role"), ("|ΔW| by layer", "by_layer")):
        norms = [(name, f"{a:.3g}", f"{b:.3g}") for name, (a, b) in document[sums].items()]
        yield Section(columns=(title, *models), rows=norms[:12], names=models)
    rows = [
        (
            slot["slot"],
            *(f"{value:.3g}" for value in slot["change"]),
            " / ".join(f"{value:.1f}" for value in slot["stable_rank"]),
            share(slot["update_cosine"]),
        )
        for slot in document["most_different"]
    ]
    unit = "|ΔW|/|W|" if document["unit"] == "relative" else "|ΔW|"
    heads = (f"most different, {unit}", *models, "stable rank", "update cosine")
    yield Section(columns=heads, rows=rows, names=models)


command = asking(Diff, show_diff, "diff someone/bert-imdb someone/bert-sst2")
