"""Panels: lists of data sets whose gradients were computed on the bases of several families."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import (
    BaseError,
    DataError,
    DeltadexError,
    ModelError,
    OtherBase,
    RequestError,
    StudyError,
    offered,
)
from ..options import Place, Question, argument, option, record
from ..records import KEPT, DataSet, Recipe
from ..results import count
from ..store import Filters
from .data import NAME, DataMaking, DataReading
from .opened import ONLY_FAMILY, untracked
from .tables import PanelReport, PanelSetTable, PanelTable, Row, Table

if TYPE_CHECKING:
    from ..store import Catalog
    from .opened import Opened

log = logging.getLogger(__name__)

BUILTIN = "builtin"
FEWEST_SETS = 2

STEPS = 100
"""In which progress is shown."""

OF_A_BASE = (StudyError, BaseError, OtherBase)
"""What no data set of a base can be computed after."""


@record
class BuildPanel(DataReading):
    """Compute the gradient of every data set of a panel on the base of every family.

    Each data set is stored as soon as it is done, so that a run that was stopped continues. A
    data set whose bytes, settings, recipe and base are those of before is not computed again:
    a model that is added costs nothing.

    Returns:
        A row for each base: `base`, `computed`, `kept`, `failed`, `estimated_seconds`, `seconds`,
        `reason` (why nothing could be computed). The document has `failed` too: `base`, `data`
        and `reason` of each data set that could not be computed.

    Raises:
        DataError: there is no such file or folder.
        RequestError: it is one data set, names no panel, or the catalog is read only.

    >>> report = db.panels.build("reviews.csv", "questions.csv", name="mine", max_examples=16)
    >>> [(row["computed"], row["kept"]) for row in report]
    [(2, 0)]
    """

    sources: tuple[Place, ...] = argument(
        default=(),
        several=True,
        metavar="[FOLDER]...",
        help="A folder, each file and each folder in it being a data set; or several files and "
        "folders, and a --name. Without any, the panel that comes with deltadex.",
    )
    _: KW_ONLY
    name: str | None = option(
        default=None, shown_default="the folder's name", help="Name of the panel."
    )
    bases: Sequence[str] = option(
        "--base", default=(), metavar="BASE", help="Only the families of these bases."
    )
    max_examples: int = option(
        default=256,
        least=8,
        help="Number of examples of each data set, at most, drawn by a hash of their texts.",
    )
    dry_run: bool = option(default=False, help="Say what it would cost, and compute nothing.")
    base: None = field(default=None, init=False)

    parts = 0
    """Of a panel's data sets the whole alone is kept; for `DataQueryOptions`."""

    def answer(self, db: Opened) -> PanelReport:
        catalog = db._catalog
        if catalog.read_only and not self.dry_run:
            raise RequestError(f"{db.path} is opened to read only: no panel can be kept in it")
        wanted = (self.bases,) if isinstance(self.bases, str) else self.bases
        bases = [catalog.find_base(base) for base in wanted] or catalog.bases()
        if not bases:
            catalog.find_recipe(None)  # says what fills a catalog
        panel, sets, failed = self._sets()
        log.info(
            "panel %s: %s, at most %d examples of each",
            panel,
            count(len(sets), "data set"),
            self.max_examples,
        )
        start = time.perf_counter()
        plans = list(_plans(catalog, [base for base in bases if base], panel, sets, self))
        estimated = sum((plan.seconds for plan in plans), 0.0)
        if estimated:
            log.info("in all about %s; stop at any time, and the same command continues",
                     _duration(estimated))  # fmt: skip
        if not self.dry_run:
            progress = _Progress(db, f"panel {panel}, % of the work", estimated)
            for plan in plans:
                _compute(catalog, plan, self, progress)
            progress.end()
        rows = [plan.to_json() for plan in plans]
        return PanelReport(
            {
                "panel": panel,
                "sets": len(sets),
                "max_examples": self.max_examples,
                "dry_run": self.dry_run,
                "estimated_seconds": estimated,
                "seconds": time.perf_counter() - start,
                "bases": rows,
                "failed": [*failed, *(failure for plan in plans for failure in plan.failed)],
            }
        )

    def _sets(self) -> tuple[str, list[_PanelSet], list[Row]]:
        """The panel's name, its data sets, and those that cannot be opened."""
        from ..training_data import data_set_names, data_sets_in, locate_data_files

        one = isinstance(self.sources, str | Path)
        sources = [self.sources] if one else [*self.sources]
        places = [Path(str(place)).expanduser() for place in sources] or [_builtin_folder()]
        name = self.name or (places[0].resolve().name if sources else BUILTIN)
        if len(places) == 1 and (places[0].is_dir() or not places[0].exists()):
            places = [*data_sets_in(places[0])]
        elif self.name is None:
            raise RequestError("several files are no folder that names their panel: add --name")
        if name == KEPT or not NAME.fullmatch(name):
            raise RequestError(
                f"{name!r}: a panel's name has letters, digits, spaces and . + @ - _, at most 100, "
                f"and is not {KEPT!r}: choose one with --name"
            )
        if len(places) < FEWEST_SETS:
            raise RequestError(
                f"a panel of {count(len(places), 'data set')} compares nothing: name a folder of "
                "several"
            )
        sets: list[_PanelSet] = []
        failed: list[Row] = []
        for set_name, path in zip(data_set_names(places), places, strict=True):
            try:
                if not NAME.fullmatch(set_name):
                    raise DataError(f"{path}: its name cannot be kept: rename the file")
                sha256 = locate_data_files(path, self.split).sha256()
                sets.append(_PanelSet(set_name, path, sha256))
            except DataError as err:
                failed.append({"base": None, "data": set_name, "reason": str(err)})
        return name, sets, failed

    def reading(self) -> dict[str, object]:
        """The options that change numbers, where they are not the default."""
        return {name: getattr(self, name) for name in self.changed() if name != "device"}


