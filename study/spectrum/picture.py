"""Exponents by layer, and the tails of the most telling spectra with their power laws."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from ...figures import PALETTE, Picture, Style, Width, add_legend, new_picture, short
from ...results import count
from .spectrum_study import MatrixSpectrum, PowerLaw, SpectrumReport, Subject

PANEL_MM, FRAME_MM = 46.0, 22.0
COLUMNS: dict[Width, int] = {"column": 1, "full": 2}
COLOURS = PALETTE
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "*", "<", ">", "p")
NAMES: dict[Subject, str] = {"update": "ΔW", "weights": "W"}
SHOWN = 0.9
"""Share of the eigenvalues, from the largest on, that a panel of tails has room for."""
LOGARITHMIC_FROM = 4.0
"""Ratio of the largest exponent to the smallest, above which their scale is logarithmic."""


def draw_spectra(report: SpectrumReport, width: Width = "full") -> Picture:
    """A picture of α by layer and role, and of the spectra with the smallest and the largest α, for
    each of ΔW and W; all panels of exponents have one scale."""
    subjects = report.subjects
    columns = COLUMNS[width]
    rows = ceil(2 * len(subjects) / columns)
    picture = new_picture(width, FRAME_MM + PANEL_MM * rows, caption=_explanation(report))
    legend: Style = {}
    exponent_panels = []
    for i, subject in enumerate(subjects):
        own = [matrix for matrix in report.matrices if matrix.subject == subject]
        axes = picture.figure.add_subplot(rows, columns, 2 * i + 1)
        legend |= _draw_exponents(picture, axes, own)
        exponent_panels.append(axes)
        tails = picture.figure.add_subplot(rows, columns, 2 * i + 2)
        _draw_tails(picture, tails, own)
        axes.set_title(f"{NAMES[subject]}: exponent by layer")
        tails.set_title(f"{NAMES[subject]}: tails of two matrices")
    laws = [matrix.power_law for matrix in report.matrices if matrix.power_law]
    if laws:
        _share_scale(exponent_panels, laws)
    picture.figure.suptitle(f"Spectra of {short(report.name)}")
    add_legend(picture.figure, legend, columns=4 if width == "column" else 8)
    return picture


def _draw_exponents(picture: Picture, axes: Axes, matrices: Sequence[MatrixSpectrum]) -> Style:
    """α ± s.e. of each role by layer; hollow where draws rule a power law out."""
    legend: Style = {}
    fitted = [(matrix, matrix.power_law) for matrix in matrices if matrix.power_law]
    places = dict.fromkeys((matrix.stack, matrix.role) for matrix in matrices)
    several_stacks = len({stack for stack, _ in places}) > 1
    for number, (stack, role) in enumerate(places):
        own = [(m, law) for m, law in fitted if (m.stack, m.role) == (stack, role)]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        # side by side, so that errors of one layer can be told apart
        shift = 0.5 * ((number + 0.5) / len(places) - 0.5)
        name = (f"{stack} {role}" if several_stacks else role).replace("_", " ")
        for plausible in (True, False):
            some = [(m, law) for m, law in own if (m.verdict == "power law") == plausible]
            if not some:
                continue
            bars = axes.errorbar(
                [m.layer + shift for m, _ in some],
                [law.alpha for _, law in some],
                yerr=[law.standard_error for _, law in some],
                fmt=marker,
                color=colour,
                elinewidth=0.7,
                markerfacecolor=colour if plausible else "none",
            )
            if plausible or name not in legend:
                legend[name] = bars
        picture.hover(
            axes,
            [m.layer + shift for m, _ in own],
            [law.alpha for _, law in own],
            [_hover(m, law) for m, law in own],
        )
    if not fitted:
        _say_too_few(axes)
    last = max(matrix.layer for matrix in matrices)
    axes.set(xlim=(-0.6, last + 0.6), xlabel="layer", ylabel=r"$\alpha$")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    return legend


def _draw_tails(picture: Picture, axes: Axes, matrices: Sequence[MatrixSpectrum]) -> None:
    """How many eigenvalues are as large as λ, with the law above x_min."""
    fitted = [matrix for matrix in matrices if matrix.power_law and matrix.n_eigenvalues]
    ordered = sorted(fitted, key=lambda matrix: matrix.power_law.alpha if matrix.power_law else 0)
    shown = [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered
    if not shown:
        _say_too_few(axes)
    places = list(dict.fromkeys((matrix.stack, matrix.role) for matrix in matrices))
    lowest = []
    for matrix, filled in zip(shown, (True, False), strict=False):
        number = places.index((matrix.stack, matrix.role))
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        lowest += [value for count, value in matrix.curve if count <= SHOWN * matrix.n_eigenvalues]
        counts = [count for count, _ in matrix.curve]
        eigenvalues = [value for _, value in matrix.curve]
        label = f"{matrix.role.replace('_', ' ')} {matrix.layer}"
        law = matrix.power_law
        if law is not None:
            label += rf", $\alpha$ {law.alpha:.1f}"
            beyond = np.geomspace(law.x_min, max(eigenvalues), 50)
            tail = law.n_tail * (beyond / law.x_min) ** (1.0 - law.alpha)
            axes.plot(beyond, tail, color=colour)
        face = colour if filled else "none"
        style: Style = {"color": colour, "markerfacecolor": face, "markersize": 2.5}
        axes.plot(eigenvalues, counts, marker, label=label, **style)
        axes.axvline(matrix.bulk_edge or 0.0, color=colour, linestyle=":", linewidth=0.8)
        labels = (
            f"{label}: {count(n, 'eigenvalue')} of {value:.3g} or more" for n, value in matrix.curve
        )
        picture.hover(axes, eigenvalues, counts, labels)
    if lowest:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(0.7 * min(lowest), 1.6 * max(lowest))
        axes.set_ylim(bottom=0.7)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.legend(loc="lower left")
    axes.set(xlabel=r"eigenvalue $\lambda$", ylabel=r"eigenvalues $\geq \lambda$")


def _say_too_few(axes: Axes) -> None:
    axes.text(0.5, 0.5, "too few eigenvalues", ha="center", transform=axes.transAxes)
    axes.set_yticks([])


def _share_scale(panels: Sequence[Axes], laws: Sequence[PowerLaw]) -> None:
    low = min(law.alpha - law.standard_error for law in laws)
    high = max(law.alpha + law.standard_error for law in laws)
    for axes in panels:
        if high > LOGARITHMIC_FROM * low:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_ylim(0.9 * low, 1.1 * high)
        else:
            axes.set_ylim(min(1.0, low), high + 0.05 * (high - low))


def _hover(matrix: MatrixSpectrum, law: PowerLaw) -> str:
    tested = f", p {law.p_value:.2f}" if law.p_value is not None else ""
    part = f", part {matrix.part}" if matrix.part else ""
    return (
        f"{NAMES[matrix.subject]} {matrix.stack} {matrix.role}, layer {matrix.layer}{part}: "
        f"α {law.alpha:.2f} ± {law.standard_error:.2f} from {law.n_tail} of "
        f"{matrix.n_eigenvalues} eigenvalues above {law.x_min:.3g}, distance {law.distance:.3f}"
        f"{tested}"
    )


def _explanation(report: SpectrumReport) -> str:
    hollow = "; hollow where draws rule a power law out (p < 0.1)" if report.draws else ""
    return (
        "λ: eigenvalues of WᵀW, or of ΔWᵀΔW. α ± s.e.: the exponent, where the density of the "
        f"largest λ falls as 1/λ to the power of α{hollow}; roles of a layer stand side by "
        "side, so that none hides another. Tails: of the matrices with the smallest and the "
        "largest α (role, layer). Line: the law, from the λ on where it begins. "
        "Dotted: where the λ of independent entries of the same norm would end (Marchenko-Pastur)."
    )
