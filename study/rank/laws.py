"""The forms that rank against depth may follow, each with the range where it can be told apart.

Depth is x = l/(L − 1) = 0…1 of the layers l = 0…L − 1, which arrays here count from 1. Each law is
linear in some parameters and non-linear in at most two others, its `shape`:
value = basis(shape) @ linear.

A shape is bounded to what points one layer apart can determine. A step between two neighbours
and a straight line are limits of the exponential, the power and the logistic law: both are laws
of their own, so the bounds leave them out of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log

import numpy as np

from ...arrays import Float64

Layers = Float64[np.ndarray, " depth"]
Shape = tuple[float, ...]
Basis = Callable[[Layers, int, Shape], Float64[np.ndarray, "depth linear"]]

STEEPEST = log(5.0)
"""The largest change of ln|law − a| from a layer to the next: beyond it, one layer is the law."""
FLATTEST_RATE = 0.5
"""Below it an exponential is within 1/64 of its range of a straight line."""


@dataclass(frozen=True, slots=True)
class Box:
    """A region that shapes are searched for in: a grid of starts, whose ends are its bounds.

    A `discrete` shape is a point of the grid: between two of them the law is the same.
    """

    grid: tuple[tuple[float, ...], ...]
    discrete: bool = False

    @property
    def bounds(self) -> tuple[Shape, Shape]:
        return tuple(map(min, self.grid)), tuple(map(max, self.grid))

    @property
    def shapes(self) -> list[Shape]:
        return list(product(*self.grid))


@dataclass(frozen=True, slots=True)
class Law:
    """A form that rank against depth may take.

    Attributes:
        parameters: Names of the linear parameters, then of those of the shape.
        basis: From layers (1…L), L and the shape to the columns that are weighted.
        boxes: From L to the regions of shapes; of a law without a shape, none.
        vertices: The law is a + c·(x − v)², for which a test by permutations tries these v.
    """

    name: str
    parameters: tuple[str, ...]
    formula: str
    basis: Basis
    boxes: Callable[[int], tuple[Box, ...]] = lambda n_layers: ()
    vertices: tuple[float, ...] = ()

    @property
    def fewest_points(self) -> int:
        """Points that the law is fitted to at least: two for each parameter."""
        return 2 * len(self.parameters)

    def values(self, parameters: tuple[float, ...], layers: Layers, n_layers: int) -> Layers:
        """The law at `layers`, which need not be whole numbers."""
        boxes = self.boxes(n_layers)
        n_linear = len(parameters) - (len(boxes[0].grid) if boxes else 0)
        linear, shape = parameters[:n_linear], parameters[n_linear:]
        curve: Layers = self.basis(layers, n_layers, shape) @ np.array(linear)
        return curve

    def columns(self, layers: Layers, n_layers: int) -> Float64[np.ndarray, "shapes depth"]:
        """What the law adds to a constant, at every point of its grid of shapes."""
        if self.vertices:
            x = _x(layers, n_layers)
            return np.stack([(x - vertex) ** 2 for vertex in self.vertices])
        shapes = [shape for box in self.boxes(n_layers) for shape in box.shapes] or [()]
        return np.stack([self.basis(layers, n_layers, shape)[:, -1] for shape in shapes])


def _x(layers: Layers, n_layers: int) -> Layers:
    relative: Layers = (layers - 1.0) / max(1, n_layers - 1)
    return relative


def _polynomial(degree: int) -> Basis:
    return lambda layers, n_layers, _: np.column_stack(
        [_x(layers, n_layers) ** power for power in range(degree + 1)]
    )


def _quarter_ellipse(
    layers: Layers, n_layers: int, _: Shape
) -> Float64[np.ndarray, "depth linear"]:
    height = np.sqrt(np.clip(1.0 - (layers / n_layers) ** 2, 0.0, None))
    return np.column_stack((1.0 - height, height))


def _exponential(
    layers: Layers, n_layers: int, shape: Shape
) -> Float64[np.ndarray, "depth linear"]:
    return np.column_stack((np.ones_like(layers), np.exp(-shape[0] * _x(layers, n_layers))))


def _power(layers: Layers, _: int, shape: Shape) -> Float64[np.ndarray, "depth linear"]:
    return np.column_stack((np.ones_like(layers), layers ** shape[0]))


def _step(layers: Layers, _: int, shape: Shape) -> Float64[np.ndarray, "depth linear"]:
    return np.column_stack((np.ones_like(layers), np.where(layers > shape[0], 1.0, 0.0)))


def _logistic(layers: Layers, n_layers: int, shape: Shape) -> Float64[np.ndarray, "depth linear"]:
    from scipy.special import expit

    centre, width = shape
    drop = expit((centre - _x(layers, n_layers)) / width)
    return np.column_stack((np.ones_like(layers), drop))


def _signed(least: float, most_falling: float, most_rising: float) -> tuple[Box, ...]:
    """Rates on both sides of 0, where the parameters are not defined."""
    rising = tuple(np.geomspace(least, most_rising, 16).tolist())
    falling = tuple((-np.geomspace(least, most_falling, 16)).tolist())
    return Box((rising,)), Box((falling,))


def _rates(n_layers: int) -> tuple[Box, ...]:
    most = STEEPEST * max(1, n_layers - 1)
    return _signed(FLATTEST_RATE, most, most)


def _exponents(n_layers: int) -> tuple[Box, ...]:
    """l^c changes fastest between layers 1 and 2 if c < 0, between L − 1 and L if c > 0."""
    most_rising = STEEPEST / log(n_layers / (n_layers - 1)) if n_layers > 1 else 1.0
    return _signed(0.1, STEEPEST / log(2.0), most_rising)


def _steps(n_layers: int) -> tuple[Box, ...]:
    """Both levels have two layers: one layer alone is an outlier."""
    first = tuple(np.arange(2.0, n_layers - 1.0).tolist())
    return (Box((first,), discrete=True),) if first else ()


def _drops(n_layers: int) -> tuple[Box, ...]:
    """Both plateaus have a layer, and the drop is neither one step nor the whole depth."""
    step = 1.0 / max(4, n_layers - 1)
    centres = tuple(np.linspace(step, 1.0 - step, min(12, n_layers)).tolist())
    widths = tuple(np.geomspace(step / 2.0, 0.25, 5).tolist())
    return (Box((centres, widths)),)


LAWS: tuple[Law, ...] = (
    Law("constant", ("a",), "a", _polynomial(0)),
    Law("linear", ("a", "b"), "a + b·x", _polynomial(1)),
    Law(
        "quarter ellipse",
        ("r_min", "r_max"),
        "r_min + (r_max − r_min)·√(1 − ((l + 1)/L)²)",
        _quarter_ellipse,
    ),
    Law(
        "quadratic",
        ("a", "b", "c"),
        "a + b·x + c·x²",
        _polynomial(2),
        vertices=(-2.0, -0.5, *np.linspace(0.0, 1.0, 17).tolist(), 1.5, 3.0),
    ),
    Law("exponential", ("a", "b", "c"), "a + b·exp(−c·x)", _exponential, _rates),
    Law("power", ("a", "b", "c"), "a + b·(l + 1)^c", _power, _exponents),
    Law("step", ("a", "b", "c"), "a, and a + b from layer c on", _step, _steps),
    Law("logistic drop", ("a", "b", "c", "d"), "a + b/(1 + exp((x − c)/d))", _logistic, _drops),
)
"""From the simplest to the one with most parameters."""
LAW_NAMED = {law.name: law for law in LAWS}
CONSTANT = LAWS[0]


ON_BOUND = 1e-3
"""A shape so close to a bound of its box, relative to it, is at the bound."""
ROUNDS, SETTLED = 8, 1e-4
"""Of weights and shape in turn; they settle in two or three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
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
    """A law with the parameters that fit best, linear ones first, the shape last.

    Attributes:
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
        return len(self.residuals) - len(self.parameters)

    @property
    def on_bound(self) -> bool:
        """Whether the points push the shape out of the range where it is determined."""
        if self.box is None or self.box.discrete:
            return False
        shape = np.array(self.shape)
        bounds = map(np.array, self.box.bounds)
        return any(bool((np.abs(shape - b) <= ON_BOUND * np.abs(b)).any()) for b in bounds)


def fit_law(law: Law, curve: Curve, near: LawFit | None = None) -> LawFit:
    """The best fit of a law; of its shape, near that of another fit if one is given."""
    boxes: Sequence[Box | None] = (near.box,) if near else law.boxes(curve.n_layers) or (None,)
    fits = [_fit_in(law, curve, box, near) for box in boxes]
    return min(fits, key=lambda fit: (fit.excess, fit.chi_squared))


def f_test(simple: LawFit, fit: LawFit, curve: Curve) -> float:
    """P-value of what a law explains beyond one with fewer parameters, both weighted by the
    variances under the larger; its mean square counts as 1 at least, as the known errors alone do.
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
    inside = np.clip(start, *box.bounds)
    found = least_squares(residuals, inside, bounds=box.bounds, x_scale="jac")
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


