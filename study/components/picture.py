"""The components of hidden states by layer, by head, and what a fine-tune edited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ...arrays import Float64
from ...pictures.figures import Picture, Width, add_legend, new_picture, short
from .components_study import Against, ComponentsReport, StackComponents

PANEL_MM: Mapping[Width, float] = {"full": 58.0, "column": 56.0}
COLUMNS: Mapping[Width, int] = {"full": 3, "column": 1}
TITLE_MM, LEGEND_MM = 8.0, 8.0

STYLES: Mapping[str, tuple[str, str, Any]] = {
    "input": ("C0", "o", "-"),
    "attention": ("C1", "s", (0, (5, 1.5))),
    "feed_forward": ("C2", "^", (0, (5, 1.5, 1, 1.5))),
    "source": ("C3", "v", (0, (3, 1, 1, 1, 1, 1))),
    "bias": ("C4", "D", (0, (1, 1.2))),
}
"""Colour, marker and line of each term, which differ without colour too."""

Values = Float64[np.ndarray, "rows columns"]

LIGHT_CELL = 0.55
"""Share of the scale of a heat map above which its numbers are dark."""
MOST_LABELLED = 8
"""Layers with a label below a panel of lines."""
MOST_NUMBERED = 12
"""Layers of a heat map that has numbers."""
SHORT_TERMS = {"attention": "attn.", "feed_forward": "feed-f.", "source": "source", "bias": "bias"}


def draw_components(report: ComponentsReport, width: Width = "full") -> Picture:
    """A picture with some panels for each residual stream."""
    sizes = [len(_panels(stack, "")) for stack in report.stacks]
    columns = min(COLUMNS[width], 2 if max(sizes) == 4 else 3)
    n_rows = sum(-(-size // columns) for size in sizes)
    height = TITLE_MM + LEGEND_MM + PANEL_MM[width] * n_rows
    picture = new_picture(width, height, caption=_caption(report))
    grid = picture.figure.subplots(n_rows, min(columns, max(sizes)), squeeze=False)
    rows = iter(grid)
    entries: dict[str, Any] = {}
    for stack in report.stacks:
        panels = _panels(stack, f"{stack.name}: " if len(report.stacks) > 1 else "")
        for first in range(0, len(panels), columns):
            row = next(rows)
            for axes, draw in zip(row, panels[first : first + columns], strict=False):
                draw(picture, axes, entries)
            for axes in row[len(panels[first : first + columns]) :]:
                axes.set_axis_off()
    add_legend(picture.figure, entries, columns=5 if width == "full" else 3)
    beside = f" against {short(report.against)}" if report.against else ""
    title = f"Components of {short(report.model)}{beside}"
    if width == "column" and beside:
        title = title.replace(beside, "\n" + beside.strip())
    picture.figure.suptitle(title)
    return picture


def _panels(stack: StackComponents, prefix: str) -> Sequence[Callable[..., None]]:
    """What draws each panel of a stream, in order."""
    against = stack.against
    titles = (f"{prefix}importance", "⟨e, x⟩ / |e|²")
    panels = [partial(_lines, stack, stack.importance, stack.importance_sd, titles)]
    if against is None:
        titles = (f"{prefix}length", "|x| / |e|")
        panels.append(partial(_lines, stack, stack.norm_ratio, None, titles))
    else:
        titles = (f"{prefix}how far each term moved", "|x′ − x| / |e|")
        panels.append(partial(_lines, stack, against.term_shift, None, titles))
        panels.append(partial(_edits, against, f"{prefix}where it was edited"))
    if stack.heads is not None:
        shift = stack.heads.local_shift
        titles = (f"{prefix}heads in the last layer", "⟨e, x⟩ / |e|²")
        if shift is not None:
            titles = (f"{prefix}edited heads", "own change / input")
        values = stack.heads.importance_last if shift is None else shift
        panels.append(partial(_heads, values, titles))
    return panels


def _caption(report: ComponentsReport) -> str:
    parts = [
        "e: the hidden state of a token (0: the embedding output; n: behind n layers); x: one of "
        "its terms, which sum to e. Layers and heads count from 0. Lines: means over tokens; "
        "bands: ± their standard deviation."
    ]
    if any(stack.layers[-1] == "final" for stack in report.stacks):
        parts.append("final: after the final norm.")
    if report.against is not None:
        parts.append(
            f"x′: the term in {report.model.rsplit('/', 1)[-1]}; x and e: those of "
            f"{report.against.rsplit('/', 1)[-1]}. Own change / input: |change of the sub-layer's "
            "own output| / |input|, on the base's input, so that earlier layers have no part in it."
        )
    if any(stack.heads is not None for stack in report.stacks):
        parts.append(
            "Edited heads: the same of each head's part of attention."
            if report.against is not None
            else "Heads: x is what one head of one layer adds, e the last hidden state; all cells "
            "sum to the importance of attention there."
        )
    return " ".join(parts)


def _lines(
    stack: StackComponents,
    values: Values,
    spread: Values | None,
    titles: tuple[str, str],
    picture: Picture,
    axes: Axes,
    entries: dict[str, Any],
) -> None:
    places = np.arange(len(stack.layers))
    for column, term in enumerate(stack.terms):
        if term in stack.absent:
            continue
        line, name = values[:, column], term.replace("_", "-")
        colour, marker, dashes = STYLES[term]
        (drawn,) = axes.plot(places, line, marker=marker, linestyle=dashes, color=colour)
        entries.setdefault(name, drawn)
        if spread is not None:
            around = spread[:, column]
            axes.fill_between(places, line - around, line + around, alpha=0.15, color=colour, lw=0)
        labels = (
            f"hidden state {layer}, {name}\n{titles[1]} = {value:.4f}"
            for layer, value in zip(stack.layers, line, strict=True)
        )
        picture.hover(axes, places, line, labels)
    axes.set(title=titles[0], xlabel="hidden state", ylabel=titles[1])
    normed = stack.layers[-1] == "final"
    shown = list(range(0, len(places) - normed, -(-len(places) // MOST_LABELLED)))
    if normed:
        axes.axvline(places[-1] - 0.5, lw=0.8, ls=":", color="0.5")
        # a number beside the last label would touch it
        shown = [place for place in shown if place < places[-1] - 1] + [int(places[-1])]
    axes.set_xticks(shown, [stack.layers[place] for place in shown])


def _edits(against: Against, title: str, picture: Picture, axes: Axes, _: dict[str, Any]) -> None:
    names = [SHORT_TERMS[term] for term in against.local_terms]
    _heat_map(picture, axes, against.local_shift, names, "own change / input")
    axes.set_title(title)
    values = against.local_shift
    if len(values) > MOST_NUMBERED:
        return
    top = float(values.max()) or 1.0
    for (layer, term), value in np.ndenumerate(values):
        ink = "black" if value > LIGHT_CELL * top else "white"
        number = f"{value:.3f}" if value >= 0.0005 else "0"
        axes.text(term, layer, number, ha="center", va="center", color=ink, fontsize=7)


def _heads(
    values: Values, titles: tuple[str, str], picture: Picture, axes: Axes, _: dict[str, Any]
) -> None:
    names = [str(head) for head in range(values.shape[1])]
    _heat_map(picture, axes, values, names, titles[1])
    axes.set(title=titles[0], xlabel="head")
    step = -(-len(names) // 8)
    axes.set_xticks(range(0, len(names), step), names[::step])


def _heat_map(
    picture: Picture, axes: Axes, values: Values, names: Sequence[str], measure: str
) -> None:
    low, high = min(0.0, float(values.min())), float(values.max()) or 1.0
    shown = axes.imshow(values, aspect="auto", cmap="cividis", vmin=low, vmax=high, origin="lower")
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("layer")
    axes.spines[:].set_visible(False)
    step = -(-len(values) // MOST_NUMBERED)
    axes.set_yticks(range(0, len(values), step), [str(n) for n in range(0, len(values), step)])
    bar = picture.figure.colorbar(shown, ax=axes, aspect=30)
    bar.set_label(measure)
    bar.locator = MaxNLocator(nbins=5)
    bar.update_ticks()
    places = list(np.ndindex(values.shape))
    kind = "head " if names[0].isdigit() else ""
    labels = (f"layer {b}, {kind}{names[c]}\n{measure} = {values[b, c]:.4f}" for b, c in places)
    picture.hover(axes, [c for _, c in places], [b for b, _ in places], labels)
