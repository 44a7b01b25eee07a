"""The fit of one law to ranks by depth whose errors are known to be no smaller than a floor.

A rank is a whole number: what it counts is known to ±½, so its variance is 1/12 at least
(Sheppard 1898), that of a mean over m of them 1/(12·m) at least. A family's mean has its
standard error. What scatters beyond the known errors is one more variance τ², the same at every
depth, found such that Σ residual²/(known + τ²) is n − k (Paule & Mandel 1982), and 0 where the
known errors suffice. Least squares weighted by 1/(known + τ²) solve for the linear parameters
exactly (variable projection, Golub & Pereyra 1973), so that only the shape is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Float64
from .laws import Box, Law, Layers, Shape

ON_BOUND = 1e-3
"""A shape so close to a bound of its box, relative to it, is at the bound."""
ROUNDS, SETTLED = 8, 1e-4
"""Of weights and shape in turn; they settle in two or three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Ranks by layer (1…L) with the known variance of each."""

    layers: Layers
    ranks: Layers
    variances: Layers
    n_layers: int

    def without(self, point: int) -> Curve:
        return replace(
            self,
            layers=np.delete(self.layers, point),
            ranks=np.delete(self.ranks, point),
            variances=np.delete(self.variances, point),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """A law with the parameters that fit best.

    Attributes:
        parameters: Linear ones first.
        shape: The last of them.
        excess: τ², the variance beyond the known one.
        residuals: Rank − law, in ranks.
        chi_squared: Σ residual²/(known variance + τ²): n − k, or less where τ² is 0.
        box: The region that the shape was searched for in; None without a shape.
    """

    law: Law
    parameters: tuple[float, ...]
    shape: Shape
    excess: float
    residuals: Layers
    chi_squared: float
    box: Box | None

    @property
    def degrees(self) -> int:
        """Degrees of freedom: points − parameters."""
        return len(self.residuals) - len(self.parameters)

    @property
    def on_bound(self) -> bool:
        """Whether the points push the shape out of the range where it is determined."""
        if self.box is None or self.box.discrete:
            return False
        shape = np.array(self.shape)
        return any(
            bool((np.abs(shape - bound) <= ON_BOUND * np.abs(bound)).any())
            for bound in (np.array(self.box.lower), np.array(self.box.upper))
        )


def fit_law(law: Law, curve: Curve, near: LawFit | None = None) -> LawFit:
    """The best fit of a law; of its shape, near that of another fit if one is given."""
    boxes: Sequence[Box | None] = law.boxes(curve.n_layers) or (None,)
    if near is not None:
        boxes = (near.box,)
    fits = [_fit_in(law, curve, box, near) for box in boxes]
    return min(fits, key=lambda fit: (fit.excess, fit.chi_squared))


def f_test(simple: LawFit, fit: LawFit, curve: Curve) -> float:
    """P-value of what a law explains beyond one with fewer parameters.

    Both are weighted by the variances under the larger law. Its mean square counts as 1 at
    least, as the known errors alone are that large.
    """
    from scipy.special import fdtrc

    extra = len(fit.parameters) - len(simple.parameters)
    weighted = project(simple.law, curve, simple.shape, fit.excess)[1]
    gain = max(0.0, float(np.sum(weighted**2)) - fit.chi_squared)
    scale = max(1.0, fit.chi_squared / fit.degrees)
    return float(fdtrc(extra, fit.degrees, gain / extra / scale))


def deviance(fit: LawFit, curve: Curve) -> float:
    """−2 ln likelihood at the most likely τ² ≥ 0; n ln(RSS/n) where the known errors are 0."""
    from scipy.optimize import minimize_scalar

    squares = fit.residuals**2

    def at(excess: float) -> float:
        variances = curve.variances + excess
        return float(np.sum(np.log(variances) + squares / variances - 1.0))

    most = float(squares.max())
    found = minimize_scalar(at, bounds=(0.0, most), method="bounded") if most > 0 else None
    return min(at(0.0), found.fun if found else at(0.0))


def _fit_in(law: Law, curve: Curve, box: Box | None, near: LawFit | None) -> LawFit:
    """The best fit with a shape in a box: weights and shape in turn until both stand still."""
    excess, shape = (near.excess, near.shape) if near else (0.0, ())
    for _ in range(1 if near or _alike(curve.variances) else ROUNDS):
        if box is not None:
            shape = _best_shape(law, curve, box, shape, excess)
        before, excess = excess, excess_variance(law, curve, shape)
        if abs(excess - before) <= SETTLED * excess:
            break
    linear, weighted = project(law, curve, shape, excess)
    parameters = (*linear, *shape)
    return LawFit(
        law=law,
        parameters=parameters,
        shape=shape,
        excess=excess,
        residuals=weighted * np.sqrt(curve.variances + excess),
        chi_squared=float(np.sum(weighted**2)),
        box=box,
    )


def excess_variance(law: Law, curve: Curve, shape: Shape) -> float:
    """τ² with Σ residual²/(known + τ²) = n − k, or 0 where the sum is below that already."""
    from scipy.optimize import brentq

    columns = int(law.basis(curve.layers[:1], curve.n_layers, shape).shape[1]) + len(shape)
    degrees = len(curve.ranks) - columns

    def surplus(excess: float) -> float:
        return float(np.sum(project(law, curve, shape, excess)[1] ** 2) - degrees)

    beyond = surplus(0.0)
    if beyond <= 0.0:
        return 0.0
    if _alike(curve.variances):
        return float(curve.variances[0] * beyond / degrees)
    most = float(np.sum((curve.ranks - curve.ranks.mean()) ** 2)) + 1.0
    while surplus(most) > 0.0:
        most *= 4.0
    return float(brentq(surplus, 0.0, most, xtol=1e-9 * most, rtol=1e-9))


def _alike(variances: Layers) -> bool:
    """Whether one factor of all variances changes no fit."""
    return bool(np.ptp(variances) <= 1e-12 * variances.max())


def _best_shape(law: Law, curve: Curve, box: Box, start: Shape, excess: float) -> Shape:
    """The shape with the smallest sum of squares: from a start, or from the best of the grid."""
    from scipy.optimize import least_squares

    def residuals(shape: Float64[np.ndarray, " shape"]) -> Layers:
        return project(law, curve, tuple(shape.tolist()), excess)[1]

    if not start:
        sums = [float(np.sum(residuals(np.array(shape)) ** 2)) for shape in box.shapes]
        start = box.shapes[int(np.argmin(sums))]
    if box.discrete:
        return start
    inside = np.clip(start, box.lower, box.upper)
    found = least_squares(residuals, inside, bounds=(box.lower, box.upper), x_scale="jac")
    return tuple(found.x.tolist())


def project(
    law: Law, curve: Curve, shape: Shape, excess: float
) -> tuple[tuple[float, ...], Layers]:
    """The linear parameters that fit best at this shape, and the weighted residuals."""
    root = 1.0 / np.sqrt(curve.variances + excess)
    basis = law.basis(curve.layers, curve.n_layers, shape) * root[:, None]
    size = np.abs(basis).max(axis=0)
    size[size == 0] = 1.0
    basis /= size
    wanted = curve.ranks * root
    solution, *_ = np.linalg.lstsq(basis, wanted, rcond=None)
    return tuple((solution / size).tolist()), wanted - basis @ solution
