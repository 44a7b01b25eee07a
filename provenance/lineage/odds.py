"""How likely each candidate is a model's parent, against the base: a conditional logit.

The log-odds of a candidate are a weighted sum of piecewise linear functions of a pair's numbers;
those of the base are 0. Weights were fitted by `python -m benchmarks.provenance.lineage fit` to
trees of a small network and some of all-MiniLM-L6-v2 (docs/lineage.md says which, and how far the
probabilities hold on others).
"""

from __future__ import annotations

import numpy as np

from ...arrays import Bool, Float64
from .descent import Pairs

LEVEL = 0.3
"""Probability below which no parent is named: the model hangs at the base."""

LATER, EARLIER = 0.5, -4.0
"""What is added to the log-odds where the child is later than a candidate, or earlier: a model that
is published twice has a late time, so that no order excludes a pair."""

RESHAPED = -2.0
"""The same where layers were dropped or duplicated or the vocabulary was changed on the way: of two
candidates that the weights do not tell apart, the one of the model's own form."""

FORWARD, ALIKE = 0.3, 0.95
"""Excess from which a candidate may be a parent; cosine from which it may be of the same run."""

TOLERANCE_S = 3600.0
"""Difference of two times from which one is later."""

WEIGHTS = {
    "one": 4.867,
    "nearer": -0.460,
    "a little further": -4.402,
    "further": 0.131,
    "nearer than unlike": 0.035,
    "a little further than unlike": -0.328,
    "further than unlike": 0.208,
    "unexplained": 1.624,
    "explained": 0.686,
    "backward": 1.639,
    "excess to half": 0.150,
    "excess to one": 4.040,
    "excess beyond": -0.276,
    "against": 0.736,
    "along": -6.406,
    "layers": 1.387,
    "private backward": 0.061,
    "private excess": -0.374,
    "private beyond": -0.774,
    "private against": 2.957,
    "private along": -1.753,
    "short step": -1.138,
    "long step": -0.373,
    "short private step": -0.061,
    "private": 1.140,
    "private z": 0.160,
    "large private z": -0.094,
    "lost": -5.437,
    "shared": 2.901,
    "unlike": 6.498,
    "cosine": 2.343,
    "high cosine": -12.831,
    "alike, beyond": -0.284,
    "alike, excess": -0.821,
    "alike, private": 1.742,
}  # fmt: skip
"""Log-odds for each unit of a feature."""


def features_of(
    pairs: Pairs, distances: Float64[np.ndarray, " near"], in_time: Bool[np.ndarray, " near"]
) -> dict[str, Float64[np.ndarray, " near"]]:
    """Numbers of a child with its candidates by name, each limited, so that no extreme decides.

    Args:
        distances: |ΔW_C − ΔW_P|².
        in_time: Whether a candidate is not known to be later than the child.
    """
    is_forward = (pairs.excess >= FORWARD) & in_time
    further = _further(distances, is_forward)
    further_of_unlike = _further(distances, is_forward & (pairs.cosine < ALIKE))
    step = np.log(pairs.step + 1e-3)
    private_step = np.log(pairs.private_step + 1e-3)
    explained = 1 - pairs.share_left
    reliable = pairs.private_share / (pairs.private_share + 0.05)
    alike = np.clip((pairs.cosine - 0.85) / 0.15, 0, 1)
    clip = np.clip
    return {
        "one": np.ones_like(step),
        "nearer": clip(further, -2, 0),
        "a little further": clip(further, 0, 0.5),
        "further": clip(further, 0.5, 3),
        "nearer than unlike": clip(further_of_unlike, -2, 0),
        "a little further than unlike": clip(further_of_unlike, 0, 0.5),
        "further than unlike": clip(further_of_unlike, 0.5, 3),
        "unexplained": clip(explained, -1, 0),
        "explained": clip(explained, 0, 1),
        "backward": clip(pairs.excess, -1, 0),
        "excess to half": clip(pairs.excess, 0, 0.5),
        "excess to one": clip(pairs.excess, 0.5, 1),
        "excess beyond": clip(pairs.excess - 1.3, 0, 3),
        "against": clip(pairs.along, -0.5, 0),
        "along": clip(pairs.along, 0, 0.5),
        "layers": clip(pairs.layers, -1, 1),
        "private backward": clip(pairs.private_excess, -1, 0) * reliable,
        "private excess": clip(pairs.private_excess, 0, 1) * reliable,
        "private beyond": clip(pairs.private_excess - 1.3, 0, 3) * reliable,
        "private against": clip(pairs.private_along, -0.5, 0) * reliable,
        "private along": clip(pairs.private_along, 0, 0.5) * reliable,
        "short step": clip(step, -3, 0),
        "long step": clip(step, 0, 2.5),
        "short private step": clip(private_step, -3, 0),
        "private": reliable,
        "private z": clip(pairs.private_z, -4, 4) * reliable,
        "large private z": clip(pairs.private_z, 4, 16) * reliable,
        "lost": clip(10 * pairs.lost, 0, 1),
        "shared": clip(20 * pairs.shared, 0, 1),
        "unlike": clip(pairs.cosine, 0, 0.2),
        "cosine": clip(pairs.cosine, 0.2, 0.9),
        "high cosine": clip(pairs.cosine, 0.9, 1),
        "alike, beyond": alike * clip(pairs.excess - 1.3, 0, 2),
        "alike, excess": alike * clip(pairs.excess, -1, 1),
        "alike, private": alike * clip(pairs.private_excess, -1, 1) * reliable,
    }


def _further(
    distances: Float64[np.ndarray, " near"], among: Bool[np.ndarray, " near"]
) -> Float64[np.ndarray, " near"]:
    """log of each squared distance over the least of some candidates; of all, if there are none."""
    nearest = distances[among].min() if among.any() else distances.min(initial=np.inf)
    smallest = np.finfo(np.float64).tiny
    logs: Float64[np.ndarray, " near"] = np.log(np.maximum(distances, smallest))
    logs -= np.log(max(float(nearest), smallest))
    return logs


def pair_log_odds(
    pairs: Pairs, distances: Float64[np.ndarray, " near"], later_by_s: Float64[np.ndarray, " near"]
) -> Float64[np.ndarray, " near"]:
    """Log-odds that the child was trained from each candidate, against the base.

    Args:
        later_by_s: How much later than each candidate the child is, in seconds; NaN where one of
            the times is unknown.
    """
    features = features_of(pairs, distances, ~(later_by_s < -TOLERANCE_S))
    log_odds: Float64[np.ndarray, " near"] = np.select(
        [later_by_s > TOLERANCE_S, later_by_s < -TOLERANCE_S], [LATER, EARLIER], 0.0
    )
    for name, numbers in features.items():
        log_odds = log_odds + WEIGHTS[name] * numbers
    return log_odds
