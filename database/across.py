"""Models of different bases, compared by the words of their footprints, or through a panel."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError, RequestError, offered
from ..options import Place, Question, argument, option, record
from ..records import BUILTIN, KEPT
from ..store import Filters
from .opened import SHARED_PANEL, Family, require_labels
from .panel_table import coverage, shared_panel
from .questions import Query, Searches
from .tables import AcrossTable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from ..search import FreshQuery, StoredQuery
    from .opened import Opened

log = logging.getLogger(__name__)

MEANING = (
    "trained on the same data, or on data like it, as far as the data sets of the panel tell. "
    "Without a verdict the order is a hint: the panel may hold nothing like what the model saw."
)
"""What an answer says at most; printed with every one of them."""

WORDS_MEANING = (
    "trained on the same data, or on data of the same words, as far as footprints tell. Without a "
    "verdict the order is a hint: no other base may have a model of such data."
)


@record
class OverPanel(Question):
    """A question over a panel."""

    stability = "provisional"

    _: KW_ONLY
    panel: Place | None = option(
        default=None,
        metavar="NAME_OR_FOLDER",
        shown_default=SHARED_PANEL,
        help="A panel by its name, `kept` for the kept data sets, or a folder of data sets, which "
        "is computed first.",
    )


@record
class FindAcross(Filters, Family, OverPanel):
    """The `k` models of *other* bases that were likeliest trained on a model's data.

    Where the model and those of another base have footprints, they are compared by the words that
    they were trained on. Else, or where a panel is named, by how they lie among the data sets of a
    panel, whose gradients were computed on each base; where the catalog has no panel, the one that
    comes with deltadex is computed first.

    Returns:
        A row for each model, likeliest first: `rank`, `model`, `base`, `verdict`, `probability`,
        `z`, `fdr`, `cosine`, `data` (the data set of the panel that both were likeliest trained
        on; None by words) and labels. The document has `query`, `panel` (None by words),
        `families`, `left_out` (families that could not be compared, with the reason) and
        `meaning`.

    Raises:
        RequestError: there is no other family, or none has the panel.

    >>> from deltadex.errors import RequestError
    >>> try:
    ...     db.panels.find_similar("imdb-0")
    ... except RequestError as err:
    ...     print("has one family" in str(err))
    True
    """

    model: Query = argument(help="A model as `find_similar` takes it, but not a list or a vector.")
    k: int = option("-k", default=10, least=1, help="Number of models, at most.")
    _: KW_ONLY
    only_built: bool = option(
        default=False, doors="python", help="Whether no panel is computed for the answer."
    )

    def answer(self, db: Opened) -> AcrossTable:
        from ..search import find_across_by_words

        catalog = db._catalog
        if len(catalog.bases()) < 2:
            catalog.find_recipe(None)  # says what fills a catalog
            raise RequestError(
                f"{db.path.name} has one family, of {catalog.bases()[0]}: models are compared "
                "across bases where `deltadex index` has added another"
            )
        require_labels(catalog, self)
        start = Searches(catalog, catalog.find_base(self.base), self.recipe).from_any(self.model)
        if self.panel is None:
            found = find_across_by_words(catalog, start, k=self.k, filters=self, recipe=self.recipe)
            if found is not None:
                return AcrossTable({**found, "meaning": WORDS_MEANING})
        return self._over_panel(db, start)

    def _over_panel(self, db: Opened, start: StoredQuery | FreshQuery) -> AcrossTable:
        from ..search import find_across
        from .panels import notes_on

        catalog, counts = db._catalog, coverage(db._catalog)
        panel = self._panel(db, counts)
        notes = notes_on(catalog, panel)
        for note in notes:
            log.warning(note)
        found = find_across(
            catalog,
            start,
            "" if panel == KEPT else panel,
            k=self.k,
            filters=self,
            recipe=self.recipe,
        )
        others = sorted(set(counts) - {panel})
        about = {**found["panel"], "name": panel, "others": others, "notes": notes}
        return AcrossTable({**found, "panel": about, "meaning": MEANING})

    def _panel(self, db: Opened, counts: Mapping[str, Counter[str]]) -> str:
        """The name of the panel to ask, computed where that was not done, or was interrupted."""
        from .panels import BuildPanel

        catalog, shared = db._catalog, shared_panel(counts)
        wanted = str(self.panel) if self.panel is not None else shared or BUILTIN
        is_there = wanted in counts if self.panel is not None else shared is not None
        if self.only_built or wanted != BUILTIN:
            if is_there:
                return wanted
            folder = Path(wanted).expanduser()
            if self.only_built or not wanted or not folder.is_dir():
                known = sorted({*counts, *([] if self.only_built else [BUILTIN])})
                raise RequestError(f"no panel {wanted!r}{offered(wanted, known, 'panels')}")
            # a panel that is there keeps its options
            own = catalog.data_sets.listed(panel=folder.resolve().name)
            reading = own[0]["settings"].get("reading", {}) if own else {}
            building = BuildPanel((folder,), recipe=self.recipe, **reading)
        else:
            from ..tables.data_files import data_sets_in
            from ..training_data import BUILTIN_PANEL

            whole = len(data_sets_in(BUILTIN_PANEL))
            begun = [base for base, n in counts.get(BUILTIN, {}).items() if n < whole]
            if is_there and (not begun or catalog.read_only):
                return wanted
            building = BuildPanel(recipe=self.recipe, bases=begun if is_there else ())
        report = building.answer(db)
        if not report.is_any_there:
            reasons = [f"{row['base'] or row['data']}: {row['reason']}" for row in report.failed]
            raise DataError(f"the panel could not be computed; {'; '.join(reasons)}")
        return str(report.to_json()["panel"])
