"""A logit lens as a picture: agreement, bits and divergence by layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ...figures import PALETTE, QUANTILE, Picture, Style, Width, add_legend, new_picture, short
from .lens_report import LayerLens, LensReport

PANEL_MM = 52.0
CAPTION = (
    "Final norm and head of the model, applied to the residual stream (hidden state 0: the "
    "embedding; n: behind n layers; the last: the model itself); {tokens} tokens of {texts} texts. "
    "Same top token: share of tokens whose most likely next token is the last layer's; decided: "
    "share that no later layer changes; vertical line: half of the tokens are decided. KL: of the "
    "last layer's distribution from the layer's (0 at the last layer, not shown). Bands: 95 % "
    "intervals over texts."
)


def draw_logit_lens(report: LensReport, width: Width = "full") -> Picture:
    """Three panels by layer; another model's lines are dashed."""
    rows, columns = (3, 1) if width == "column" else (1, 3)
    caption = CAPTION.format(tokens=report.n_tokens, texts=report.n_texts)
    beside = None if report.against is None else report.against["other"]
    picture = new_picture(width, PANEL_MM * rows + 12, caption=caption)
    agreement, bits, divergence = picture.figure.subplots(rows, columns)
    unit = "character" if report.bits_per_character is not None else "token"
    measures: tuple[tuple[Axes, str, str, str], ...] = (
        (agreement, "agreement", "Same top token as the last layer", "share of tokens"),
        (bits, f"bits_per_{unit}", "Cross-entropy of the next token", f"bits a {unit}"),
        (divergence, "kl", "KL from the last layer", "bits a token"),
    )
    styles: tuple[Style, ...] = (
        {"color": PALETTE[0], "marker": "o"},
        {"color": PALETTE[1], "marker": "s", "linestyle": "--"},
    )
    for axes, name, title, label in measures:
        for model, style in zip((report, beside), styles, strict=True):
            if model is not None:
                named = style | {"label": short(model.model)}
                _draw_line(picture, axes, model.layers, name, named)
        axes.set(title=title, xlabel="hidden state", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
        axes.grid(alpha=0.25)
    ink = rcParams["text.color"]
    numbers = [layer.layer for layer in report.layers]
    shares = [layer.decided for layer in report.layers]
    decided: Style = {"color": ink, "marker": "^", "markersize": 6, "markerfacecolor": "none"}
    name = f"decided, {short(report.model)}"
    agreement.plot(numbers, shares, linestyle=":", linewidth=0.9, label=name, **decided)
    if max(layer.kl for layer in report.layers) > 0:
        divergence.set_yscale("log")
    agreement.axvline(report.decided_layers[1], color=ink, linewidth=0.5)
    agreement.set_ylim(-0.05, 1.05)
    handles, labels = agreement.get_legend_handles_labels()
    add_legend(
        picture.figure,
        dict(zip(labels, handles, strict=True)),
        columns=1 if width == "column" else 3,
    )
    picture.figure.suptitle(f"Logit lens of {short(report.model)}")
    return picture


def _draw_line(
    picture: Picture, axes: Axes, layers: Sequence[LayerLens], name: str, style: Style
) -> None:
    # a logarithmic scale has no place for the last layer's 0
    shown = layers[:-1] if name == "kl" and len(layers) > 1 else layers
    numbers = [layer.layer for layer in shown]
    values, error = (
        np.array([getattr(layer, key) for layer in shown], dtype=np.float64)
        for key in (name, f"{name}_se")
    )
    if np.isfinite(error).any():
        around = QUANTILE * np.nan_to_num(error)
        axes.fill_between(
            numbers, values - around, values + around, color=style["color"], alpha=0.2, linewidth=0
        )
    axes.plot(numbers, values, **style)
    labels = [
        f"{style['label']}, hidden state {number}\n{value:.3f}"
        + (f" ± {e:.3f}" if np.isfinite(e) else "")
        for number, value, e in zip(numbers, values, error, strict=True)
    ]
    picture.hover(axes, numbers, values, labels)
