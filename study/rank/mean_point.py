"""Ranks averaged over a slot's parts or a family's models, and the curves they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum, sqrt

import numpy as np

from .fit import fit_laws
from .report import RankCurve, RankPoint


def mean_point(points: Sequence[RankPoint]) -> RankPoint:
    """The mean of the values that are neither rounding nor zero, with its standard error.

    Where there is none, the mean of those that are rounding, and marked so; else zero.
    """
    if len(points) == 1:
        return points[0]
    fitted = [point for point in points if point.fitted]
    rounding = [point for point in points if not point.valid]
    if fitted:
        return _mean(fitted, len(points))
    if rounding:
        reason = f"in all {len(rounding)} that are not zero, as in the first: {rounding[0].reason}"
        return replace(_mean(rounding, len(points)), valid=False, reason=reason)
    return replace(points[0], count=len(points))


def rank_curve(
    stack: str, role: str, theta: float, n_layers: int, points: Sequence[RankPoint]
) -> RankCurve:
    """The points by depth, with the law that fits those that carry a rank."""
    by_depth = sorted(points, key=lambda point: point.layer)
    fitted = [point for point in by_depth if point.fitted]
    errors = [point.standard_error for point in fitted]
    known_errors = [error for error in errors if error is not None]
    return RankCurve(
        stack=stack,
        role=role,
        theta=theta,
        n_layers=n_layers,
        points=tuple(by_depth),
        fit=fit_laws(
            np.array([point.layer + 1 for point in fitted], dtype=np.int64),
            np.array([point.rank for point in fitted], dtype=np.float64),
            n_layers,
            standard_errors=(
                np.array(known_errors, dtype=np.float64)
                if len(known_errors) == len(fitted)
                else None
            ),
            counts=np.array([point.count for point in fitted], dtype=np.int64),
        ),
    )


def _mean(points: Sequence[RankPoint], out_of: int) -> RankPoint:
    n = len(points)
    mean = fsum(point.rank for point in points) / n
    variance = fsum((point.rank - mean) ** 2 for point in points) / max(1, n - 1)
    return RankPoint(
        layer=points[0].layer,
        rank=mean,
        normalised=fsum(point.normalised for point in points) / n,
        standard_error=sqrt(variance / n) if n > 1 else None,
        count=n,
        left_out=out_of - n,
    )
