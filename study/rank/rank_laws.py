"""The laws that rank against depth may follow, and the fit of the best of them.

Each law is linear in some parameters and non-linear in at most two others, its `shape`:
value = basis(shape) @ linear. Depth is the layer l = 1…L, or x = (l − 1)/(L − 1) = 0…1. Least
squares solve for the linear parameters exactly (variable projection, Golub & Pereyra 1973), so
that only the shape is searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from ...arrays import Float64, Int64
from .rank_report import FittedLaw, LawChoice, Parameter, Segments

Basis = Callable[
    [Float64[np.ndarray, " depth"], int, tuple[float, ...]], Float64[np.ndarray, "depth linear"]
]

FEWEST_POINTS = 4
LEAST_R_SQUARED = 0.8
SIMPLER_WITHIN = 2.0
"""ΔAICc below which the simpler law is preferred (Burnham & Anderson 2002, 2.6)."""

MODELS_FOR_WEIGHTS = 3
EXACT = 1e-8
"""Residuals smaller than this share of the largest rank count as 0."""

SINGULAR = 1e10


@dataclass(frozen=True, slots=True)
class Start:
    """Where a search for shape parameters begins, and the box that it stays in."""

    shape: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Law:
    """A form that rank against depth may take.

    Attributes:
        parameters: Names of the linear parameters, then of those of the shape.
        formula: For people, in those names.
        basis: From layers (1…L), L and the shape to the columns that are weighted.
        starts: Starts of the search over shapes; none for a linear law.
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
        self, parameters: tuple[float, ...], layers: Float64[np.ndarray, " depth"], n_layers: int
    ) -> Float64[np.ndarray, " depth"]:
        """The law at `layers`, which need not be whole numbers."""
        linear, shape = parameters[: self.n_linear], parameters[self.n_linear :]
        curve: Float64[np.ndarray, " depth"]
        curve = self.basis(layers, n_layers, shape) @ np.array(linear)
        return curve


def _x(layers: Float64[np.ndarray, " depth"], n_layers: int) -> Float64[np.ndarray, " depth"]:
    relative: Float64[np.ndarray, " depth"] = (layers - 1.0) / max(1, n_layers - 1)
    return relative


def _polynomial(degree: int) -> Basis:
    return lambda layers, n_layers, _: np.column_stack(
        [_x(layers, n_layers) ** power for power in range(degree + 1)]
    )


def _quarter_ellipse(
    layers: Float64[np.ndarray, " depth"], n_layers: int, _: tuple[float, ...]
) -> Float64[np.ndarray, "depth linear"]:
    height = np.sqrt(np.clip(1.0 - (layers / n_layers) ** 2, 0.0, None))
    return np.column_stack((1.0 - height, height))


def _logistic(
    layers: Float64[np.ndarray, " depth"], n_layers: int, shape: tuple[float, ...]
) -> Float64[np.ndarray, "depth linear"]:
    from scipy.special import expit

    centre, width = shape
    drop = expit((centre - _x(layers, n_layers)) / width)
    return np.column_stack((np.ones_like(layers), drop))


def _rates(magnitudes: tuple[float, ...], least: float, most: float) -> tuple[Start, ...]:
    """Starts on both sides of a rate of 0, where the parameters are not defined."""
    rising = [Start((m,), (least,), (most,)) for m in magnitudes]
    falling = [Start((-m,), (-most,), (-least,)) for m in magnitudes]
    return (*rising, *falling)


LAWS: tuple[Law, ...] = (
    Law("constant", ("a",), "a", _polynomial(0)),
    Law("linear", ("a", "b"), "a + b·x", _polynomial(1)),
    Law(
        "quarter ellipse",
        ("r_min", "r_max"),
        "r_min + (r_max − r_min)·√(1 − (l/L)²)",
        _quarter_ellipse,
    ),
    Law("quadratic", ("a", "b", "c"), "a + b·x + c·x²", _polynomial(2)),
    Law(
        "exponential",
        ("a", "b", "c"),
        "a + b·exp(−c·x)",
        lambda layers, n, shape: np.column_stack(
            (np.ones_like(layers), np.exp(-shape[0] * _x(layers, n)))
        ),
        starts=_rates((1.0, 4.0, 15.0), 0.01, 50.0),
    ),
    Law(
        "power",
        ("a", "b", "c"),
        "a + b·l^c",
        lambda layers, _, shape: np.column_stack((np.ones_like(layers), layers ** shape[0])),
        starts=_rates((0.5, 2.0, 8.0), 0.02, 20.0),
    ),
    # Without bounds its tail would be one more exponential.
    Law(
        "logistic drop",
        ("a", "b", "c", "d"),
        "a + b/(1 + exp((x − c)/d))",
        _logistic,
        starts=tuple(
            Start((centre, width), (0.0, 0.02), (1.0, 1.0))
            for centre in (0.15, 0.5, 0.85)
            for width in (0.05, 0.2)
        ),
    ),
)
"""From the simplest to the one with most parameters."""

