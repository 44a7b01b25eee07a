"""Data sets beside fine-tunes: a heat map of z."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Bool, Float64, Int64
from .figures import Picture, Width, middle_cut, new_picture, short

ROW_MM, HEAD_MM = 3.6, 30.0
MOST_MODELS = 40
"""Models in the picture, the nearest of each data set in turn."""

MOST_NUMBERED: Mapping[Width, int] = {"full": 14, "column": 3}
"""Data sets up to which cells have numbers."""

LIGHT_CELL = 0.55
"""Share of the scale above which a cell's number is dark."""

NAME: Mapping[Width, int] = {"full": 40, "column": 26}
"""Characters of a model's name, cut in the middle."""

DATA_NAME = 24
CAPTION = (
    "z of each data set's gradient with each fine-tune: standard deviations above its scores with "
    "the family's strangers. {marks}{shown}"
    "It says at most: trained on this data, or on data like it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataScores:
    """What is drawn; `standing` are the cells whose model stands out for the data set. z is NaN
    where a model's family has no gradient of one."""

    base: str
    data: tuple[str, ...]
    models: tuple[str, ...]
    z: Float64[np.ndarray, "data models"] = field(compare=False)
    standing: Bool[np.ndarray, "data models"] = field(compare=False)


def draw_data_scores(scores: DataScores, width: Width = "full") -> Picture:
    """Models in rows, by the data set that they are nearest to; data sets in columns."""
    rows = shown_models(scores.z, MOST_MODELS)
    z, standing = scores.z[:, rows].T, scores.standing[:, rows].T
    shown = (
        f"{len(rows)} of {len(scores.models)} models. " if len(rows) < len(scores.models) else ""
    )
    marks = "Framed: the model stands out. " if standing.any() else "No model stands out. "
    caption = CAPTION.format(marks=marks, shown=shown)
    picture = new_picture(width, HEAD_MM + ROW_MM * len(rows), caption=caption)
    axes = picture.figure.subplots()
    top = max(1.0, float(np.nanmax(z)))
    image = axes.imshow(z, cmap="viridis", vmin=0.0, vmax=top, aspect="auto")
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(len(scores.data)), [_cut(name) for name in scores.data], rotation=90)
    names = [middle_cut(scores.models[row], NAME[width]) for row in rows.tolist()]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(length=0)
    for (row, column), value in np.ndenumerate(z):
        if np.isnan(value):
            continue
        if len(scores.data) <= MOST_NUMBERED[width]:
            ink = "black" if value > LIGHT_CELL * top else "white"
            number = f"{value:.1f}".replace("-0.0", "0.0")
            axes.text(column, row, number, ha="center", va="center", color=ink, fontsize=6)
        if standing[row, column]:
            axes.plot(*_frame(row, column), color="#D55E00", linewidth=1.4, solid_joinstyle="miter")
        label = f"{scores.models[rows[row]]}\n{scores.data[column]}: z {value:.1f}"
        picture.hover(axes, [column], [row], [label])
    picture.figure.colorbar(image, ax=axes, label="z", shrink=min(1.0, 12 / len(rows) + 0.3))
    picture.figure.suptitle(f"Data sets and fine-tunes of {short(scores.base)}")
    return picture


def shown_models(z: Float64[np.ndarray, "data models"], most: int) -> Int64[np.ndarray, " shown"]:
    """The models nearest to the data sets, in turn; by their nearest set, then by falling z."""
    order = np.argsort(-z, axis=1, kind="stable")
    chosen = np.array(list(dict.fromkeys(order.T.ravel().tolist()))[:most], dtype=np.int64)
    own = np.where(np.isnan(z), -np.inf, z).argmax(axis=0)[chosen]
    by_data: Int64[np.ndarray, " shown"] = chosen[np.lexsort((-z[own, chosen], own))]
    return by_data


def _frame(row: int, column: int) -> tuple[list[float], list[float]]:
    left, right, low, high = column - 0.46, column + 0.46, row - 0.42, row + 0.42
    return [left, right, right, left, left], [low, low, high, high, low]


def _cut(name: str) -> str:
    return short(name if len(name) <= DATA_NAME else f"{name[: DATA_NAME - 1]}…")
