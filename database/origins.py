"""Questions of origin: which base a model comes from, and which bases are known."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RequestError
from ..options import Place, Question, argument, option, record
from .tables import KnownBaseTable, TraceTable

if TYPE_CHECKING:
    from .opened import Opened


@record
class Trace(Question):
    """Which base a model comes from, and what was done to it; "unknown" where nothing shows it.

    Its weights are compared with those of every base that the catalog knows: of its families, and
    of those that `bases.add` registered. Of a plain fine-tune on the Hub at most 1 MB is read.

    Returns:
        A document: `model`, `base`, `verdict`, `p`, `layers`, `changes`, `parents`, `method`,
        `reconstructed_share`; and a row for each pair of layers.

    Raises:
        UnknownModel: there is no such model.
        RequestError: it cannot be read, or no base is known.

    >>> db.trace("imdb-0").to_json()["verdict"]
    'fine-tune'
    """

    model: str = argument(help="An indexed id, a folder, or a Hub id.")
    _: KW_ONLY
    base: str | None = option(default=None, help="Family of an indexed id that several have.")
    offline: bool = option(default=False, help="Read only files that are on this machine.")
    mergekit: Place | None = option(
        default=None,
        metavar="FILE",
        doors="local",
        file="file",
        help="Write the config file with which mergekit makes the same merge.",
    )

    def answer(self, db: Opened) -> TraceTable:
        from ..provenance import trace_model

        catalog = db._catalog
        document = trace_model(
            catalog,
            str(self.model),
            catalog.find_base(self.base),
            offline=self.offline,
            mergekit=None if self.mergekit is None else Path(self.mergekit),
        )
        return TraceTable(document)


@record
class AddBases(Question):
    """Register bases that models are compared with, beside those of the families.

    Returns:
        A row for each base that was read, and `failed`: `base` and `reason` of the others.

    >>> len(db.known_bases.add("base"))
    1
    """

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
    """The bases that models are compared with, and those that could not be read.

    >>> [row["state"] for row in db.known_bases()]
    ['known']
    """

    _: KW_ONLY
    offline: bool = option(default=False, help="Read only files that are on this machine.")

    def answer(self, db: Opened) -> KnownBaseTable:
        from ..provenance import known_bases

        known = known_bases(db._catalog, offline=self.offline)
        return KnownBaseTable({"bases": [base.to_json() for base in known], "failed": []})
