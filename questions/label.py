"""Labels that a user gives: `label`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import Any

from ..errors import RequestError
from ..options import Question, argument, option, record
from ..results import Shown, Table
from .face.opened import ONLY_FAMILY, Opened
from .terminal.command_line import asking

LABELS = ("dataset", "author", "run")


@record
class Label(Question):
    """Label an indexed model: say what it was trained on; what is not given stays as it is.

    The label counts as one from a labels file: it overrides what the model says of itself, and
    stays when the model is indexed again.

    Returns:
        One row: `model`, `base`, `dataset`, `author`, `run`, `label_source`, and `before`.

    Raises:
        RequestError: nothing is said, or a label is blank.

    >>> db.label("imdb-0", "imdb")[0]["label_source"]
    'labels'
    """

    model: str = argument(help="Id of the model.")
    dataset: str | None = argument(default=None, help="Dataset that the model was trained on.")
    _: KW_ONLY
    author: str | None = option(default=None, help="Author, who trained the model.")
    run: str | None = option(default=None, help="The training run; its checkpoints share it.")
    clear: bool = option(default=False, help="Remove the model's dataset.")
    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> Table:
        given = self.dataset, self.author, self.run
        if self.clear and self.dataset is not None:
            raise RequestError("give a DATASET, or --clear")
        if not self.clear and given == (None, None, None):
            raise RequestError("give a DATASET, or --clear, --author or --run")
        if any(value is not None and not value.strip() for value in given):
            raise RequestError("an empty label says nothing; --clear takes the dataset away")
        new = "" if self.clear else self.dataset and self.dataset.strip()
        before, after = db._catalog.label(
            self.model,
            db._catalog.find_base(self.base),
            dataset=new,
            author=self.author,
            run=self.run,
        )
        labels, labels_before = (
            {name: getattr(row, name) for name in (*LABELS, "label_source")}
            for row in (after, before)
        )
        return Table({"model": after.id, "base": after.base, **labels, "before": labels_before})


def _show_label(document: Mapping[str, Any]) -> Shown:
    yield document["model"]
    for name in LABELS:
        value, before = document[name] or "–", document["before"][name] or "–"
        change = "" if value == before else f"  (was {before})"
        yield f"  {name}: {value}{change}"


command = asking(
    Label,
    _show_label,
    "label someone/bert-imdb imdb",
    "label someone/mystery --clear",
    prints_table=False,
    read_only=False,
)
