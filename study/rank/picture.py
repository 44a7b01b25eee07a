"""Curves of rank by layer, one panel for each role, with the laws that hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, exp

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

from ...errors import StudyError
from ...figures import PALETTE, SMALL, Picture, Style, Width, add_legend, new_picture, short
from .laws import LAW_NAMED
from .rank_study import RankCurve, RankPoint, RankReport

PANEL_MM, TITLE_LINE_MM, FRAME_MM = 36.0, 3.4, 20.0
COLUMNS: dict[Width, int] = {"column": 2, "full": 3}
COLOURS = PALETTE[:-1]
MARKERS = ("o", "s", "^", "D", "v", "P")
LABELS = LAW, ROUNDING, ABOVE, ZERO = (
    "law that holds",
    "storage rounding, not fitted",
    "rounding, above the scale",
    "exactly zero",
)
OFF_SCALE = 2.0
"""Rounding above this multiple of every true rank is drawn at the upper edge."""
LOGARITHMIC_FROM = 25.0
"""Ratio of the largest rank to the smallest, above which several θ have a logarithmic scale."""

FORMULAS: dict[str, Callable[..., str]] = {
    "constant": lambda a: _terms(a),
    "linear": lambda a, b: _terms(a, (b, "x")),
    "quadratic": lambda a, b, c: _terms(a, (b, "x"), (c, "x^2")),
    "quarter ellipse": lambda low, high: _terms(low, (high - low, r"\sqrt{1-((l+1)/L)^2}")),
    "exponential": lambda a, b, c: (
        _terms(a, (b, rf"\,e^{{-{_number(c)}x}}"))
        if c > 0  # at the end where it is largest, so that its factor has no hidden size
        else _terms(a, (b * exp(-c), rf"\,e^{{{_number(-c)}(x-1)}}"))
    ),
    "power": lambda a, b, c: _terms(a, (b, rf"\,(l+1)^{{{_number(c)}}}")),
    "step": lambda a, b, c: rf"{_number(a)}\to{_number(a + b)}\ (l\geq{c:.0f})",
    "logistic drop": lambda a, b, c, d: _terms(
        a, (b, rf"/(1+e^{{(x-{_number(c)})/{_number(d)}}})")
    ),
}
"""A law's parameters to its formula, in matplotlib's mathtext."""


def draw_ranks(
    report: RankReport, thetas: Sequence[float] | None = None, width: Width = "full"
) -> Picture:
    """A picture of r_θ by layer: a panel for each role of each stack, lines by θ.

    Raises:
        StudyError: the report holds no ranks at one of the θ, or there are too many.
    """
    shown = tuple(dict.fromkeys(thetas or report.thetas))
    if len(shown) > len(MARKERS):
        raise StudyError(f"{report.name}: a picture has {len(MARKERS)} values of θ at most")
    by_theta = [report.curves_at(theta) for theta in shown]
    panels = list(zip(*by_theta, strict=True))
    columns = min(len(panels), COLUMNS[width])
    rows = ceil(len(panels) / columns)
    height = FRAME_MM + rows * (PANEL_MM + TITLE_LINE_MM * len(shown))
    scales = {
        stack: _Scale([c for p in panels for c in p if c.stack == stack])
        for stack in dict.fromkeys(panel[0].stack for panel in panels)
    }
    is_logarithmic = any(scale.logarithmic for scale in scales.values())
    caption = _explanation(report, is_logarithmic=is_logarithmic)
    picture = new_picture(width, height, caption=caption)
    several_stacks = len(scales) > 1
    legend: Style = {}
    for i, panel in enumerate(panels):
        axes = picture.figure.add_subplot(rows, columns, i + 1)
        first = panel[0]
        name = f"{first.stack} {first.role}" if several_stacks else first.role
        for number, curve in enumerate(panel):
            legend |= _draw_curve(picture, axes, curve, number, scales[first.stack])
        captions = (_caption(curve, len(shown) > 1, width) for curve in panel)
        lines = [name.replace("_", " "), *captions]
        axes.set_title("\n".join(lines), fontsize=SMALL)
        scales[first.stack].set(axes, first.n_layers)
        if i % columns == 0:
            axes.set_ylabel(r"rank $r_\theta$")
        if i + columns >= len(panels):
            axes.set_xlabel("layer $l$")
    n_models = len(report.models)
    mean = f", mean of {n_models} models" if n_models > 1 else ""
    picture.figure.suptitle(f"Rank by layer: {short(report.name)}{mean}")
    marks = [name for name in legend if name not in LABELS]
    entries = {label: legend[label] for label in (*marks, *LABELS) if label in legend}
    add_legend(picture.figure, entries, columns=3 if width == "column" else 99)
    return picture


class _Scale:
    """The scale of ranks that all panels of a stack share."""

    def __init__(self, curves: Sequence[RankCurve]) -> None:
        points = [point for curve in curves for point in curve.points]
        true = [point for point in points if point.fitted]
        rounding = [point.rank for point in points if not point.valid]
        highest = max((p.rank + (p.standard_error or 0.0) for p in true), default=0.0)
        near = [rank for rank in rounding if not true or rank <= OFF_SCALE * highest]
        ceiling = max(highest, *near, 1.0)
        lowest = min((point.rank for point in true), default=1.0)
        several = len({curve.theta for curve in curves}) > 1
        self.logarithmic = several and ceiling / lowest > LOGARITHMIC_FROM
        self.bottom = 0.7 * lowest if self.logarithmic else 0.0
        self.top = ceiling * (1.3 if self.logarithmic else 1.12)

    def place(self, rank: float) -> float:
        return min(max(rank, self.bottom), self.top)

    def set(self, axes: Axes, n_layers: int) -> None:
        axes.set(xlim=(-0.5, n_layers - 0.5))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
        if self.logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
        axes.set_ylim(self.bottom, self.top)


def _draw_curve(
    picture: Picture, axes: Axes, curve: RankCurve, number: int, scale: _Scale
) -> Style:
    legend: Style = {}
    colour, marker = COLOURS[number], MARKERS[number]
    true = [point for point in curve.points if point.fitted]
    rounding = [point for point in curve.points if not point.valid]
    if true:
        deviations = [point.standard_error or 0.0 for point in true]
        label = rf"$\theta = {curve.theta:g}$" + (", mean ± s.e." if any(deviations) else "")
        legend[label] = axes.errorbar(
            [point.layer for point in true],
            [point.rank for point in true],
            yerr=deviations if any(deviations) else None,
            fmt=marker,
            color=colour,
        )
        if curve.fit.best is not None and curve.fit.pattern:
            best = curve.fit.best
            layers = np.linspace(true[0].layer, true[-1].layer, 200)
            values = LAW_NAMED[best.law].values(best.values, layers + 1.0, curve.n_layers)
            axes.plot(layers, values, color=colour, zorder=1.5)
            legend[LAW] = Line2D([], [], color=rcParams["text.color"])
    hollow: Style = {"ls": "none", "color": colour, "markerfacecolor": "none", "clip_on": False}
    groups: tuple[tuple[str, str, list[RankPoint]], ...] = (
        (ROUNDING, marker, [p for p in rounding if p.rank <= scale.top]),
        (ABOVE, "$↑$", [p for p in rounding if p.rank > scale.top]),
        (ZERO, "x", [p for p in curve.points if p.valid and not p.rank]),
    )
    for label, shape, points in groups:
        if points:
            at = [point.layer for point in points]
            heights = [scale.place(point.rank) for point in points]
            legend[label], *_ = axes.plot(at, heights, marker=shape, **hollow)
    picture.hover(
        axes,
        [point.layer for point in curve.points],
        [scale.place(point.rank) for point in curve.points],
        [_hover(curve, point) for point in curve.points],
    )
    return legend


def _hover(curve: RankCurve, point: RankPoint) -> str:
    spread = f" ± {point.standard_error:.2g}" if point.standard_error is not None else ""
    models = f", mean of {point.count}" if point.count > 1 else ""
    reason = f"; {point.reason}" if point.reason else ""
    return (
        f"{curve.stack} {curve.role}, layer {point.layer}, θ = {curve.theta:g}: "
        f"rank {point.rank:.4g}{spread}{models}{reason}"
    )


def _caption(curve: RankCurve, several: bool, width: Width) -> str:
    """The law, where one holds, or the word that says why none does; no formulas where narrow."""
    fit = curve.fit
    head = rf"$\theta$ {curve.theta:g}: " if several else ""
    if fit.best is None or not fit.pattern:
        return head + fit.verdict
    formula = f"${FORMULAS[fit.best.law](*fit.best.values)}$"
    if fit.verdict == "constant":
        return f"{head}constant {formula}"
    if several and width == "column":
        return f"{head}{fit.verdict} {fit.best.r_squared:.2f}"
    return f"{head}{formula},  $R^2$ {fit.best.r_squared:.2f}"


def _explanation(report: RankReport, *, is_logarithmic: bool) -> str:
    matrix = "ΔW" if report.subject == "update" else "W"
    bent = " On a logarithmic axis a linear law is bent." if is_logarithmic else ""
    return (
        f"r_θ: fewest singular directions of {matrix} that hold the share θ of |{matrix}|². "
        "l = 0…L − 1: the layer; x = l/(L − 1). A line is drawn, and its law and R² given, where a "
        "law of depth or a step holds or the ranks are constant; 'depends on depth, no law' and "
        f"'no pattern': none of these does.{bent}"
    )


def _terms(constant: float, *others: tuple[float, str]) -> str:
    text = _number(constant)
    for factor, term in others:
        text += f"{'-' if factor < 0 else '+'}{_number(abs(factor))}{term}"
    return text


def _number(value: float) -> str:
    """Three digits, with an exponent where they would need many zeros."""
    text = f"{value:.3g}"
    mantissa, _, exponent = text.partition("e")
    return rf"{mantissa}\mathrm{{e}}{{{int(exponent)}}}" if exponent else text
