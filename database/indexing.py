"""Models come into a catalog: index, add, plan."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any

from ..indexer import FamilyOptions, Fingerprinting
from ..options import Place, argument, as_kind, option, record
from .tables import IndexReport, PlanTable

if TYPE_CHECKING:
    from ..indexer import Progress
    from .opened import Opened


@record
class Index(FamilyOptions):
    """Fingerprint the fine-tunes of `base`; models that did not change are not read again.

    `progress` is called for every model.

    Returns:
        Counts, and a row for each model that was refused: `model`, `code`, `reason`.

    Raises:
        SourceError: the folder, list, labels or Hub listing cannot be read.
        BaseError: the base's weights cannot be read.

    >>> db.index("base", "models", labels="models/labels.csv").to_json()["unchanged"]
    4
    """

    _: KW_ONLY
    ray: str | None = option(
        default=None,
        metavar="ADDRESS|local",
        help="Read with the workers of a Ray cluster, --workers of them.",
    )
    progress: Progress | None = None

    def answer(self, db: Opened) -> IndexReport:
        return _index(self, db, self.progress)


@record
class Add(Fingerprinting):
    """Fingerprint single models; otherwise as `index`.

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
        return _index(self, db, self.progress)


@record
class Plan(FamilyOptions):
    """What `index` with the same arguments would read, refuse, request and store.

    Reads listings and headers, no weights. A listing of the Hub stays in the catalog for
    24 hours, and `index` does not make it again. `workers` counts machines that share the work.

    Raises:
        SourceError, BaseError: as `index`.
        RequestError: `bandwidth` is not understood.

    >>> db.plan("base", "models").to_json()["models"]["in_catalog"]
    4
    """

    _: KW_ONLY
    parts: Place | None = option(default=None, doors="python", help="Parts, as `index` has them.")
    share: str | None = option(default=None, doors="python", help="Share, as `index` has it.")
    device: str = option(default="auto", doors="python", help="Device, as `index` has it.")
    bandwidth: str = option(
        default="1Gbit",
        metavar="RATE",
        help="Connection of each of the --workers: 1Gbit, 200Mbit, 50MB.",
    )

    def answer(self, db: Opened) -> PlanTable:
        from ..indexer import IndexOptions, make_plan

        def track(members: Any) -> Any:
            return db._track(members, "listing")

        plan = make_plan(db._catalog, as_kind(IndexOptions, self), self.bandwidth, track)
        return PlanTable(plan.to_json())


def _index(asked: Index | Add, db: Opened, progress: Progress | None) -> IndexReport:
    from ..indexer import IndexOptions, index_family

    report = index_family(db._catalog, as_kind(IndexOptions, asked), progress)
    return IndexReport(report.to_json())
