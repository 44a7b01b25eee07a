"""The law that a curve of rank by depth follows, or what is known instead.

Five questions, in this order. Does rank depend on depth at all (`depth_test`)? Which law: a
larger one takes the place of a smaller one by an F-test. Does the law describe the curve (R²,
and the error at layers left out)? Does it hold without any single layer? Do random walks follow
a law as well?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, repeat

import numpy as np

from ...arrays import Float64, Int64
from .depth_test import depth_p_value, walk_p_value
from .law_errors import standard_errors as parameter_errors
from .law_fit import Curve, LawFit, deviance, f_test, fit_law
from .laws import LAW_NAMED, LAWS
from .rank_report import SIGNIFICANCE, FittedLaw, LawChoice, Miss, Parameter, Segments

FEWEST_POINTS = 5
"""Of 4 points, 2 of 24 permutations are as straight as a straight line: p = 0.08."""
DRIFT = 0.1
"""Share of random walks that may be given a law."""
EVEN = 0.1
"""Of their mean: ranks that scatter by no more, in no order, are constant. Of a step's height: so
even are its levels."""
LEAST_R_SQUARED = 0.8
CARRIED = 0.2
"""A law whose F-test has a larger p-value without some layer is carried by that layer alone."""
LEAST_VALUE = -1.0
"""Of a law at a studied layer: ranks are known to one, and there are no fewer than 0."""
MODELS_FOR_ERRORS = 3
"""Means over fewer models have no standard error that is worth a weight."""
MISSED_BY = 2.0
"""Standard errors beyond which a law misses a layer."""
ONE_RANK = 1.0 + 1e-9
EXACT = 1e-8
"""Residuals smaller than this share of the largest rank count as 0."""


def fit_laws(
    layers: Int64[np.ndarray, " depth"],
    ranks: Float64[np.ndarray, " depth"],
    n_layers: int,
    *,
    standard_errors: Float64[np.ndarray, " depth"] | None = None,
    counts: Int64[np.ndarray, " depth"] | None = None,
) -> LawChoice:
    """The law of the curve, or another verdict, and why.

    Args:
        layers: 1…n_layers, each at most once.
        standard_errors: Of the ranks, where they are means; used where every rank is a mean
            over at least three models. None counts as smaller than √(1/(12·count)), as ranks
            are whole numbers.
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
    counts = np.ones(len(layers), np.int64) if counts is None else counts
    rounding = 1.0 / (12.0 * counts)
    errors = standard_errors if counts.min() >= MODELS_FOR_ERRORS else None
    variances = rounding if errors is None else np.maximum(errors**2, rounding)
    curve = Curve(
        layers=layers[order].astype(np.float64),
        ranks=ranks[order],
        variances=variances[order],
        n_layers=n_layers,
    )
    return _choose(curve, None if errors is None else counts[order])


def _choose(curve: Curve, counts: Int64[np.ndarray, " depth"] | None) -> LawChoice:
    """The choice; `counts` are given where the variances are those of means over models."""
    fits = [fit_law(law, curve) for law in LAWS if law.fewest_points <= len(curve.ranks)]
    constant, laws = fits[0], fits[1:]
    p_value, critical = depth_p_value(curve, SIGNIFICANCE)
    chosen = (
        _largest_that_pays(constant, laws, curve)
        if p_value <= SIGNIFICANCE
        else _two_levels(constant, laws, curve)
    )
    walk_p = (
        None
        if chosen is None
        else walk_p_value(
            curve, laws, chosen.excess, critical=critical, least_r_squared=LEAST_R_SQUARED
        )
    )
    best = chosen or min(laws, key=lambda fit: f_test(constant, fit, curve))
    left_out = _without_each(best, constant, curve)
    reason = _why_none(curve, counts, p_value, chosen, left_out, walk_p)
    is_constant = bool(reason) and (
        _within_errors(constant, curve, counts)
        or (p_value > SIGNIFICANCE and constant.excess <= (EVEN * constant.parameters[0]) ** 2)
    )
    candidates = sorted((_fitted(fit, curve) for fit in fits), key=lambda f: f.aicc)
    shown = constant if is_constant else best
    return LawChoice(
        points=len(curve.ranks),
        weighted=counts is not None,
        pattern=is_constant or not reason,
        reason=reason,
        best=next(c for c in candidates if c.law == shown.law.name),
        p_value=p_value,
        walk_p_value=walk_p,
        scatter=float(np.sqrt(shown.excess)),
        fit_p_value=None if counts is None else _fit_p_value(shown, curve, counts),
        misses=() if counts is None else _misses(shown, curve),
        loo_rmse=left_out.constant_error if is_constant else left_out.error,
        constant_loo_rmse=left_out.constant_error,
        candidates=tuple(candidates),
        left_out=tuple(law.name for law in LAWS if law.fewest_points > len(curve.ranks)),
        segments=_segments(curve),
    )


