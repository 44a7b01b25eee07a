"""Panels: lists of data sets whose gradients were computed on the bases of several families."""

from __future__ import annotations

import json
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
from ..records import BUILTIN, KEPT
from ..results import count
from ..store import Filters
from .data import NAME, DataMaking, DataReading
from .opened import ONLY_FAMILY, find_family, untracked
from .tables import PanelReport, PanelSetTable, PanelTable, Row, Table

if TYPE_CHECKING:
    from ..store import Catalog
    from .opened import Opened
    from .panel_table import PanelScoresTable

log = logging.getLogger(__name__)

FEWEST_SETS = 2
ONE_SET = "a panel of one data set compares nothing: name a folder of several"

STEPS = 100
"""In which progress is shown."""

ROUNDING = 1e-9


@record
class BuildPanel(DataReading):
    """Compute the gradient of every data set of a panel on the base of every family.

    Each data set is stored as soon as it is done, so that a run that was stopped continues. A
    data set whose bytes, settings, recipe and base are those of before is not computed again:
    a model that is added costs nothing.

    Returns:
        A row for each base: `base`, `computed`, `kept`, `estimated_seconds`, `seconds`, `reason`
        (why nothing could be computed). The document has `failed` too: `base`, `data` and `reason`
        of each data set that could not be computed.

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
    """For `DataQueryOptions`: of a panel's data sets the whole alone is kept."""

    def answer(self, db: Opened) -> PanelReport:
        catalog = db._catalog
        if catalog.read_only and not self.dry_run:
            raise RequestError(f"{db.path} is opened to read only: no panel can be kept in it")
        wanted = [self.bases] if isinstance(self.bases, str) else self.bases
        named = dict.fromkeys(find_family(catalog, base) for base in wanted)
        bases = [*named] or catalog.bases()
        if not bases:
            catalog.find_recipe(None)  # says what fills a catalog
        panel, places = self._places()
        building = _Building(catalog, self, panel)
        building.open(places)
        if len(building.sets) < FEWEST_SETS:
            reasons = "; ".join(str(row["reason"]) for row in building.failed)
            raise DataError(f"panel {panel}: {ONE_SET}; {reasons}")
        for base in bases:
            building.plan(base)
        estimated = sum((row["estimated_seconds"] for row in building.rows), 0.0)
        if estimated:
            log.info("in all about %s; after a stop the same command continues", _time(estimated))
        start = time.perf_counter()
        if not self.dry_run:
            what = f"panel {panel}, % of the work"
            for _ in db._track(building.compute(estimated), what, total=STEPS):
                pass
        return PanelReport(
            {
                "panel": panel,
                "sets": len(building.sets),
                "max_examples": self.max_examples,
                "dry_run": self.dry_run,
                "estimated_seconds": estimated,
                "seconds": time.perf_counter() - start,
                "bases": building.rows,
                "failed": building.failed,
            }
        )

    def _places(self) -> tuple[str, dict[str, Path]]:
        """The panel's name, and its data sets by theirs."""
        from ..tables.data_files import data_set_names, data_sets_in
        from ..training_data import BUILTIN_PANEL

        places = [Path(place).expanduser() for place in self.sources] or [BUILTIN_PANEL]
        name = self.name
        if name is None:
            name = places[0].resolve().name if self.sources else BUILTIN
        if len(places) == 1 and not places[0].is_file():
            places = [*data_sets_in(places[0])]
        elif len(places) > 1 and self.name is None:
            raise RequestError("several files are no folder that names their panel: add --name")
        if len(places) < FEWEST_SETS:
            raise RequestError(ONE_SET)
        taken = (KEPT, BUILTIN) if self.sources else (KEPT,)
        if name in taken or not NAME.fullmatch(name):
            raise RequestError(
                f"{name!r}: a panel's name has letters, digits, spaces and . + @ - _, at most 100, "
                f"and is not {' or '.join(map(repr, taken))}: choose one with --name"
            )
        return name, dict(zip(data_set_names(places), places, strict=True))

    def reading(self) -> dict[str, object]:
        """The options that change numbers, where they are not the default."""
        return {name: getattr(self, name) for name in self.changed() if name != "device"}


