"""Models of several bases by one panel: z of its data sets as a table, a heat map and a map."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arrays import Float64
from ..errors import RequestError
from ..records import BUILTIN, KEPT, Layout
from ..results import count
from ..store import write_user_file
from .tables import Row, Table, check_scores_ending
from .written import is_table_file, save_table

if TYPE_CHECKING:
    from ..store import Catalog

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np  # for annotations alone

LEAST_WEIGHT = 0.1
"""Least weight of a model that places a data set, in z."""

FEWEST_MAPPED = 3
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
        sets = self._document["sets"]
        return [
            {"base": base, "model": model, "dataset": dataset}
            | {"nearest": sets[column.index(max(column))], "z": max(column)}
            for base, model, dataset, column in _models(self._document)
        ]

    def save(self, path: str | Path) -> Path:
        """Write every z as CSV, the rows as .md or .tex, or draw a heat map.

        Raises:
            RequestError: another ending, or there is no such folder.
            StoreFull: the file cannot be written.
        """
        target = Path(path)
        check_scores_ending(target)
        if target.suffix.lower() == ".csv":
            write_user_file(target, _csv(self._document).encode("utf-8", "replace"))
            return target
        if is_table_file(target):
            return save_table(self, target)
        import numpy as np

        from ..pictures import draw_panel, save_picture
        from ..search.panels import standardised

        z = [standardised(np.array(some["z"])) for some in self._document["families"]]
        draw = partial(draw_panel, self._document, z)
        return save_picture(draw, target, title=f"Panel {self._document['panel']}")


def _models(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None, list[float]]]:
    """Of every model its base, id and dataset, and z of each data set."""
    for family in document["families"]:
        columns = map(list, zip(*family["z"], strict=True))
        bases = [family["base"]] * len(family["models"])
        yield from zip(bases, family["models"], family["datasets"], columns, strict=True)


def _csv(document: Mapping[str, Any]) -> str:
    """A line for each model of every base: z of every data set."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["base", "model", "dataset", *document["sets"]])
    writer.writerows([*about, *column] for *about, column in _models(document))
    return text.getvalue()


def coverage(catalog: Catalog) -> dict[str, Counter[str]]:
    """How many data sets each base has of each panel."""
    counts: dict[str, Counter[str]] = {}
    for row in catalog.data_sets.listed(panel=None):
        counts.setdefault(row["name"].rpartition("/")[0] or KEPT, Counter())[row["base"]] += 1
    return counts


def shared_panel(counts: Mapping[str, Counter[str]]) -> str | None:
    """The panel that most bases have, of these the one with most data sets on each, by what
    `coverage` counts; None where no panel has what a comparison of two bases needs."""
    from ..search.across import FEWEST_RANKED

    best: tuple[int, int, str] | None = None
    for name, of_bases in counts.items():
        covered = [n for n in of_bases.values() if n >= FEWEST_RANKED]
        if len(covered) > 1:
            best = max(best or (0, 0, ""), (len(covered), min(covered), name))
    return best and best[2]


def panel_scores_table(catalog: Catalog, panel: str, recipe: str | None = None) -> PanelScoresTable:
    """Every family that has data sets of a panel, with those that all of them have.

    Raises RequestError where no family has any, or they have none in common.
    """
    return PanelScoresTable(catalog.look(lambda: _panel_document(catalog, panel, recipe)))


