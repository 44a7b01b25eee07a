"""Which law a curve of rank against depth follows, if any.

Least squares with the linear parameters solved for exactly (variable projection, Golub &
Pereyra 1973), so that only one or two shape parameters are searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from ...arrays import Float64, Int64
from .fitted import FittedLaw, LawChoice, Parameter, Segments
from .laws import LAW_NAMED, LAWS, Law, Start

FEWEST_POINTS = 4
LEAST_R_SQUARED = 0.8
SIMPLER_WITHIN = 2.0
"""ΔAICc below which the simpler law is preferred (Burnham & Anderson 2002, 2.6)."""
MODELS_FOR_WEIGHTS = 3
EXACT = 1e-8
"""Residuals smaller than this share of the largest rank are none."""
SINGULAR = 1e10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """What is fitted: ranks by layer (1…L), with weights of mean 1."""

    layers: Float64[np.ndarray, " depth"]
    ranks: Float64[np.ndarray, " depth"]
    weights: Float64[np.ndarray, " depth"]
    n_layers: int

    def without(self, point: int) -> _Curve:
        kept = np.arange(len(self.layers)) != point
        return _Curve(
            layers=self.layers[kept],
            ranks=self.ranks[kept],
            weights=self.weights[kept],
            n_layers=self.n_layers,
        )

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
    """The best law by AICc, how good it is, and whether it is a pattern at all.

    AICc = n ln(RSS/n) + 2k' + 2k'(k'+1)/(n − k' − 1), k' = parameters + 1; laws with too many
    parameters for n points are left out. Sums of squares are weighted by 1/s.e.² where every
    rank is a mean over at least three models.

    Args:
        layers: 1…n_layers, each at most once.
        standard_errors: Of the ranks. A whole number is not known better than its own step
            allows, so none counts as smaller than √(1/(12·count)).
        counts: How many models each rank is the mean of.
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
    """The simplest of the laws that no other clearly beats, held against the constant."""
    near = [c for c in candidates if c.aicc - candidates[0].aicc < SIMPLER_WITHIN]
    best = min(near, key=lambda fitted: len(fitted.parameters))
    constant = next(fitted for fitted in candidates if fitted.law == "constant")
    error, constant_error = _leave_one_out(curve, best), _leave_one_out(curve, constant)
    reason = ""
    if best.r_squared < LEAST_R_SQUARED:
        reason = (
            f"the best law ({best.law}) explains {best.r_squared:.0%} of the spread, "
            f"less than {LEAST_R_SQUARED:.0%}"
            if best is not constant
            else f"no law is worth its parameters with {len(curve.layers)} points (AICc)"
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
    rss = curve.rss(law.values(parameters, curve.layers, curve.n_layers))
    mean = float(np.average(curve.ranks, weights=curve.weights))
    spread = curve.rss(np.full(n, mean))
    errors = None if on_bound else _standard_errors(law, curve, parameters, rss)
    return FittedLaw(
        law=law.name,
        formula=law.formula,
        parameters=tuple(
            Parameter(name, value, None if errors is None else errors[i])
            for i, (name, value) in enumerate(zip(law.parameters, parameters, strict=True))
        ),
        r_squared=1.0 if rss <= exact else max(0.0, 1.0 - rss / spread),
        rss=rss,
        aicc=float(
            n * np.log(max(rss, exact) / n) + 2 * (k + 1) + 2 * (k + 1) * (k + 2) / (n - k - 2)
        ),
    )


def _best_parameters(
    law: Law, curve: _Curve, starts: Sequence[Start]
) -> tuple[tuple[float, ...], bool]:
    """All parameters of the best fit over the starts; whether a shape is at its bound."""
    if not starts:
        return _project(law, curve, ())[0], False

    def residuals(shape: Float64[np.ndarray, " shape"]) -> Float64[np.ndarray, " depth"]:
        return _project(law, curve, tuple(shape.tolist()))[1]

    found = [
        least_squares(residuals, start.shape, bounds=(start.lower, start.upper)) for start in starts
    ]
    best = int(np.argmin([result.cost for result in found]))
    shape = found[best].x
    bounds = (starts[best].lower, starts[best].upper)
    on_bound = any(bool(np.isclose(shape, bound, rtol=1e-3).any()) for bound in bounds)
    at = tuple(shape.tolist())
    return (*_project(law, curve, at)[0], *at), on_bound


def _project(
    law: Law, curve: _Curve, shape: tuple[float, ...]
) -> tuple[tuple[float, ...], Float64[np.ndarray, " depth"]]:
    """The linear parameters that fit best given the shape, and what they leave, weighted."""
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
            law.values(
                (*parameters[:i], value + sign * step, *parameters[i + 1 :]),
                curve.layers,
                curve.n_layers,
            )
            for sign in (1.0, -1.0)
        )
        columns.append((ahead - behind) / (2.0 * step))
    jacobian = np.stack(columns, axis=1) * np.sqrt(curve.weights)[:, None]
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
        if all(low <= s for low, s in zip(box.lower, shape, strict=True))
        and all(s <= high for s, high in zip(shape, box.upper, strict=True))
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
    """Mean ranks of the first three layers, the last three, and those between."""
    if curve.n_layers < 9:
        return None
    first, last = curve.layers <= 3, curve.layers > curve.n_layers - 3
    means = [
        float(curve.ranks[chosen].mean()) if chosen.any() else None
        for chosen in (first, ~first & ~last, last)
    ]
    return Segments(*means)
