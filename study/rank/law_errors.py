"""Standard errors of a fitted law's parameters."""

from __future__ import annotations

from itertools import product

import numpy as np

from .law_fit import Curve, LawFit, project

SINGULAR = 1e10
"""Condition number of the Jacobian above which no parameter is determined."""
STEP = 1e-5
"""Of a shape, which is never 0, relative to it: where the law is differentiated."""
REACH = 4.0
"""Linear standard errors, on both sides, within which the likelihood is profiled."""
PROFILED = {1: 65, 2: 25}
"""Values of each shape parameter in a profile, by their number."""


def standard_errors(fit: LawFit, curve: Curve) -> list[float | None] | None:
    """Of every parameter, None of a discrete shape; None where the points do not determine them.

    The larger of two: √diag (JᵀWJ)⁻¹ with W = 1/(known variance + τ²); and the half-width of
    the profile-likelihood interval, where Σ W·residual² grows by 1 at most while the other
    parameters are fitted again (Bates & Watts 1988, 6.1). The first understates where a law is
    curved in its parameters.
    """
    if fit.on_bound:
        return None
    linear = _from_jacobian(fit, curve)
    if linear is None or fit.box is None or fit.box.discrete:
        return None if linear is None else [*linear, *[None] * len(fit.parameters[len(linear) :])]
    profile = _from_profile(fit, curve, linear[-len(fit.shape) :])
    if profile is None:
        return None
    return [max(pair) for pair in zip(linear, profile, strict=True)]


def _from_jacobian(fit: LawFit, curve: Curve) -> list[float] | None:
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
    errors: list[float] = (np.linalg.norm(np.linalg.pinv(jacobian / size), axis=1) / size).tolist()
    return errors


def _from_profile(fit: LawFit, curve: Curve, reach: list[float]) -> list[float] | None:
    """Half-widths of the region where Σ W·residual² is within 1 of the smallest."""
    assert fit.box is not None
    lower, upper = np.array(fit.box.lower), np.array(fit.box.upper)
    step = REACH * np.array(reach)
    axes = [
        np.linspace(max(low, at - by), min(high, at + by), PROFILED[len(fit.shape)])
        for at, by, low, high in zip(fit.shape, step, lower, upper, strict=True)
    ]
    root = 1.0 / np.sqrt(curve.variances + fit.excess)
    least, most = np.array(fit.parameters), np.array(fit.parameters)
    for point in product(*(axis.tolist() for axis in axes)):
        linear, weighted = project(fit.law, curve, point, fit.excess)
        room = 1.0 - (float(np.sum(weighted**2)) - fit.chi_squared)
        if room < 0.0:
            continue
        if (np.isclose(point, lower) | np.isclose(point, upper)).any():
            return None
        basis = fit.law.basis(curve.layers, curve.n_layers, point) * root[:, None]
        size = np.linalg.norm(basis, axis=0)
        own = np.linalg.norm(np.linalg.pinv(basis / size), axis=1) / size * np.sqrt(room)
        least = np.minimum(least, [*(np.array(linear) - own), *point])
        most = np.maximum(most, [*(np.array(linear) + own), *point])
    widths: list[float] = ((most - least) / 2.0).tolist()
    return widths
