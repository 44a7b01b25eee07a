"""How likely a model was trained from another: a logistic regression on the numbers of a pair."""

from __future__ import annotations

import numpy as np

from ..arrays import Float64
from .descent import Pairs

LEVEL = 0.5
"""Probability below which no parent is named: the model hangs at the base."""

INTERCEPT = -8.164
COEFFICIENTS = np.array(
    [
        0.766,
        -1.829,
        2.579,
        1.190,
        0.429,
        -2.366,
        0.845,
        0.388,
        -2.974,
        0.393,
        0.220,
        -2.001,
        4.160,
        5.408,
        -2.901,
    ]
)
SLOPE, SHIFT = 1.0, 0.0

LEAST_SHARED = 0.05
"""Share of equal slots from which two models share frozen parts."""


EXCESS_LIMIT = 1.3
"""Excess up to which more speaks for descent: beyond it, steps of one training run are likelier."""

LATER, EARLIER = 1.0, -4.0
"""Log-odds of a pair whose child is later than the candidate, or earlier: a model that is
published twice has a late time, so that no order excludes a pair."""

TOLERANCE_S = 3600.0
"""Difference of two times from which one is later."""

NEARER = 4.0
"""Log-odds for each factor e by which the squared distance of the nearest likely parent is less."""


def pair_log_odds(pairs: Pairs) -> Float64[np.ndarray, " near"]:
    """Log-odds that the child was trained from each candidate, or from what descends from it."""
    log_odds: Float64[np.ndarray, " near"] = INTERCEPT + _features(pairs) @ COEFFICIENTS
    return log_odds


def _features(pairs: Pairs) -> Float64[np.ndarray, "near features"]:
    """Numbers of a pair, limited, so that no extreme decides."""
    return np.stack(
        [
            np.clip(pairs.excess, -1, 1),
            np.clip(pairs.excess - EXCESS_LIMIT, 0, 3),
            np.clip(pairs.along, -1, 0.6),
            np.clip(pairs.layers, -1, 1),
            np.clip(pairs.private_excess, -1, 1),
            np.clip(pairs.private_excess - EXCESS_LIMIT, 0, 3),
            np.clip(pairs.private_along, -1, 0.6),
            np.clip(np.log(pairs.step + 1e-3), -3, 0),
            np.clip(np.log(pairs.private_step + 1e-3), -3, 0),
            np.clip(pairs.private_z, -4, 4),
            np.clip(pairs.private_z, 4, 20),
            np.clip(10 * pairs.lost, 0, 1),
            (pairs.shared > LEAST_SHARED).astype(np.float64),
            np.clip(pairs.cosine, -0.2, 0.2),
            np.clip(10 * (pairs.cosine - 0.9), 0, 1),
        ],
        axis=1,
    )


def time_log_odds(
    child: float, candidates: Float64[np.ndarray, " near"]
) -> Float64[np.ndarray, " near"]:
    """What times of publication, in seconds and NaN where unknown, add to the log-odds."""
    apart = child - candidates
    return np.select([apart > TOLERANCE_S, apart < -TOLERANCE_S], [LATER, EARLIER], 0.0)


def nearest_first(
    log_odds: Float64[np.ndarray, " near"], distances: Float64[np.ndarray, " near"]
) -> Float64[np.ndarray, " near"]:
    """Log-odds that each candidate is the parent itself: of likely ancestors the nearest is."""
    likely = distances[log_odds > 0]
    if not len(likely):
        return log_odds
    further = np.maximum(distances, np.finfo(float).tiny) / max(likely.min(), np.finfo(float).tiny)
    return log_odds - NEARER * np.log(np.maximum(further, 1.0))


def calibrate(probability: float) -> float:
    """The probability of an edge, by how often such edges were right."""
    kept = min(max(probability, 1e-6), 1 - 1e-6)
    log_odds = SLOPE * np.log(kept / (1 - kept)) + SHIFT
    return float(1 / (1 + np.exp(-log_odds)))