@dataclass(frozen=True, slots=True)
class _PanelSet:
    name: str
    path: Path
    sha256: str


@dataclass(slots=True)
class _Plan:
    """What is to be computed on one base; `todo`: seconds by data set."""

    base: str
    panel: str
    version: str | None = None
    kept: int = 0
    todo: list[tuple[_PanelSet, float]] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)
    computed: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    elapsed: float = 0.0
    failed: list[Row] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum((seconds for _, seconds in self.todo), 0.0)

    def fail(self, data: str | None, err: DeltadexError) -> None:
        reason = err.reason if isinstance(err, ModelError) else str(err)
        self.failed.append({"base": self.base, "data": data, "reason": reason})

    def to_json(self) -> Row:
        alone = [failure["reason"] for failure in self.failed if failure["data"] is None]
        return {
            "base": self.base,
            "version": self.version,
            "to_compute": len(self.todo),
            "why": dict(self.why),
            "computed": self.computed,
            "losses": dict(self.losses),
            "kept": self.kept,
            "failed": len(self.failed),
            "estimated_seconds": self.seconds,
            "seconds": self.elapsed,
            "reason": alone[0] if alone else None,
        }


def _plans(
    catalog: Catalog,
    bases: Sequence[str],
    panel: str,
    sets: Sequence[_PanelSet],
    asked: BuildPanel,
) -> Iterator[_Plan]:
    """What is missing on each base, and what it will cost; the weights are not loaded."""
    for base in bases:
        plan = _Plan(base, panel)
        try:
            _fill(catalog, plan, sets, asked)
        except DeltadexError as err:
            plan.fail(None, err)
            plan.todo.clear()
            log.info("  %s: left out: %s", base, plan.failed[-1]["reason"])
        else:
            reasons = ", ".join(f"{n} {why}" for why, n in plan.why.items())
            log.info(
                "  %s: %d of %d to compute%s%s",
                base,
                len(plan.todo),
                len(sets),
                f" ({reasons})" if reasons else "",
                f", about {_duration(plan.seconds)}" if plan.todo else "",
            )
        yield plan


def _fill(catalog: Catalog, plan: _Plan, sets: Sequence[_PanelSet], asked: BuildPanel) -> None:
    from ..search import check_searchable
    from ..study.network import load_tokenizer

    base = plan.base
    check_searchable(catalog, base, recipe=asked.recipe, filters=Filters())
    recipe = catalog.find_recipe(asked.recipe, base)
    missing = _missing(catalog, plan, sets, recipe, asked)
    if missing:
        tokenizer = load_tokenizer(base)
        # of what has just been fetched
        missing = _missing(catalog, plan, sets, recipe, asked)
        plan.todo = [*_costs(catalog, plan, missing, asked, tokenizer)]


