"""Curves of rank by layer, one panel for each role, with the laws that fit them."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..rank.rank_laws import LAW_NAMED
from ..rank.rank_report import FamilyRankReport, RankCurve, RankPoint, RankReport
from .figures import Picture, Style, Width, add_legend, new_picture, short

PANEL_MM = 45.0
COLUMNS: dict[Width, int] = {"column": 2, "full": 3}
POINTS, LAW = "C0", "C1"
LABELS = SINGLE, MEAN, LINE, ROUNDING, ABOVE, ZERO = (
    "rank",
    "rank, mean ± s.e.",
    "law, $x = (l-1)/(L-1)$",
    "storage rounding, not fitted",
    "rounding, above the scale",
    "exactly zero",
)
OFF_SCALE = 2.0
"""Rounding above this multiple of every true rank is drawn at the upper edge."""

FORMULAS: dict[str, Callable[..., str]] = {
    "constant": lambda a: _terms(a),
    "linear": lambda a, b: _terms(a, (b, "x")),
    "quadratic": lambda a, b, c: _terms(a, (b, "x"), (c, "x^2")),
    "quarter ellipse": lambda low, high: _terms(low, (high - low, r"\sqrt{1-(l/L)^2}")),
    "exponential": lambda a, b, c: _terms(a, (b, rf"\,\exp({_number(-c)}x)")),
    "power": lambda a, b, c: _terms(a, (b, rf"\,l^c,\;\;c={_number(c)}")),
    "logistic drop": lambda a, b, c, d: _terms(
        a, (b, rf"/(1+\exp((x-{_number(c)})/{_number(d)}))")
    ),
}
"""A law's parameters to its formula, in matplotlib's mathtext."""


def draw_ranks(report: RankReport, theta: float, width: Width = "full") -> Picture:
    """A picture of r_θ by layer (from 1), with a panel for each role of each stack.

    The colours of text and background are those of `rcParams`.

    Raises:
        StudyError: The report holds no ranks at `theta`.
    """
    curves = report.curves_at(theta)
    columns = min(len(curves), COLUMNS[width])
    rows = ceil(len(curves) / columns)
    picture = new_picture(width, 22.0 + PANEL_MM * rows)
    figure = picture.figure
    several_stacks = len({curve.stack for curve in curves}) > 1
    legend: Style = {}
    for i, curve in enumerate(curves):
        axes = figure.add_subplot(rows, columns, i + 1)
        legend |= _draw_curve(axes, curve)
        name = f"{curve.stack} {curve.role}" if several_stacks else curve.role
        axes.set_title(f"{name.replace('_', ' ')}{_caption(curve)}")
        if i % columns == 0:
            axes.set_ylabel(f"rank at θ = {theta:g}")
        if i + columns >= len(curves):
            axes.set_xlabel("layer $l$")
    figure.suptitle(_title(report, theta))
    entries = {label: legend[label] for label in LABELS if label in legend}
    add_legend(figure, entries)
    return picture


def _draw_curve(axes: Axes, curve: RankCurve) -> Style:
    """Draw the points and the law of a curve; the entries of the legend."""
    legend: Style = {}
    true = [point for point in curve.points if point.fitted]
    rounding = [point for point in curve.points if not point.valid]
    top = _top(true, rounding)
    if true:
        deviations = [point.standard_error or 0.0 for point in true]
        label = MEAN if any(deviations) else SINGLE
        legend[label] = axes.errorbar(
            [point.layer + 1 for point in true],
            [point.rank for point in true],
            yerr=deviations if any(deviations) else None,
            fmt="o",
            color=POINTS,
            markersize=5,
            capsize=2.5,
        )
        if curve.fit.best is not None and curve.fit.pattern:
            best = curve.fit.best
            layers = np.linspace(true[0].layer + 1.0, true[-1].layer + 1.0, 200)
            values = LAW_NAMED[best.law].values(best.values, layers, curve.n_layers)
            legend[LINE], *_ = axes.plot(layers, values, color=LAW, linewidth=1.8, zorder=1.5)
    hollow: Style = {"ls": "none", "ms": 6, "color": POINTS, "markerfacecolor": "none"}
    groups: tuple[tuple[str, str, list[RankPoint]], ...] = (
        (ROUNDING, "o", [p for p in rounding if p.rank <= top]),
        (ABOVE, "^", [p for p in rounding if p.rank > top]),
        (ZERO, "x", [p for p in curve.points if p.valid and not p.rank]),
    )
    for label, marker, points in groups:
        if points:
            at = [point.layer + 1 for point in points]
            heights = [min(point.rank, top) for point in points]
            legend[label], *_ = axes.plot(at, heights, marker=marker, clip_on=False, **hollow)
    axes.set(xlim=(0.5, curve.n_layers + 0.5), ylim=(0.0, top))
    for axis, nbins in ((axes.xaxis, 8), (axes.yaxis, 5)):
        axis.set_major_locator(MaxNLocator(nbins=nbins, integer=True, min_n_ticks=1))
    return legend


def _top(true: list[RankPoint], rounding: list[RankPoint]) -> float:
    """The upper end of the scale: above true ranks, and above rounding that is near them."""
    highest = max((p.rank + (p.standard_error or 0.0) for p in true), default=0.0)
    near = [p.rank for p in rounding if not true or p.rank <= OFF_SCALE * highest]
    return 1.12 * max(highest, *near, 1.0)


def _caption(curve: RankCurve) -> str:
    fit = curve.fit
    if fit.best is None:
        return "\nno fit: too few points"
    quality = f"$R^2 = {fit.best.r_squared:.2f}$"
    if fit.pattern:
        return f",  {quality}\n${FORMULAS[fit.best.law](*fit.best.values)}$"
    none = "\nno pattern"
    return none if fit.best.law == "constant" else f"{none} (best: {fit.best.law}, {quality})"


def _title(report: RankReport, theta: float) -> str:
    matrix = r"\Delta W" if report.subject == "update" else "W"
    title = rf"Directions that carry {100 * theta:g} % of $\|{matrix}\|^2$: "
    title += short(report.name)
    if isinstance(report, FamilyRankReport):
        title += f", mean of {len(report.models)} models"
    return title


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
