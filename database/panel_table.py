"""Models of several bases by one panel: z of its data sets as a table, a heat map and a map."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..options import Question, option, record
from ..records import KEPT
from ..store import write_user_file
from .questions import Drawing
from .tables import Row, Table, check_scores_ending

if TYPE_CHECKING:
    from ..store import Catalog
    from .opened import Opened

BUILTIN = "builtin"

FEWEST_SETS = 3
"""Data sets below which every two columns correlate by ±1."""


class PanelScoresTable(Table):
    """The models of every family that has a panel: a row each, with the data set of its highest z.

    A row has `base`, `model`, `dataset`, `nearest` and `z`. A document also has `panel`, `sets`
    (the data sets that all these families have), `families` (each with its `models`, their
    `datasets`, z of every data set with every model, and `standing`: places of the data set and the
    model wherever the model stands out) and `left_out`: families without the panel.
    """

    columns = ("base", "model", "dataset", "nearest", "z")

    def _rows(self) -> Sequence[Row]:
        rows = []
        for family in self._document["families"]:
            for place, (model, dataset) in enumerate(
                zip(family["models"], family["datasets"], strict=True)
            ):
                column = [row[place] for row in family["z"]]
                nearest = self._document["sets"][column.index(max(column))]
                own = {"base": family["base"], "model": model, "dataset": dataset}
                rows.append(own | {"nearest": nearest, "z": max(column)})
        return rows

    def save(self, path: str | Path) -> Path:
        """Write every z as CSV, or draw a heat map of them; the ending decides.

        Raises:
            RequestError: another ending, or there is no such folder.
            StoreFull: the file cannot be written.
        """
        target = Path(path)
        check_scores_ending(target)
        if target.suffix.lower() == ".csv":
            write_user_file(target, _csv(self._document).encode("utf-8", "replace"))
            return target
        import numpy as np

        from ..pictures import draw_panel, save_picture
        from ..search.panels import standardised

        z = [standardised(np.array(some["z"])) for some in self._document["families"]]
        draw = partial(draw_panel, self._document, z)
        return save_picture(draw, target, title=f"Panel {self._document['panel']}")


def _csv(document: Mapping[str, Any]) -> str:
    """A line for each model of every base: z of every data set."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["base", "model", "dataset", *document["sets"]])
    for family in document["families"]:
        about = zip(family["models"], family["datasets"], strict=True)
        for place, (model, dataset) in enumerate(about):
            writer.writerow([family["base"], model, dataset, *(row[place] for row in family["z"])])
    return text.getvalue()


def panel_table(catalog: Catalog, panel: str, recipe: str | None = None) -> PanelScoresTable:
    """Every family that has data sets of a panel, with those that all of them have.

    Raises RequestError where no family has any, or they have none in common.
    """
    return PanelScoresTable(catalog.look(lambda: _panel_document(catalog, panel, recipe)))


def _panel_document(catalog: Catalog, panel: str, recipe: str | None) -> dict[str, Any]:
    import numpy as np

    from ..search import compare_kept, family_views, kept_data_sets
    from ..search.evidence import PERHAPS
    from ..search.panels import PanelScores, shared_sets
    from ..search.trained_on import LONE_BOUND

    found, left_out = [], []
    for view in family_views(catalog, recipe, None):
        kept = kept_data_sets(catalog, view, "" if panel == KEPT else panel)
        compared = compare_kept(view, kept, np.arange(len(view)))
        if compared is None:
            left_out.append({"base": view.base, "reason": f"has no data set of panel {panel!r}"})
        else:
            found.append((PanelScores(view, tuple(kept), compared.z), compared.probabilities))
    if not found:
        raise RequestError(
            f"no family has a data set of panel {panel!r}; `deltadex panel build` computes one"
        )
    shared = shared_sets([scores for scores, _ in found])
    if not shared[0]:
        bases = ", ".join(scores.base for scores, _ in found)
        raise RequestError(f"panel {panel!r}: these families share no data set: {bases}")
    families = []
    for (scores, probabilities), sets in zip(found, shared, strict=True):
        view, labels = scores.view, scores.view.labels
        order = sorted(range(len(view)), key=view.ids.__getitem__)
        z, chances = scores.z[np.ix_(sets, order)], probabilities[np.ix_(sets, order)]
        families.append(
            {
                "base": scores.base,
                "recipe": view.recipe.id,
                "models": [view.ids[row] for row in order],
                "datasets": [labels.datasets[row] for row in order],
                "z": z.round(4).tolist(),
                "standing": np.argwhere(chances >= max(PERHAPS, LONE_BOUND)).tolist(),
            }
        )
    names = [found[0][0].names[place] for place in shared[0]]
    return {"panel": panel, "sets": names, "families": families, "left_out": left_out}


