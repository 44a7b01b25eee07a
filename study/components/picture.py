"""The components of hidden states by layer, and what a fine-tune edited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ...arrays import Float64
from ...figures import Picture, Width, add_legend, new_picture, short
from .components_study import Against, ComponentsReport, StackComponents

PANEL_MM: Mapping[Width, float] = {"full": 58.0, "column": 56.0}
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
    by_stack = [
        _panels(stack, f"{stack.name}: " if len(report.stacks) > 1 else "")
        for stack in report.stacks
    ]
    n_panels = len(by_stack[0])
    shape = (len(by_stack), n_panels) if width == "full" else (len(by_stack) * n_panels, 1)
    height = TITLE_MM + LEGEND_MM + PANEL_MM[width] * shape[0]
    picture = new_picture(width, height, caption=_caption(report))
    grid = picture.figure.subplots(*shape, squeeze=False)
    entries: dict[str, Any] = {}
    for axes, draw in zip(grid.ravel(), chain.from_iterable(by_stack), strict=True):
        draw(picture, axes, entries)
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
    return panels


def _caption(report: ComponentsReport) -> str:
    parts = [
        "e: the hidden state of a token (0: the embedding output; n: behind n layers); x: one of "
        "its terms, which sum to e. Layers count from 0. Lines: means over tokens; "
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
    values, measure = against.local_shift, "own change / input"
    top = float(values.max()) or 1.0
    shown = axes.imshow(values, aspect="auto", cmap="cividis", vmin=0.0, vmax=top, origin="lower")
    axes.set(title=title, ylabel="layer")
    axes.set_xticks(range(len(names)), names)
    axes.spines[:].set_visible(False)
    step = -(-len(values) // MOST_NUMBERED)
    axes.set_yticks(range(0, len(values), step), [str(n) for n in range(0, len(values), step)])
    bar = picture.figure.colorbar(shown, ax=axes, aspect=30)
    bar.set_label(measure)
    bar.locator = MaxNLocator(nbins=5)
    bar.update_ticks()
    places = list(np.ndindex(values.shape))
    labels = (f"layer {b}, {names[c]}\n{measure} = {values[b, c]:.4f}" for b, c in places)
    picture.hover(axes, [c for _, c in places], [b for b, _ in places], labels)
    if len(values) > MOST_NUMBERED:
        return
    for (layer, term), value in np.ndenumerate(values):
        ink = "black" if value > LIGHT_CELL * top else "white"
        number = f"{value:.3f}" if value >= 0.0005 else "0"
        axes.text(term, layer, number, ha="center", va="center", color=ink, fontsize=7)
