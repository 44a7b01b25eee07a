"""The forms that rank against depth may follow, each with the range where it can be told apart.

Depth is x = l/(L − 1) = 0…1 of the layers l = 0…L − 1, which arrays here count from 1. Each law is
linear in some parameters and non-linear in at most two others, its `shape`:
value = basis(shape) @ linear.

A shape is bounded to what points one layer apart can determine. A step between two neighbours
and a straight line are limits of the exponential, the power and the logistic law: both are laws
of their own, so the bounds leave them out of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    """A region that shapes are searched for in, and its grid of starts: a list for each.

    A `discrete` shape is a point of the grid: between two of them the law is the same.
    """

    lower: Shape
    upper: Shape
    grid: tuple[tuple[float, ...], ...]
    discrete: bool = False

    @property
    def shapes(self) -> list[Shape]:
        """Every point of the grid."""
        return list(product(*self.grid))


@dataclass(frozen=True, slots=True)
class Law:
    """A form that rank against depth may take.

    Attributes:
        parameters: Names of the linear parameters, then of those of the shape.
        formula: For people, in those names.
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
        n_linear = self.basis(layers[:1], n_layers, self._any_shape(n_layers)).shape[1]
        linear, shape = parameters[:n_linear], parameters[n_linear:]
        curve: Layers = self.basis(layers, n_layers, shape) @ np.array(linear)
        return curve

    def _any_shape(self, n_layers: int) -> Shape:
        boxes = self.boxes(n_layers)
        return boxes[0].lower if boxes else ()

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
    return (
        Box((least,), (most_rising,), (rising,)),
        Box((-most_falling,), (-least,), (falling,)),
    )


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
    return (Box(first[:1], first[-1:], (first,), discrete=True),) if first else ()


def _drops(n_layers: int) -> tuple[Box, ...]:
    """Both plateaus have a layer, and the drop is neither one step nor the whole depth."""
    step = 1.0 / max(4, n_layers - 1)
    centres = tuple(np.linspace(step, 1.0 - step, min(12, n_layers)).tolist())
    widths = tuple(np.geomspace(step / 2.0, 0.25, 5).tolist())
    return (Box((step, step / 2.0), (1.0 - step, 0.25), (centres, widths)),)


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