def _largest_that_pays(constant: LawFit, laws: Sequence[LawFit], curve: Curve) -> LawFit | None:
    """From few parameters to many: the best law of each number, if an F-test prefers it.

    A law whose shape is at a bound is a straight line or a single step; one that is far below 0
    at a layer counts no directions. Neither is chosen.
    """
    current = constant
    for _, same_size in groupby(laws, key=lambda fit: len(fit.parameters)):
        possible = [
            fit
            for fit in same_size
            if not fit.on_bound and (curve.ranks - fit.residuals >= LEAST_VALUE).all()
        ]
        if possible:
            best = min(possible, key=lambda fit: (fit.excess, fit.chi_squared))
            if f_test(current, best, curve) <= SIGNIFICANCE:
                current = best
    return None if current is constant else current


def _two_levels(constant: LawFit, laws: Sequence[LawFit], curve: Curve) -> LawFit | None:
    """The step, if both its levels are even; permutations cannot tell one among few layers.

    Of six layers, three on each level, 2 of the 20 orders are a step: p = 0.1.
    """
    for fit in laws:
        if fit.law is LAW_NAMED["step"]:
            even = fit.excess <= (EVEN * fit.parameters[1]) ** 2
            return fit if even and f_test(constant, fit, curve) <= SIGNIFICANCE else None
    return None


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """A law and the constant, each fitted again without every single layer.

    Attributes:
        error: RMSE of the law at the layers left out, weighted as the law's residuals are.
        p_value: The largest of the F-tests between the two.
        layer: The layer (from 0) without which it is the largest.
    """

    error: float
    constant_error: float
    p_value: float
    layer: int


def _without_each(fit: LawFit, constant: LawFit, curve: Curve) -> _LeftOut:
    weights = 1.0 / (curve.variances + fit.excess)
    errors: list[float] = []
    constant_errors: list[float] = []
    p_values: list[float] = []
    for point in range(len(curve.ranks)):
        others = curve.without(point)
        again, mean = fit_law(fit.law, others, fit), fit_law(constant.law, others)
        at = curve.layers[point : point + 1]
        for law, off in ((again, errors), (mean, constant_errors)):
            predicted = law.law.values(law.parameters, at, curve.n_layers)
            off.append(float(curve.ranks[point] - predicted[0]))
        p_values.append(f_test(mean, again, others))
    weakest = int(np.argmax(p_values))
    return _LeftOut(
        error=float(np.sqrt(np.average(np.square(errors), weights=weights))),
        constant_error=float(np.sqrt(np.average(np.square(constant_errors), weights=weights))),
        p_value=p_values[weakest],
        layer=int(curve.layers[weakest]) - 1,
    )


