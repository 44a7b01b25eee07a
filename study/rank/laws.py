"""The forms that rank against depth may take.

Each is linear in some parameters and non-linear in at most two others, its `shape`:
value = basis(shape) @ linear. Depth is the layer l = 1…L, or x = (l − 1)/(L − 1) = 0…1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ...arrays import Float64

Basis = Callable[
    [Float64[np.ndarray, " depth"], int, tuple[float, ...]], Float64[np.ndarray, "depth linear"]
]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a search for shape parameters begins, and the box that it stays in."""

    shape: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One form.

    Attributes:
        parameters: Their names, linear ones first, then the shape's.
        formula: For reading, in those names.
        basis: From layers (1…L), L and the shape, to the columns that are weighted.
        starts: Of the search over shapes; none for a linear law.
    """

    name: str
    parameters: tuple[str, ...]
    formula: str
    basis: Basis
    starts: tuple[Start, ...] = ()

    @property
    def n_linear(self) -> int:
        return len(self.parameters) - (len(self.starts[0].shape) if self.starts else 0)

    def values(
        self,
        parameters: tuple[float, ...],
        layers: Float64[np.ndarray, " depth"],
        n_layers: int,
    ) -> Float64[np.ndarray, " depth"]:
        """The law at `layers`, which need not be whole numbers."""
        linear, shape = parameters[: self.n_linear], parameters[self.n_linear :]
        curve: Float64[np.ndarray, " depth"] = self.basis(layers, n_layers, shape) @ np.array(
            linear
        )
        return curve


def _x(layers: Float64[np.ndarray, " depth"], n_layers: int) -> Float64[np.ndarray, " depth"]:
    relative: Float64[np.ndarray, " depth"] = (layers - 1.0) / max(1, n_layers - 1)
    return relative


def _polynomial(degree: int) -> Basis:
    def basis(
        layers: Float64[np.ndarray, " depth"], n_layers: int, shape: tuple[float, ...]
    ) -> Float64[np.ndarray, "depth linear"]:
        x = _x(layers, n_layers)
        return np.stack([x**power for power in range(degree + 1)], axis=1)

    return basis


def _quarter_ellipse(
    layers: Float64[np.ndarray, " depth"], n_layers: int, shape: tuple[float, ...]
) -> Float64[np.ndarray, "depth linear"]:
    height = np.sqrt(np.clip(1.0 - (layers / n_layers) ** 2, 0.0, None))
    return np.stack([1.0 - height, height], axis=1)


def _exponential(
    layers: Float64[np.ndarray, " depth"], n_layers: int, shape: tuple[float, ...]
) -> Float64[np.ndarray, "depth linear"]:
    return np.stack([np.ones_like(layers), np.exp(-shape[0] * _x(layers, n_layers))], axis=1)


def _power(
    layers: Float64[np.ndarray, " depth"], n_layers: int, shape: tuple[float, ...]
) -> Float64[np.ndarray, "depth linear"]:
    return np.stack([np.ones_like(layers), layers ** shape[0]], axis=1)


def _logistic(
    layers: Float64[np.ndarray, " depth"], n_layers: int, shape: tuple[float, ...]
) -> Float64[np.ndarray, "depth linear"]:
    centre, width = shape
    falling = expit((centre - _x(layers, n_layers)) / width)
    return np.stack([np.ones_like(layers), falling], axis=1)


def _rates(magnitudes: tuple[float, ...], least: float, most: float) -> tuple[Start, ...]:
    """Starts on both sides of a rate of 0, where the parameters are not defined."""
    rising = [Start((m,), (least,), (most,)) for m in magnitudes]
    falling = [Start((-m,), (-most,), (-least,)) for m in magnitudes]
    return (*rising, *falling)


LAWS: tuple[Law, ...] = (
    Law(name="constant", parameters=("a",), formula="a", basis=_polynomial(0)),
    Law(name="linear", parameters=("a", "b"), formula="a + b·x", basis=_polynomial(1)),
    Law(
        name="quarter ellipse",
        parameters=("r_min", "r_max"),
        formula="r_min + (r_max − r_min)·√(1 − (l/L)²)",
        basis=_quarter_ellipse,
    ),
    Law(
        name="quadratic",
        parameters=("a", "b", "c"),
        formula="a + b·x + c·x²",
        basis=_polynomial(2),
    ),
    Law(
        name="exponential",
        parameters=("a", "b", "c"),
        formula="a + b·exp(−c·x)",
        basis=_exponential,
        starts=_rates((1.0, 4.0, 15.0), 0.01, 50.0),
    ),
    Law(
        name="power",
        parameters=("a", "b", "c"),
        formula="a + b·l^c",
        basis=_power,
        starts=_rates((0.5, 2.0, 8.0), 0.02, 20.0),
    ),
    # Unbounded, its tail is one more exponential.
    Law(
        name="logistic drop",
        parameters=("a", "b", "c", "d"),
        formula="a + b/(1 + exp((x − c)/d))",
        basis=_logistic,
        starts=tuple(
            Start((centre, width), (0.0, 0.02), (1.0, 1.0))
            for centre in (0.15, 0.5, 0.85)
            for width in (0.05, 0.2)
        ),
    ),
)
"""Simplest first."""

LAW_NAMED = {law.name: law for law in LAWS}