LAW_NAMED = {law.name: law for law in LAWS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """Ranks by layer (1…L), with weights of mean 1."""

    layers: Float64[np.ndarray, " depth"]
    ranks: Float64[np.ndarray, " depth"]
    weights: Float64[np.ndarray, " depth"]
    n_layers: int

    def without(self, point: int) -> _Curve:
        return _Curve(
            layers=np.delete(self.layers, point),
            ranks=np.delete(self.ranks, point),
            weights=np.delete(self.weights, point),
            n_layers=self.n_layers,
        )

    def under(self, law: Law, parameters: tuple[float, ...]) -> Float64[np.ndarray, " depth"]:
        return law.values(parameters, self.layers, self.n_layers)

    def rss(self, curve: Float64[np.ndarray, " depth"]) -> float:
        return float(np.sum(self.weights * (self.ranks - curve) ** 2))


def fit_laws(
    layers: Int64[np.ndarray, " depth"],
    ranks: Float64[np.ndarray, " depth"],
    n_layers: int,
    *,
    standard_errors: Float64[np.ndarray, " depth"] | None = None,
    counts: Int64[np.ndarray, " depth"] | None = None,
) -> LawChoice:
    """The best law by AICc, how well it fits, and whether the curve has a pattern.

    AICc = n ln(RSS/n) + 2k' + 2k'(k'+1)/(n − k' − 1), k' = parameters + 1; laws with too many
    parameters for n points are left out. Sums of squares are weighted by 1/s.e.² where every
    rank is a mean over at least three models.

    Args:
        layers: 1…n_layers, each at most once.
        standard_errors: Of the ranks. Ranks are whole numbers, so that no standard error counts
            as smaller than √(1/(12·count)).
        counts: The number of models that each rank is the mean of.
    """
    if len(np.unique(layers)) != len(layers) or not np.isfinite(ranks).all():
        raise ValueError("layers must differ and ranks must be finite")
    if len(layers) and not (layers.min() >= 1 and layers.max() <= n_layers):
        raise ValueError(f"layers must lie in 1…{n_layers}, got {layers.tolist()}")
    if len(layers) < FEWEST_POINTS:
        return LawChoice(
            points=len(layers),
            pattern=False,
            reason=f"{len(layers)} depths carry a rank, and a law needs {FEWEST_POINTS}",
        )
    order = np.argsort(layers)
    weights = _weights(standard_errors, counts)
    curve = _Curve(
        layers=layers[order].astype(np.float64),
        ranks=ranks[order],
        weights=np.ones(len(layers)) if weights is None else weights[order],
        n_layers=n_layers,
    )
    room = len(layers) - 2  # n − k' − 1 > 0
    candidates = [_fit(law, curve) for law in LAWS if len(law.parameters) < room]
    candidates.sort(key=lambda fitted: fitted.aicc)
    return _judge(curve, candidates, weighted=weights is not None)


def _judge(curve: _Curve, candidates: Sequence[FittedLaw], *, weighted: bool) -> LawChoice:
    """The simplest law whose AICc is near the best, compared with the constant."""
    near = [c for c in candidates if c.aicc - candidates[0].aicc < SIMPLER_WITHIN]
    best = min(near, key=lambda fitted: len(fitted.parameters))
    constant = next(fitted for fitted in candidates if fitted.law == "constant")
    error, constant_error = _leave_one_out(curve, best), _leave_one_out(curve, constant)
    reason = ""
    if best is constant and best.r_squared < LEAST_R_SQUARED:
        reason = f"no law is worth its parameters with {len(curve.layers)} points (AICc)"
    elif best.r_squared < LEAST_R_SQUARED:
        reason = (
            f"the best law ({best.law}) explains {best.r_squared:.0%} of the spread, "
            f"less than {LEAST_R_SQUARED:.0%}"
        )
    elif best is not constant and error >= constant_error:
        reason = f"the best law ({best.law}) predicts a left-out layer no better than the mean"
    fitted_laws = {fitted.law for fitted in candidates}
    return LawChoice(
        points=len(curve.layers),
        weighted=weighted,
        pattern=not reason,
        reason=reason,
        best=best,
        loo_rmse=error,
        constant_loo_rmse=constant_error,
        candidates=tuple(candidates),
        left_out=tuple(law.name for law in LAWS if law.name not in fitted_laws),
        segments=_segments(curve),
    )


def _fit(law: Law, curve: _Curve) -> FittedLaw:
    parameters, on_bound = _best_parameters(law, curve, law.starts)
    n, k = len(curve.ranks), len(law.parameters)
    exact = n * (EXACT * float(np.abs(curve.ranks).max())) ** 2 + np.finfo(np.float64).tiny
    rss = curve.rss(curve.under(law, parameters))
    mean = float(np.average(curve.ranks, weights=curve.weights))
    spread = curve.rss(np.full(n, mean))
    errors = None if on_bound else _standard_errors(law, curve, parameters, rss)
    fitted = map(Parameter, parameters, errors or repeat(None))
    return FittedLaw(
        law=law.name,
        formula=law.formula,
        parameters=dict(zip(law.parameters, fitted, strict=True)),
        r_squared=1.0 if rss <= exact else max(0.0, 1.0 - rss / spread),
        rss=rss,
        aicc=float(
            n * np.log(max(rss, exact) / n) + 2 * (k + 1) + 2 * (k + 1) * (k + 2) / (n - k - 2)
        ),
    )


def _best_parameters(
    law: Law, curve: _Curve, starts: Sequence[Start]
) -> tuple[tuple[float, ...], bool]:
    """All parameters of the best fit over the starts, and whether a shape is at its bound."""
    if not starts:
        return _project(law, curve, ())[0], False
    from scipy.optimize import least_squares

    def residuals(shape: Float64[np.ndarray, " shape"]) -> Float64[np.ndarray, " depth"]:
        return _project(law, curve, tuple(shape.tolist()))[1]

    fits = [(least_squares(residuals, s.shape, bounds=(s.lower, s.upper)), s) for s in starts]
    best, start = min(fits, key=lambda fit: fit[0].cost)
    bounds = (start.lower, start.upper)
    on_bound = any(bool(np.isclose(best.x, bound, rtol=1e-3).any()) for bound in bounds)
    at = tuple(best.x.tolist())
    return (*_project(law, curve, at)[0], *at), on_bound


def _project(
    law: Law, curve: _Curve, shape: tuple[float, ...]
) -> tuple[tuple[float, ...], Float64[np.ndarray, " depth"]]:
    """The linear parameters that fit best at this shape, and the weighted residuals."""
    root = np.sqrt(curve.weights)
    basis = law.basis(curve.layers, curve.n_layers, shape) * root[:, None]
    size = np.abs(basis).max(axis=0)
    size[size == 0] = 1.0
    basis /= size
    wanted = curve.ranks * root
    solution, *_ = np.linalg.lstsq(basis, wanted, rcond=None)
    return tuple((solution / size).tolist()), wanted - basis @ solution


def _standard_errors(
    law: Law, curve: _Curve, parameters: tuple[float, ...], rss: float
) -> list[float] | None:
    """√diag(s²(JᵀWJ)⁻¹), s² = RSS/(n − k); None where the Jacobian is singular."""
    columns = []
    for i, value in enumerate(parameters):
        step = 1e-5 * (abs(value) or 1.0)
        ahead, behind = (
            (*parameters[:i], value + change, *parameters[i + 1 :]) for change in (step, -step)
        )
        columns.append((curve.under(law, ahead) - curve.under(law, behind)) / (2.0 * step))
    jacobian = np.column_stack(columns) * np.sqrt(curve.weights)[:, None]
    size = np.linalg.norm(jacobian, axis=0)
    if not size.all() or np.linalg.cond(jacobian / size) > SINGULAR:
        return None
    inverse = np.linalg.pinv(jacobian / size)
    variance = rss / (len(curve.ranks) - len(parameters))
    errors: list[float] = (np.sqrt(variance) * np.linalg.norm(inverse, axis=1) / size).tolist()
    return errors


def _leave_one_out(curve: _Curve, fitted: FittedLaw) -> float:
    """Weighted RMSE at each point of the law refitted without it, from the full fit's shape."""
    law = LAW_NAMED[fitted.law]
    shape = fitted.values[law.n_linear :]
    starts = [
        Start(shape, box.lower, box.upper)
        for box in law.starts
        if (np.clip(shape, box.lower, box.upper) == shape).all()
    ]
    predicted = np.empty(len(curve.ranks))
    for point in range(len(curve.ranks)):
        parameters, _ = _best_parameters(law, curve.without(point), starts[:1])
        at = curve.layers[point : point + 1]
        predicted[point] = law.values(parameters, at, curve.n_layers)[0]
    return float(np.sqrt(curve.rss(predicted) / curve.weights.sum()))


def _weights(
    standard_errors: Float64[np.ndarray, " depth"] | None,
    counts: Int64[np.ndarray, " depth"] | None,
) -> Float64[np.ndarray, " depth"] | None:
    """1/s.e.² with mean 1; None where a rank is a mean over fewer than three models."""
    if standard_errors is None or counts is None or counts.min() < MODELS_FOR_WEIGHTS:
        return None
    weights = 1.0 / np.maximum(standard_errors**2, 1.0 / (12.0 * counts))
    normalised: Float64[np.ndarray, " depth"] = weights / weights.mean()
    return normalised


def _segments(curve: _Curve) -> Segments | None:
    if curve.n_layers < 9:
        return None
    first, last = curve.layers <= 3, curve.layers > curve.n_layers - 3
    groups = (curve.ranks[chosen] for chosen in (first, ~first & ~last, last))
    return Segments(*(float(ranks.mean()) if len(ranks) else None for ranks in groups))
