"""The law that a curve of rank by depth follows, or what is known instead.

Five questions, in this order. Does rank depend on depth at all (two tests)? Which law: a
larger one takes the place of a smaller one by an F-test. Does the law describe the curve (R²,
and the error at layers left out)? Does it hold without any single layer? Do random walks follow
a law as well?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, permutations, repeat
from typing import Any

import numpy as np

from ...arrays import Float64, Int64
from ...results import JsonRecord, count
from .laws import (
    CONSTANT,
    LAW_NAMED,
    LAWS,
    Curve,
    LawFit,
    deviance,
    excess_variance,
    f_test,
    fit_law,
)
from .laws import standard_errors as parameter_errors

SIGNIFICANCE = 0.05
"""P-value above which no dependence on depth is shown."""


@dataclass(frozen=True, slots=True)
class Parameter(JsonRecord):
    """A fitted value; `standard_error` is None where the points do not determine it."""

    value: float
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw(JsonRecord):
    """A law with the parameters that fit best, linear ones first.

    Attributes:
        r_squared: Share of the (weighted) variance that is explained, 0…1.
        rss: Residual sum of squares, with weights of mean 1.
        aicc: Akaike's criterion for small samples, for comparison: no law is chosen by it.
    """

    law: str
    formula: str
    parameters: Mapping[str, Parameter]
    r_squared: float
    rss: float
    aicc: float

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(parameter.value for parameter in self.parameters.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LawChoice(JsonRecord):
    """The law of a curve, or why it has none.

    Attributes:
        points: Depths that were fitted.
        weighted: By the standard errors of means over models.
        pattern: Whether `best` describes the curve.
        reason: Why no law beyond the constant holds; empty where one does.
        best: The law; the best one tried where none holds; None with too few points.
        p_value: Share of the layers' permutations that follow some law as well.
        walk_p_value: Share of random walks that follow some law as well; None where no law was
            chosen before.
        scatter: Standard deviation of the ranks about `best` beyond their known errors.
        loo_rmse: Error of `best` where each point is predicted from the others, in ranks.
        candidates: Every fitted law, by AICc from the best to the worst.
    """

    points: int
    weighted: bool = False
    pattern: bool
    reason: str
    best: FittedLaw | None = None
    p_value: float | None = None
    walk_p_value: float | None = None
    scatter: float | None = None
    loo_rmse: float | None = None
    constant_loo_rmse: float | None = None
    candidates: tuple[FittedLaw, ...] = ()

    @property
    def verdict(self) -> str:
        if self.best is None or self.p_value is None:
            return "too few points"
        if not self.pattern:
            return "depends on depth, no law" if self.p_value <= SIGNIFICANCE else "no pattern"
        if self.best.law == "step":
            return f"step at layer {self.best.parameters['c'].value:.0f}"
        return self.best.law

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict} | JsonRecord.to_json(self)


EXACT_UP_TO = 6
"""Points of which every permutation is tried: 720."""
PERMUTATIONS = 999
WALKS = 999
FLAT = 1e-6
"""A law that changes by less than this share of itself over the points is a constant there."""
EPS = float(np.finfo(np.float64).eps)
SAME = 1e-7
"""Statistics closer than this are equal: ties between permutations must not depend on rounding."""


def depth_p_value(curve: Curve, significance: float) -> tuple[float, float]:
    """Share of the layers' permutations that follow some law as well as the curve does, and the
    statistic that a share as small as the significance has."""
    n = len(curve.ranks)
    orders = _orders(n)
    variances = curve.variances + excess_variance(CONSTANT, curve, ())
    weights = 1.0 / variances
    centred = curve.ranks - np.average(curve.ranks, weights=weights)
    statistics = _log_p_values(
        _explained(curve, weights[orders].T, (weights * centred)[orders].T),
        n,
        float(np.sum(weights * centred**2)),
        float(np.sum(weights * curve.variances)),
    )
    as_good = int(np.sum(statistics[1:] <= statistics[0] + SAME))
    critical = float(np.quantile(statistics, significance))
    return (as_good + 1) / len(orders), critical


def walk_p_value(
    curve: Curve, laws: Sequence[LawFit], excess: float, *, critical: float, least_r_squared: float
) -> float:
    """Share of random walks over these layers that follow some law as well as the curve does.

    The walks have the curve's steps and its known errors. The statistic is the BIC of the best law
    less that of the walk. Only walks that pass the test by permutations, and with the least R²,
    follow a law at all. `excess` is the variance beyond the known one under the chosen law.
    """
    n, known = len(curve.ranks), curve.variances
    weights = 1.0 / (known + excess)
    gaps, of_pairs = np.diff(curve.layers), known[1:] + known[:-1]
    step = max(0.0, float(np.mean((np.diff(curve.ranks) ** 2 - of_pairs) / gaps)))
    rng = np.random.default_rng(n)
    steps = rng.normal(size=(WALKS, n - 1)) * np.sqrt(step * gaps)
    walks = np.cumsum(np.insert(steps, 0, 0.0, axis=1), axis=1)
    walks += rng.normal(size=walks.shape) * np.sqrt(known)

    def difference(
        left: Float64[np.ndarray, " paths"], paths: Float64[np.ndarray, "paths depth"], size: int
    ) -> Float64[np.ndarray, " paths"]:
        stepped = np.diff(paths, axis=1) ** 2 @ (1.0 / (of_pairs + step * gaps))
        of_law = np.maximum(left, EPS * stepped)
        bic: Float64[np.ndarray, " paths"] = n * np.log(of_law / stepped) + size * np.log(n)
        return bic

    own = curve.ranks[None]
    wanted = min(
        float(difference(weights @ law.residuals[:, None] ** 2, own, len(law.parameters))[0])
        for law in laws
    )
    centred = walks.T - np.average(walks.T, axis=0, weights=weights)  # (depth, paths)
    total = weights @ centred**2
    explained = list(_explained(curve, weights[:, None], weights[:, None] * centred))
    best = np.min([difference(total - gain, walks, size) for size, gain in explained], axis=0)
    depends = _log_p_values(explained, n, total) <= critical + SAME
    follows = depends & (explained[-1][1] >= least_r_squared * total)
    return float(np.sum(follows & (best <= wanted + SAME)) + 1) / (WALKS + 1)


def _log_p_values(
    explained: Iterable[tuple[int, Float64[np.ndarray, " orders"]]],
    n: int,
    total: float | Float64[np.ndarray, " orders"],
    known: float = 0.0,
) -> Float64[np.ndarray, " orders"]:
    """The smallest ln p of an F-test against the constant, over laws by number of parameters.

    These explain a part of `total`, Σ weight · (rank − weighted mean)²; known errors make another.
    """
    from scipy.special import fdtrc

    best = np.array(0.0)
    for n_parameters, gain in explained:
        gain = np.minimum(gain, total)
        least = np.maximum(known / n, EPS * total)
        left = np.maximum((total - gain) / (n - n_parameters), least)
        p_values = fdtrc(n_parameters - 1, n - n_parameters, gain / (n_parameters - 1) / left)
        best = np.minimum(best, np.log(np.maximum(p_values, np.finfo(np.float64).tiny)))
    return best


def _explained(
    curve: Curve,
    weights: Float64[np.ndarray, "depth weightings"],
    moments: Float64[np.ndarray, "depth orders"],
) -> Iterator[tuple[int, Float64[np.ndarray, " orders"]]]:
    """What the best law of up to so many parameters takes off Σ weight · (rank − mean)²; `moments`
    are weight · (rank − weighted mean)."""
    gain = np.zeros(moments.shape[1])
    laws = [law for law in LAWS[1:] if law.fewest_points <= len(curve.ranks)]
    for n_parameters, same_size in groupby(laws, key=lambda law: len(law.parameters)):
        for law in same_size:
            columns = _varied(law.columns(curve.layers, curve.n_layers))
            spread = columns**2 @ weights - (columns @ weights) ** 2 / weights.sum(axis=0)
            explained = (columns @ moments) ** 2 / spread
            gain = np.maximum(gain, explained.max(axis=0, initial=0.0))
        yield n_parameters, gain


def _varied(
    columns: Float64[np.ndarray, "shapes depth"],
) -> Float64[np.ndarray, "some_shapes depth"]:
    """The columns that change over these points, centred, of size 1."""
    largest = np.abs(columns).max(axis=1, keepdims=True)
    relative = columns / np.where(largest > 0, largest, 1.0)
    relative -= relative.mean(axis=1, keepdims=True)
    size = np.abs(relative).max(axis=1, keepdims=True)
    varied = size[:, 0] > FLAT
    chosen: Float64[np.ndarray, "some_shapes depth"] = relative[varied] / size[varied]
    return chosen


@cache
def _orders(n: int) -> Int64[np.ndarray, "orders depth"]:
    """Permutations of n layers, the identity first; all of them where they are few."""
    if n <= EXACT_UP_TO:
        return np.array(list(permutations(range(n))), dtype=np.int64)
    rng = np.random.default_rng(n)
    drawn = [rng.permutation(n) for _ in range(PERMUTATIONS)]
    return np.stack([np.arange(n), *drawn]).astype(np.int64)


Counts = Int64[np.ndarray, " depth"]

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
    if len(layers) < FEWEST_POINTS:
        return LawChoice(
            points=len(layers),
            pattern=False,
            reason=f"a rank at {count(len(layers), 'depth')}, and a law needs {FEWEST_POINTS}",
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


def _choose(curve: Curve, counts: Counts | None) -> LawChoice:
    fits = [fit_law(law, curve) for law in LAWS if law.fewest_points <= len(curve.ranks)]
    constant, laws = fits[0], fits[1:]
    p_value, critical = depth_p_value(curve, SIGNIFICANCE)
    choose = _largest_that_pays if p_value <= SIGNIFICANCE else _two_levels
    chosen, walk_p = choose(constant, laws, curve), None
    if chosen is not None:
        walk_p = walk_p_value(
            curve, laws, chosen.excess, critical=critical, least_r_squared=LEAST_R_SQUARED
        )
    best = chosen or min(laws, key=lambda fit: f_test(constant, fit, curve))
    left_out = _without_each(best, constant, curve)
    reason = _why_none(curve, counts, p_value, chosen, left_out, walk_p)
    is_constant = bool(reason) and (
        (counts is None and float(np.ptp(curve.ranks)) <= ONE_RANK)
        or _fit_p_value(constant, curve, counts) > SIGNIFICANCE  # known errors explain the scatter
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
        loo_rmse=left_out.constant_error if is_constant else left_out.error,
        constant_loo_rmse=left_out.constant_error,
        candidates=tuple(candidates),
    )


def _largest_that_pays(constant: LawFit, laws: Sequence[LawFit], curve: Curve) -> LawFit | None:
    """From few parameters to many: the best law of each number, if an F-test prefers it; none with
    a shape at a bound (a straight line or a single step), and none far below 0 at a layer."""
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
    step = next((fit for fit in laws if fit.law is LAW_NAMED["step"]), None)
    if step is None or step.excess > (EVEN * step.parameters[1]) ** 2:
        return None
    return step if f_test(constant, step, curve) <= SIGNIFICANCE else None


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """RMSE of a law and of the constant at each layer left out, weighted as the law's residuals
    are; the largest p-value of F-tests between the two, and the layer (from 0) without which."""

    error: float
    constant_error: float
    p_value: float
    layer: int


def _without_each(fit: LawFit, constant: LawFit, curve: Curve) -> _LeftOut:
    weights = 1.0 / (curve.variances + fit.excess)
    errors, p_values = np.empty((2, len(curve.ranks))), []
    for point, rank in enumerate(curve.ranks):
        others = curve.without(point)
        pair = fit_law(fit.law, others, fit), fit_law(constant.law, others)
        at = curve.layers[point : point + 1]
        predicted = [again.law.values(again.parameters, at, curve.n_layers)[0] for again in pair]
        errors[:, point] = rank - np.array(predicted)
        p_values.append(f_test(pair[1], pair[0], others))
    weakest = int(np.argmax(p_values))
    own, of_constant = (float(np.sqrt(np.average(off**2, weights=weights))) for off in errors)
    return _LeftOut(own, of_constant, p_values[weakest], int(curve.layers[weakest]) - 1)


def _why_none(
    curve: Curve,
    counts: Counts | None,
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


def _fit_p_value(fit: LawFit, curve: Curve, counts: Counts | None) -> float:
    """P-value of the residuals under the known errors alone.

    A standard error from m models is itself uncertain: residual / s.e. is Student's t with
    m − 1 degrees, and is brought to the normal score of the same probability.
    """
    from scipy.stats import chi2, norm, t

    scores = np.abs(fit.residuals) / np.sqrt(curve.variances)
    if counts is not None:
        scores = norm.isf(t.sf(scores, counts - 1))
    return float(chi2.sf(float(np.sum(scores**2)), fit.degrees))


def _fitted(fit: LawFit, curve: Curve) -> FittedLaw:
    n, k = len(curve.ranks), len(fit.parameters)
    found = map(Parameter, fit.parameters, parameter_errors(fit, curve) or repeat(None))
    return FittedLaw(
        law=fit.law.name,
        formula=fit.law.formula,
        parameters=dict(zip(fit.law.parameters, found, strict=True)),
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
