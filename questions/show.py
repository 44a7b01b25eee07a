"""All that is known of a model: `show`."""

from __future__ import annotations

from ..options import record
from ..results import Document, Section, Shown, Table, share, size
from .face.opened import OneModel, Opened
from .terminal.command_line import asking
from .words import words_of_model


class SlotTable(Table):
    """One model: a row for each weight matrix that it changed.

    A row has `slot`, `shape` (out, in), `fro_norm` (|ΔW|), `relative_norm` (|ΔW| / |W|),
    `stable_rank`, `energy` (share of |ΔW|² in the stored singular values), `noise_floor`. The
    document also has everything that `ModelTable` has of the model, and `words`: those that `words`
    names first.
    """

    columns = ("slot", "shape", "fro_norm", "relative_norm", "stable_rank", "energy")
    _key = "slots"


@record
class Show(OneModel):
    """Show everything known of a model, and what it changed, slot by slot.

    >>> db.show("imdb-0").to_json()["dataset"]
    'imdb'
    """

    def answer(self, db: Opened) -> SlotTable:
        catalog = db._catalog
        document = catalog.describe(self.model, catalog.find_base(self.base))
        words = words_of_model(catalog, document["base"], document["model"])
        return SlotTable({**document, "words": words})


def show_model(document: Document) -> Shown:
    for key, value in document.items():
        if key != "slots" and value not in (None, [], (), ""):
            lines = value if isinstance(value, list | tuple) else [value]
            if key == "words":
                lines = [", ".join(value)]
            for heading, line in zip((key, *[""] * len(lines)), lines, strict=False):
                yield f"{heading:>15}  {_in_units(key, line)}"
    rows = [
        (
            s["slot"],
            "×".join(map(str, s["shape"])),
            f"{s['fro_norm']:.3g}",
            "–" if s["relative_norm"] is None else f"{s['relative_norm']:.2e}",
            f"{s['stable_rank']:.1f}",
            share(s["energy"]),
            f"{s['noise_floor']:.1e}",
        )
        for s in document["slots"]
    ]
    heads = ("slot", "shape", "|ΔW|", "|ΔW|/|W|", "stable rank", "kept of |ΔW|²", "|rounding|")
    yield Section.of(heads, rows)


def _in_units(key: str, value: object) -> object:
    """A value of a model as people write it: sizes, and seconds without the digits of a float."""
    if isinstance(value, int) and key.startswith("bytes_"):
        return size(value)
    return f"{value:.2f}" if isinstance(value, float) else value


command = asking(Show, show_model, "show someone/bert-imdb")
