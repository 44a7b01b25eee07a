"""Models that are not indexed, by reason: `failures`."""

from __future__ import annotations

from collections.abc import Sequence

from ..options import Question, option, record
from ..results import Document, Row, Shown, Table
from .face.opened import ONLY_FAMILY, Opened
from .terminal.command_line import asking


class FailureTable(Table):
    """Models that are not indexed: `model`, `base`, `code`, `status`, `reason`,
    `source`."""

    columns = ("model", "code", "reason")

    def _rows(self) -> Sequence[Row]:
        return [
            {**model, "code": group["code"], "status": group["status"]}
            for group in self._document["failures"]
            for model in group["models"]
        ]


@record
class Failures(Question):
    """List the models that are not indexed, by reason, the most frequent first.

    >>> len(db.failures())
    0
    """

    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> FailureTable:
        return FailureTable({"failures": db._catalog.failures(db._catalog.find_base(self.base))})


def show_failures(document: Document) -> Shown:
    if not document["failures"]:
        yield "no failures"
    for group in document["failures"]:
        about = f"{group['meaning']} · {len(group['models'])}"
        status = "" if group["status"] == group["code"] else f" ({group['status']})"
        yield f"{group['code']}{status}: {about}"
        for model in group["models"]:
            reason = "" if model["reason"] == group["meaning"] else model["reason"]
            parts = [reason, f"names {model['base_raw']}" if names_another_base(model) else ""]
            said = " · ".join(filter(None, parts))
            yield f"  {model['model']}" + f": {said}" * bool(said)


def names_another_base(model: Document) -> bool:
    """Whether a model's files name its base by another name than the family's."""
    named = model.get("base_raw")
    return named is not None and named != model["base"] and named not in (model.get("reason") or "")


command = asking(Failures, show_failures, "failures")