def _missing(
    catalog: Catalog,
    plan: _Plan,
    sets: Sequence[_PanelSet],
    recipe: Recipe,
    asked: BuildPanel,
) -> list[_PanelSet]:
    """The data sets that the base has not, or not as they would be computed now."""
    from ..indexer import base_version

    plan.version = base_version(plan.base)
    stored = {row["name"]: row for row in catalog.data_sets.listed(plan.base, plan.panel)}
    missing, plan.why = [], Counter()
    for data in sets:
        row = stored.get(f"{plan.panel}/{data.name}")
        why = "new" if row is None else _stale(row, plan.version, recipe.id)
        if row is not None and why is None:
            same = row["settings"].get("reading") == asked.reading()
            if row["sha256"] != data.sha256 or not same:
                why = "with other settings" if not same else "with other bytes"
        if why is not None:
            plan.why[why] += 1
            missing.append(data)
    plan.kept = len(sets) - len(missing)
    return missing


def _stale(row: Mapping[str, Any], version: str | None, recipe: str | None) -> str | None:
    """Why a stored data set no longer is what it would be now; None where it is, or where it cannot
    be told."""
    if recipe not in (None, row["recipe"]):
        return "under another recipe"
    stored = row["settings"].get("base_version")
    if stored is not None and version not in (None, stored):
        return "of other weights of the base"
    return None


def _costs(
    catalog: Catalog,
    plan: _Plan,
    sets: Sequence[_PanelSet],
    asked: BuildPanel,
    tokenizer: Any,
) -> Iterator[tuple[_PanelSet, float]]:
    """Each data set that can be read with the seconds that it will take."""
    from ..study.study import usable_device
    from ..training_data import GradientCost, count_tokens

    making = DataMaking(catalog, plan.base, asked, untracked)
    cost = GradientCost.measure(plan.base, tokenizer, usable_device(asked.device), asked.dtype)
    label = asked.label if making._takes_labels else ""
    for data in sets:
        try:
            # not `read`, which may load the weights to see whether they have a head
            examples = making._read(data.path, label, data.name)
        except (DataError, RequestError) as err:
            plan.fail(data.name, err)
            continue
        tokens = count_tokens(tokenizer, examples.examples, asked.max_tokens)
        yield data, cost.seconds(tokens, labelled=examples.kind in ("classes", "numbers"))


def _compute(catalog: Catalog, plan: _Plan, asked: BuildPanel, progress: _Progress) -> None:
    """Compute and store what a base lacks, set by set."""
    making = DataMaking(catalog, plan.base, asked, untracked)
    start = time.perf_counter()
    for data, seconds in plan.todo:
        try:
            made = _made(making, plan, data, asked)
        except OF_A_BASE as err:
            plan.fail(None, err)
            break
        except (DataError, RequestError, ModelError) as err:
            plan.fail(data.name, err)
        else:
            catalog.data_sets.save(made)
            plan.computed += 1
            plan.losses[made.loss] += 1
        progress.add(seconds)
    plan.elapsed = time.perf_counter() - start
    if plan.computed:
        log.info("  %s: %d in %s", plan.base, plan.computed, _duration(plan.elapsed))


def _made(making: DataMaking, plan: _Plan, data: _PanelSet, asked: BuildPanel) -> DataSet:
    made = making.make(making.read(data.path, data.name), f"{plan.panel}/{data.name}")
    own = {"base_version": plan.version, "reading": asked.reading()}
    return replace(made, settings={**made.settings, **own})


class _Progress:
    """Progress over all bases, by the seconds that each data set was estimated to take."""

    def __init__(self, db: Opened, what: str, seconds: float) -> None:
        total = STEPS if seconds else 0
        self._steps = iter(db._track(range(total), what, total=total))
        self._seconds, self._past, self._done = seconds, 0.0, 0
        next(self._steps, None)

    def add(self, seconds: float) -> None:
        self._past += seconds
        while self._seconds and self._done < int(STEPS * self._past / self._seconds + 1e-9):
            self._done += 1
            next(self._steps, None)

    def end(self) -> None:
        for _ in self._steps:
            pass


def _builtin_folder() -> Path:
    from .. import training_data

    return Path(str(training_data.__file__)).parent / "builtin_panel"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@record
class Panels(Question):
    """The panels, and the data sets that were kept by themselves as the panel `kept`.

    Returns:
        A row for each: `panel`, `sets`, `shared` (data sets that two bases or more have, by their
        bytes), `stale` (computed of other weights of a base, or under another recipe than its
        models have now), `bases`: `base`, `sets`, `stale`, `losses` of each.

    >>> len(db.panels())
    0
    """

    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> PanelTable:
        rows = _listed(db._catalog, self.base, None)
        panels: dict[str, list[Row]] = {}
        for row in rows:
            panels.setdefault(row["panel"], []).append(row)
        return PanelTable({"panels": [_panel(name, own) for name, own in panels.items()]})