def _panel_document(catalog: Catalog, panel: str, recipe: str | None) -> dict[str, Any]:
    import numpy as np

    from ..search import family_views
    from ..search.evidence import PERHAPS
    from ..search.panels import panel_scores, shared_sets
    from ..search.trained_on import LONE_BOUND

    found, left_out = [], []
    for view in family_views(catalog, recipe, None):
        scores = panel_scores(catalog, view, "" if panel == KEPT else panel)
        if scores is None:
            left_out.append({"base": view.base, "reason": f"has no data set of panel {panel!r}"})
        else:
            found.append(scores)
    if not found:
        raise RequestError(
            f"no family has a data set of panel {panel!r}; `deltadex panel build` computes one"
        )
    shared = shared_sets(found)
    if not shared[0]:
        bases = ", ".join(scores.base for scores in found)
        raise RequestError(f"panel {panel!r}: these families share no data set: {bases}")
    families = []
    for scores, sets in zip(found, shared, strict=True):
        view, labels = scores.view, scores.view.labels
        order = sorted(range(len(view)), key=view.ids.__getitem__)
        chances = scores.probabilities(scores.columns)
        z, chances = scores.z[np.ix_(sets, order)], chances[np.ix_(sets, order)]
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
    names = [found[0].names[place] for place in shared[0]]
    return {"panel": panel, "sets": names, "families": families, "left_out": left_out}


def map_across(catalog: Catalog, path: Path, panel: str | None, layout: Layout, seed: int) -> Table:
    """Draw the models of every base that has a panel into one file, by what they learned."""
    from ..pictures import check_ending, draw_panel_map, save_picture

    check_ending(path)
    document = map_document(catalog, panel, layout, seed)
    draw = partial(draw_panel_map, document)
    save_picture(draw, path, title=f"Models of {len(document['bases'])} bases")
    shown = ("panel", "sets", "bases", "layout", "explained", "seed", "left_out")
    counted = {"written": str(path), "models": len(document["models"])}
    return Table(counted | {key: document[key] for key in shown})


def map_document(
    catalog: Catalog, panel: str | None = None, layout: Layout = "auto", seed: int = 0
) -> dict[str, Any]:
    """Places of the models of all bases, as columns: `base` and `dataset` are places in `bases`
    and `datasets`; `data` has the stars."""
    import numpy as np

    from ..pictures.maps import encode_names
    from ..search import place_models
    from ..search.panels import standardised, unit_columns

    panel = panel or shared_panel(coverage(catalog)) or BUILTIN
    table = panel_scores_table(catalog, panel).to_json()
    families, sets = table["families"], table["sets"]
    if len(families) < 2 or len(sets) < FEWEST_MAPPED:
        raise RequestError(
            f"panel {panel!r} covers {count(len(families), 'base')} with "
            f"{count(len(sets), 'data set')}; a map across bases needs 2 and {FEWEST_MAPPED}"
        )
    z = [standardised(np.array(some["z"])) for some in families]
    of, models, labels, _ = zip(*_models(table), strict=True)
    placed = place_models(
        [f"{base}\0{model}" for base, model in zip(of, models, strict=True)],
        np.concatenate(list(map(unit_columns, z))),
        layout,
        seed=seed,
    )
    bases = [some["base"] for some in families]
    places = placed.coordinates.round(6)
    dataset, datasets = encode_names(labels)
    return {
        "panel": panel,
        "sets": sets,
        "bases": bases,
        "left_out": table["left_out"],
        "layout": placed.method,
        "explained": placed.explained and list(placed.explained),
        "seed": seed,
        "models": list(models),
        "base": list(map(bases.index, of)),
        "dataset": dataset,
        "datasets": datasets,
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "data": _stars(sets, families, places),
    }


def _stars(
    sets: Sequence[str],
    families: Sequence[Mapping[str, Any]],
    places: Float64[np.ndarray, "models 2"],
) -> list[dict[str, Any]]:
    """The data sets that models stand out for, each at the mean place of these, weighted by z."""
    import numpy as np

    standing: dict[int, list[tuple[int, float]]] = {}
    first = 0
    for family in families:
        for place, model in family["standing"]:
            weight = max(family["z"][place][model], LEAST_WEIGHT)
            standing.setdefault(place, []).append((first + model, weight))
        first += len(family["models"])
    stars = []
    for place, found in sorted(standing.items()):
        rows, weights = zip(*found, strict=True)
        x, y = np.average(places[list(rows)], axis=0, weights=weights).round(6).tolist()
        stars.append({"name": sets[place], "x": x, "y": y, "models": len(rows)})
    return stars