@record
class OfPanel(Question):
    """What models of several bases are compared by."""

    _: KW_ONLY
    panel: str | None = option(
        default=None,
        shown_default=f"{BUILTIN}, or else {KEPT}",
        help=f"Panel of data sets; {KEPT} are those that were kept by themselves.",
    )


@record
class MapAcross(Drawing, OfPanel):
    """Draw the models of every base that has a panel into one file, by what they learned.

    Models are near each other where z of the panel's data sets rise and fall alike. Stars are data
    sets that some model stands out for.

    Raises:
        RequestError: another ending, fewer than two families have the panel, they share fewer
            than three data sets, or the file cannot be written.
    """

    def answer(self, db: Opened) -> Table:
        from ..pictures import check_ending, draw_panel_map, save_picture

        path = Path(self.path)
        check_ending(path)
        document = map_document(db._catalog, self)
        draw = partial(draw_panel_map, document)
        save_picture(draw, path, title=f"Models of {len(document['bases'])} bases")
        shown = ("panel", "sets", "bases", "layout", "explained", "seed", "left_out")
        counted = {"written": str(path), "models": len(document["models"])}
        return Table(counted | {key: document[key] for key in shown})


def map_document(catalog: Catalog, asked: MapAcross) -> dict[str, Any]:
    """Places of the models of all bases, as columns: `base` and `dataset` are places in `bases`
    and `datasets`; `data` has the stars."""
    import numpy as np

    from ..pictures.maps import encode_names
    from ..search import place_models
    from ..search.panels import standardised, unit_columns

    panel = asked.panel or _usual_panel(catalog)
    table = panel_table(catalog, panel).to_json()
    families, sets = table["families"], table["sets"]
    if len(families) < 2:
        raise RequestError(
            f"only {families[0]['base']} has panel {panel!r}; a map across bases needs two"
        )
    if len(sets) < FEWEST_SETS:
        raise RequestError(
            f"panel {panel!r}: the families share {len(sets)} data sets; {FEWEST_SETS} are needed"
        )
    rows = [(place, i) for place, some in enumerate(families) for i in range(len(some["models"]))]
    columns = np.concatenate([unit_columns(standardised(np.array(some["z"]))) for some in families])
    names = [f"{families[place]['base']}\0{families[place]['models'][i]}" for place, i in rows]
    placed = place_models(names, columns, asked.layout, seed=asked.seed)
    labels = [families[place]["datasets"][i] for place, i in rows]
    dataset, datasets = encode_names(labels)
    return {
        "panel": panel,
        "sets": sets,
        "bases": [some["base"] for some in families],
        "left_out": table["left_out"],
        "layout": placed.method,
        "explained": placed.explained and list(placed.explained),
        "seed": asked.seed,
        "models": [families[place]["models"][i] for place, i in rows],
        "base": [place for place, _ in rows],
        "dataset": dataset,
        "datasets": datasets,
        "x": placed.coordinates[:, 0].round(6).tolist(),
        "y": placed.coordinates[:, 1].round(6).tolist(),
        "data": _stars(sets, families, placed.coordinates.round(6).tolist()),
    }


def _usual_panel(catalog: Catalog) -> str:
    """The built-in panel where two families have it, else the kept data sets."""
    return (
        BUILTIN
        if len({row["base"] for row in catalog.data_sets.listed(None, BUILTIN)}) > 1
        else KEPT
    )


def _stars(
    sets: Sequence[str], families: Sequence[Mapping[str, Any]], places: Sequence[Sequence[float]]
) -> list[dict[str, Any]]:
    """A data set that models stand out for, at their mean place, weighted by z."""
    import numpy as np

    standing: dict[int, list[tuple[int, float]]] = {}
    first = 0
    for family in families:
        for place, model in family["standing"]:
            weight = max(family["z"][place][model], 0.0) + 1.0
            standing.setdefault(place, []).append((first + model, weight))
        first += len(family["models"])
    stars = []
    for place, models in sorted(standing.items()):
        weights = [weight for _, weight in models]
        x, y = np.average([places[row] for row, _ in models], axis=0, weights=weights).round(6)
        about = {"name": sets[place], "x": float(x), "y": float(y), "models": len(models)}
        stars.append(about)
    return stars