SINGULAR = 1e10
"""Condition number of the Jacobian above which no parameter is determined."""
STEP = 1e-5
"""Of a shape, which is never 0, relative to it: where the law is differentiated."""


def standard_errors(fit: LawFit, curve: Curve) -> list[float | None] | None:
    """Of every parameter, None of a discrete shape; None where the points do not determine them.

    √diag (JᵀWJ)⁻¹ with W = 1/(known variance + τ²), which understates where a law is curved in its
    parameters.
    """
    if fit.on_bound:
        return None
    basis = fit.law.basis(curve.layers, curve.n_layers, fit.shape)
    columns = list(basis.T)
    shape = () if fit.box is not None and fit.box.discrete else fit.shape
    for i, value in enumerate(shape):
        step = STEP * abs(value)
        ahead, behind = (
            fit.law.basis(
                curve.layers, curve.n_layers, (*fit.shape[:i], value + change, *fit.shape[i + 1 :])
            )
            for change in (step, -step)
        )
        columns.append((ahead - behind) @ fit.parameters[: basis.shape[1]] / (2.0 * step))
    jacobian = np.column_stack(columns) / np.sqrt(curve.variances + fit.excess)[:, None]
    size = np.linalg.norm(jacobian, axis=0)
    if not size.all() or np.linalg.cond(jacobian / size) > SINGULAR:
        return None
    errors = (np.linalg.norm(np.linalg.pinv(jacobian / size), axis=1) / size).tolist()
    return [*errors, *[None] * (len(fit.parameters) - len(errors))]