@record
class OnePanel(Question):
    """A panel."""

    name: str = argument(help="Name of the panel.")
    base: str | None = option(default=None, help=ONLY_FAMILY)

    def rows(self, db: Opened) -> list[Row]:
        """Its data sets; raises `RequestError` where there are none."""
        rows = _listed(db._catalog, self.base, self.name)
        if not rows:
            known = sorted({row["panel"] for row in _listed(db._catalog, self.base, None)})
            raise RequestError(f"no panel {self.name!r}{offered(self.name, known, 'panels')}")
        return rows


@record
class ShowPanel(OnePanel):
    """The data sets of a panel, a row each, with the bases that have it.

    Returns:
        Rows of `data`, `sha256`, `examples` and `bases`: `base`, `loss`, `stale` (why; else None),
        `made_at`.

    Raises:
        RequestError: there is no such panel.

    >>> _ = db.panels.build("reviews.csv", "questions.csv", name="mine", max_examples=16)
    >>> [row["data"] for row in db.panels.show("mine")]
    ['questions', 'reviews']
    """

    def answer(self, db: Opened) -> PanelSetTable:
        rows = self.rows(db)
        by_bytes: dict[str, list[Row]] = {}
        for row in sorted(rows, key=lambda row: (row["set"], row["base"])):
            by_bytes.setdefault(row["sha256"], []).append(row)
        sets = [
            {
                "data": " = ".join(dict.fromkeys(row["set"] for row in same)),
                "sha256": sha256,
                "examples": max(row["examples"] for row in same),
                "bases": [
                    {key: row[key] for key in ("base", "loss", "stale", "made_at")} for row in same
                ],
            }
            for sha256, same in by_bytes.items()
        ]
        return PanelSetTable({**_panel(self.name, rows), "data": sets})


@record
class DropPanel(OnePanel):
    """Forget the data sets of a panel. One row: `removed`, `sets` and `bases`.

    Raises:
        RequestError: there is no such panel, or it is `kept`.

    >>> _ = db.panels.build("reviews.csv", "questions.csv", name="mine", max_examples=16)
    >>> db.panels.drop("mine").to_json()["sets"]
    2
    """

    def answer(self, db: Opened) -> Table:
        if self.name == KEPT:
            raise RequestError("data sets that were kept by themselves: `deltadex data rm NAME`")
        self.rows(db)
        base = db._catalog.find_base(self.base)
        removed = db._catalog.data_sets.remove_panel(self.name, base)
        bases = sorted({row["base"] for row in removed})
        return Table({"removed": self.name, "sets": len(removed), "bases": bases})


def _listed(catalog: Catalog, base: str | None, panel: str | None) -> list[Row]:
    """Data sets of a panel, or of all, by panel, base and name; each with `panel`, `set` and why it
    is `stale`."""
    from ..indexer import base_version

    wanted = "" if panel == KEPT else panel
    rows = catalog.data_sets.listed(catalog.find_base(base), wanted)
    bases = {row["base"] for row in rows}
    now = {base: (base_version(base), _recipe_now(catalog, base)) for base in bases}
    for row in rows:
        own, _, row["set"] = row["name"].rpartition("/")
        row["panel"], row["stale"] = own or KEPT, _stale(row, *now[row["base"]])
    return sorted(rows, key=lambda row: (row["panel"], row["base"], row["set"]))


def _recipe_now(catalog: Catalog, base: str) -> str | None:
    try:
        return catalog.find_recipe(None, base).id
    except RequestError:  # its models were removed
        return None


def _panel(name: str, rows: Sequence[Row]) -> Row:
    """A panel as a document."""
    of_base: dict[str, list[Row]] = {}
    for row in rows:
        of_base.setdefault(row["base"], []).append(row)
    bases_of = Counter(sha256 for sha256, _ in {(row["sha256"], row["base"]) for row in rows})
    return {
        "panel": name,
        "sets": len(bases_of),
        "shared": sum(n > 1 for n in bases_of.values()),
        "stale": sum(row["stale"] is not None for row in rows),
        "bases": [
            {
                "base": base,
                "sets": len(own),
                "stale": sum(row["stale"] is not None for row in own),
                "losses": dict(sorted(Counter(row["loss"] for row in own).items())),
            }
            for base, own in of_base.items()
        ],
    }