def _why_none(
    curve: Curve,
    counts: Int64[np.ndarray, " depth"] | None,
    p_value: float,
    chosen: LawFit | None,
    left_out: _LeftOut,
    walk_p: float | None,
) -> str:
    """Why no law holds beyond the constant; empty where one does."""
    if counts is None and float(np.ptp(curve.ranks)) <= ONE_RANK:
        return "the ranks differ by one at most, which rounding to whole numbers can do"
    if chosen is None:
        return (
            f"{p_value:.0%} of the layers' permutations follow some law as well (p = "
            f"{p_value:.2g}), so no dependence on depth is shown"
            if p_value > SIGNIFICANCE
            else "rank depends on depth, but no law is worth its parameters (F-test)"
        )
    r_squared = _r_squared(chosen, curve)
    if r_squared < LEAST_R_SQUARED:
        return (
            f"the best law ({chosen.law.name}) explains {r_squared:.0%} of the spread, "
            f"less than {LEAST_R_SQUARED:.0%}"
        )
    if left_out.error >= left_out.constant_error:
        return f"the best law ({chosen.law.name}) predicts a left-out layer no better than the mean"
    if left_out.p_value > CARRIED:
        return (
            f"layer {left_out.layer} alone carries the best law ({chosen.law.name}): without it, "
            f"p = {left_out.p_value:.2g}"
        )
    if walk_p is not None and walk_p > DRIFT:
        return (
            f"{walk_p:.0%} of random walks follow some law as well, so the ranks may drift from "
            f"layer to layer without one (best law: {chosen.law.name})"
        )
    return ""


def _within_errors(
    constant: LawFit, curve: Curve, counts: Int64[np.ndarray, " depth"] | None
) -> bool:
    """Whether the known errors explain how the ranks scatter about their mean."""
    if counts is None and float(np.ptp(curve.ranks)) <= ONE_RANK:
        return True
    return _fit_p_value(constant, curve, counts) > SIGNIFICANCE


def _fit_p_value(fit: LawFit, curve: Curve, counts: Int64[np.ndarray, " depth"] | None) -> float:
    """P-value of the residuals under the known errors alone.

    A standard error from m models is itself uncertain: residual / s.e. is Student's t with
    m − 1 degrees, and is brought to the normal score of the same probability.
    """
    from scipy.stats import chi2, norm, t

    scores = np.abs(fit.residuals) / np.sqrt(curve.variances)
    if counts is not None:
        scores = norm.isf(t.sf(scores, counts - 1))
    return float(chi2.sf(float(np.sum(scores**2)), fit.degrees))


def _misses(fit: LawFit, curve: Curve) -> tuple[Miss, ...]:
    scores = fit.residuals / np.sqrt(curve.variances)
    return tuple(
        Miss(layer=int(layer) - 1, standard_errors=float(score))
        for layer, score in zip(curve.layers, scores, strict=True)
        if abs(score) > MISSED_BY
    )


def _fitted(fit: LawFit, curve: Curve) -> FittedLaw:
    n, k = len(curve.ranks), len(fit.parameters)
    errors = parameter_errors(fit, curve)
    return FittedLaw(
        law=fit.law.name,
        formula=fit.law.formula,
        parameters=dict(
            zip(
                fit.law.parameters,
                map(Parameter, fit.parameters, errors or repeat(None)),
                strict=True,
            )
        ),
        r_squared=_r_squared(fit, curve),
        rss=float(np.sum(_weights(fit, curve) * fit.residuals**2)),
        aicc=float(deviance(fit, curve) + 2 * (k + 1) + 2 * (k + 1) * (k + 2) / (n - k - 2)),
    )


def _weights(fit: LawFit, curve: Curve) -> Float64[np.ndarray, " depth"]:
    weights = 1.0 / (curve.variances + fit.excess)
    normalised: Float64[np.ndarray, " depth"] = weights / weights.mean()
    return normalised


def _r_squared(fit: LawFit, curve: Curve) -> float:
    """Share of the spread about the mean that the law explains, both weighted alike."""
    weights = _weights(fit, curve)
    rss = float(np.sum(weights * fit.residuals**2))
    mean = float(np.average(curve.ranks, weights=weights))
    spread = float(np.sum(weights * (curve.ranks - mean) ** 2))
    if rss <= len(weights) * (EXACT * float(np.abs(curve.ranks).max())) ** 2:
        return 1.0
    return max(0.0, 1.0 - rss / spread)


def _segments(curve: Curve) -> Segments | None:
    if curve.n_layers < 9:
        return None
    first, last = curve.layers <= 3, curve.layers > curve.n_layers - 3
    groups = (curve.ranks[chosen] for chosen in (first, ~first & ~last, last))
    return Segments(*(float(ranks.mean()) if len(ranks) else None for ranks in groups))