@dataclass(slots=True)
class _Building:
    """What is computed of a panel: a row for each base, and the data sets that it lacks, each with
    the seconds that it is estimated to take."""

    catalog: Catalog
    asked: BuildPanel
    panel: str
    sets: dict[str, tuple[Path, str]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: list[Row] = field(default_factory=list)

    def open(self, places: Mapping[str, Path]) -> None:
        """Hash the data sets' bytes."""
        from ..tables.data_files import locate_data_files

        for name, path in places.items():
            try:
                if not NAME.fullmatch(name):
                    raise DataError(f"{path}: its name cannot be kept: rename the file")
                self.sets[name] = path, locate_data_files(path, self.asked.split).sha256()
            except DataError as err:
                self._fail(None, name, err)
        n, most = len(self.sets), self.asked.max_examples
        log.info("panel %s: %d data sets, at most %d examples of each", self.panel, n, most)

    def plan(self, base: str) -> None:
        """What is missing on a base, and what it will cost; the weights are not loaded."""
        row: dict[str, Any] = {"base": base, "version": None, "to_compute": 0, "why": {}}
        row |= {"computed": 0, "kept": 0, "losses": {}, "estimated_seconds": 0.0, "seconds": 0.0}
        row["reason"] = None
        self.rows.append(row)
        try:
            missing = self._costs(row)
        except DeltadexError as err:
            row["reason"] = self._fail(base, None, err)
            log.info("  %s: left out: %s", base, row["reason"])
            return
        self.missing[base] = missing
        row |= {"to_compute": len(missing), "estimated_seconds": sum(missing.values(), 0.0)}
        why = "".join(f", {n} {why}" for why, n in row["why"].items())
        about = f": about {_time(row['estimated_seconds'])}" if missing else ""
        log.info("  %s: %d to compute, %d kept%s%s", base, len(missing), row["kept"], why, about)

    def compute(self, estimated: float) -> Iterator[None]:
        """Compute and store what is missing; yields for each of `STEPS` parts of the work."""
        past, steps = 0.0, 0
        for row in self.rows:
            for seconds in self._compute_on(row):
                past += seconds
                while steps < int(STEPS * past / max(estimated, ROUNDING) + ROUNDING):
                    steps += 1
                    yield

    def _compute_on(self, row: dict[str, Any]) -> Iterator[float]:
        base, start = row["base"], time.perf_counter()
        making = DataMaking(self.catalog, base, self.asked, untracked)
        own = {"base_version": row["version"], "reading": self.asked.reading()}
        for name, seconds in self.missing.get(base, {}).items():
            try:
                examples = making.read(self.sets[name][0], name)
                made = making.make(examples, f"{self.panel}/{name}")
            except (StudyError, BaseError, OtherBase) as err:  # no other can be computed either
                row["reason"] = self._fail(base, None, err)
                return
            except (DataError, RequestError, ModelError) as err:
                self._fail(base, name, err)
            else:
                self.catalog.data_sets.save(replace(made, settings={**made.settings, **own}))
                row["computed"] += 1
                row["losses"][made.loss] = row["losses"].get(made.loss, 0) + 1
            row["seconds"] = time.perf_counter() - start
            yield seconds

    def _costs(self, row: dict[str, Any]) -> dict[str, float]:
        """The seconds that each data set will take that the base lacks and that can be read."""
        from ..search import check_searchable
        from ..study.network import load_tokenizer
        from ..study.study import usable_device
        from ..training_data import GradientCost, count_tokens

        base, asked, costs = row["base"], self.asked, dict[str, float]()
        check_searchable(self.catalog, base, recipe=asked.recipe, filters=Filters())
        if not self._missing(row):
            return costs
        tokenizer = load_tokenizer(base)
        cost = GradientCost.measure(base, tokenizer, usable_device(asked.device), asked.dtype)
        making = DataMaking(self.catalog, base, asked, untracked)
        label = asked.label if making._takes_labels else ""
        for name in self._missing(row):  # again: a newer version may have been fetched
            try:
                # not `read`, which may load the weights to see whether they have a head
                examples = making._read(self.sets[name][0], label, name)
            except (DataError, RequestError) as err:
                self._fail(base, name, err)
                continue
            tokens = count_tokens(tokenizer, examples.examples, asked.max_tokens)
            costs[name] = cost.seconds(tokens, labelled=examples.kind in ("classes", "numbers"))
        return costs

    def _missing(self, row: dict[str, Any]) -> list[str]:
        """The data sets that a base has not, or not as they would be computed now."""
        from ..indexer import base_version

        base, asked = row["base"], self.asked
        version, recipe = base_version(base), self.catalog.find_recipe(asked.recipe, base)
        stored = {one["name"]: one for one in self.catalog.data_sets.listed(base, self.panel)}
        missing = {}
        for name, (_, sha256) in self.sets.items():
            old = stored.get(f"{self.panel}/{name}")
            if old is None:
                missing[name] = "new"
            elif why := _stale(old, version, recipe.id):
                missing[name] = why
            elif old["settings"].get("reading") != asked.reading():
                missing[name] = "with other settings"
            elif old["sha256"] != sha256:
                missing[name] = "with other bytes"
        row |= {"version": version, "kept": len(self.sets) - len(missing)}
        row["why"] = dict(Counter(missing.values()))
        return [*missing]

    def _fail(self, base: str | None, data: str | None, err: DeltadexError) -> str:
        said = err.reason if isinstance(err, ModelError) else str(err)
        reason = said.removeprefix(f"{base}: ")
        self.failed.append({"base": base, "data": data, "reason": reason})
        return reason


def _stale(row: Mapping[str, Any], version: str | None, recipe: str | None) -> str | None:
    """Why a row is not what it would be now; None where it is, or where it cannot be told."""
    if recipe not in (None, row["recipe"]):
        return "under another recipe"
    stored = row["settings"].get("base_version")
    return None if None in (stored, version) or stored == version else "of other weights"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


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

    stability = "provisional"

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

    stability = "provisional"

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
class ScorePanel(OnePanel):
    """z of a panel's data sets with the models of every base that has it.

    Returns:
        A row for each model: `base`, `model`, `dataset`, `nearest` (the data set of its highest z)
        and `z`. `save` writes every z as CSV, or draws a heat map.

    Raises:
        RequestError: there is no such panel, or its families share no data set.

    >>> _ = db.panels.build("reviews.csv", "questions.csv", name="mine", max_examples=16)
    >>> {row["nearest"] for row in db.panels.scores("mine")} <= {"questions", "reviews"}
    True
    """

    def answer(self, db: Opened) -> PanelScoresTable:
        from .panel_table import panel_scores_table

        self.rows(db)
        return panel_scores_table(db._catalog, self.name)


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


def notes_on(catalog: Catalog, panel: str) -> list[str]:
    """What makes a panel's data sets differ from what they would be now, or between bases."""
    rows = _listed(catalog, None, panel)
    stale = Counter((row["base"], row["stale"]) for row in rows if row["stale"])
    notes = [
        f"panel {panel}: {count(n, 'data set')} of {base} computed {why}: build it again"
        for (base, why), n in sorted(stale.items())
    ]
    readings = {json.dumps(row["settings"].get("reading") or {}, sort_keys=True) for row in rows}
    if len(readings) > 1 and panel != KEPT:
        notes.append(f"panel {panel}: its data sets were read with other options on some bases")
    return notes


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
