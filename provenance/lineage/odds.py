"""How likely each candidate is a model's parent, against the base: a conditional logit.

The log-odds of a candidate are a weighted sum of piecewise linear functions of a pair's numbers;
those of the base are 0. `odds.json` has the functions, the weights, and what they were fitted to
(docs/lineage.md says how far the probabilities hold on others).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from .descent import IsNear, Numbers, PerNear

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

FITTED: Mapping[str, Any] = json.loads(files(__package__).joinpath("odds.json").read_text("utf-8"))
"""`features`: each a number `of` a pair, limited to `from` … `to`, `times` what tells how far it
counts, with the log-odds of a unit (`weight`); `command`, `families` and `date` of the fit."""


def features_of(pairs: Numbers, in_time: IsNear) -> Numbers:
    """Numbers of a child with its candidates by name, each limited, so that no extreme decides;
    `in_time`: whether a candidate is not known to be later than the child."""
    is_forward = (pairs["excess"] >= FORWARD) & in_time
    is_unlike = pairs["cosine"] < ALIKE
    numbers = pairs | {
        "one": np.ones_like(pairs["distance"]),
        "further": _further(pairs["distance"], is_forward),
        "further of unlike": _further(pairs["distance"], is_forward & is_unlike),
        "explained": 1 - pairs["left"],
        "beyond": pairs["excess"] - 1.3,
        "private": pairs["private share"] / (pairs["private share"] + 0.05),
        "private beyond": pairs["private excess"] - 1.3,
        "step": np.log(pairs["step"] + 1e-3),
        "private step": np.log(pairs["private step"] + 1e-3),
        "lost": 10 * pairs["lost"],
        "shared": 20 * pairs["shared"],
        "alike": np.clip((pairs["cosine"] - 0.85) / 0.15, 0, 1),
    }
    return {
        row["name"]: np.clip(numbers[row["of"]], row["from"], row["to"])
        * np.prod([numbers[name] for name in row["times"]], axis=0)
        for row in FITTED["features"]
    }


def _further(distances: PerNear, among: IsNear) -> PerNear:
    """log of each squared distance over the least of some candidates; of all, if there are none."""
    nearest = distances[among].min() if among.any() else distances.min(initial=np.inf)
    smallest = np.finfo(np.float64).tiny
    logs: PerNear = np.log(np.maximum(distances, smallest))
    logs -= np.log(max(float(nearest), smallest))
    return logs


def pair_log_odds(pairs: Numbers, later_by_s: PerNear) -> PerNear:
    """Log-odds that the child was trained from each candidate, against the base; `later_by_s`: how
    much later than each the child is, in seconds, NaN where one of the times is unknown."""
    features = features_of(pairs, ~(later_by_s < -TOLERANCE_S))
    log_odds: PerNear = np.select(
        [later_by_s > TOLERANCE_S, later_by_s < -TOLERANCE_S], [LATER, EARLIER], 0.0
    )
    for row in FITTED["features"]:
        log_odds = log_odds + row["weight"] * features[row["name"]]
    return log_odds
