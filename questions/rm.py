"""A model leaves the catalog: `rm`."""

from __future__ import annotations

from ..options import record
from ..results import Table
from .face.opened import OneModel, Opened
from .terminal.command_line import asking, show_pairs


@record
class Remove(OneModel):
    """Forget a model; its files are not touched.

    One row: `removed` and `base`.

    >>> db.remove("sst2-1")[0]["removed"]
    'sst2-1'
    """

    def answer(self, db: Opened) -> Table:
        row = db._catalog.remove(self.model, db._catalog.find_base(self.base))
        return Table({"removed": row.id, "base": row.base})


command = asking(Remove, show_pairs, "rm someone/bert-imdb", prints_table=False, read_only=False)
