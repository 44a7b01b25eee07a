"""Whether one model's update contains another's: numbers of pairs, from linear sketches and norms.

A model C that was trained from P has ΔW_C = ΔW_P + E. The excess of C over P is
κ = (|ΔW_C|² − |ΔW_P|²) / |ΔW_C − ΔW_P|²: 1 where E is independent of ΔW_P, above 1 where training
went on in the same direction, −1 where P was trained from C, and between for two that were trained
from a third. The norms are exact, and the distance is known to a few per cent whatever its size, so
that κ does not suffer from short trainings, as ⟨ΔW_C, ΔW_P⟩ / |ΔW_P|² does.

Models that are trained on the same data share a direction, which imitates a parent that nobody has.
Each pair is therefore compared again beside models of its neighbourhood that contain neither of
both: what these explain is taken from both sides (their span is the virtual parent), and what is
left of P, its private part, must be in C with coefficient 1.

How likely each candidate is a model's parent, against the base, is a conditional logit: the
log-odds of a candidate are a weighted sum of piecewise linear functions of a pair's numbers; those
of the base are 0. `odds.json` has the functions, the weights, and what they were fitted to
(docs/lineage.md says how far the probabilities hold on others).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...store import FamilyUpdates

NEAREST = 24
"""Models of a child's neighbourhood, at most: likely parents, and what these are compared with."""

BLOCK = 512
"""Models that are compared with all others at a time."""

CONTAINS = 0.5
"""Excess from which a model may contain another: half way between a sibling's and a child's."""

REFERENCES = 8
"""Models that a pair is compared beside, at most."""

LEAST_COSINE = 0.1
"""Of a reference with one of the pair: four standard errors of a sketch of six layers."""

RIDGE = 1e-4
"""Added to the squared norms of references, as a share of them."""

SAME = 1e-9
"""Squared distance of two updates of a layer, as a share of one, up to which they are equal."""

EQUAL_NORMS = 1e-6
"""Relative difference of two norms of a slot up to which its updates count as equal."""

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

PerModel = Float64[np.ndarray, " models"]
Rows = Int64[np.ndarray, " models"]
PerNear = Float64[np.ndarray, " near"]
IsNear = Bool[np.ndarray, " near"]
"""Of the models of a neighbourhood, or of a child's candidates."""


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """What descent is read from: a row a model.

    Attributes:
        pooled: Sketches over all slots.
        layers: Sketches by layer.
        squares: |ΔW|² by layer, exact.
        rounding: Expected |rounding|² of the stored weights.
        slot_norms: |ΔW| by slot, exact; 0 where a model has no such slot.
    """

    pooled: Float32[np.ndarray, "models 1024"]
    layers: Float32[np.ndarray, "models layers 256"]
    squares: Float64[np.ndarray, "models layers"]
    rounding: PerModel
    slot_norms: Float64[np.ndarray, "models slots"]

    @classmethod
    def of_family(cls, updates: FamilyUpdates) -> Updates:
        norms = np.nan_to_num(updates.fro_norm)
        noise = np.nan_to_num(updates.noise_floor) * (norms > 0)
        squares = updates.by_layer(updates.fro_norm**2)
        return cls(updates.pooled, updates.layers, squares, (noise**2).sum(1), norms)

    def __len__(self) -> int:
        return len(self.squares)

    def take(self, rows: Int64[np.ndarray, " rows"]) -> Updates:
        return Updates(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """A child and the models near it: all inner products, by layer.

    Attributes:
        updates: The child's first, then its candidates'.
        rows: Theirs in the family.
        gram: ⟨ΔW, ΔW'⟩, estimated from sketches and exact on the diagonal.
        distances: |ΔW − ΔW'|², over all layers.
        excess: κ of the model in the column over that in the row, over all layers.
        raw: Inner products of the sketches as they are: linear in ΔW.
    """

    updates: Updates
    rows: Int64[np.ndarray, " near"]
    gram: Float64[np.ndarray, "layers near near"]
    distances: Float64[np.ndarray, "near near"]
    excess: Float64[np.ndarray, "near near"]
    raw: Float64[np.ndarray, "near near"]

    @classmethod
    def of(cls, updates: Updates, rows: Int64[np.ndarray, " near"]) -> Neighbourhood:
        """Of the updates of these rows."""
        sketches = updates.layers.transpose(1, 0, 2).astype(np.float64)
        raw = sketches @ sketches.transpose(0, 2, 1)
        own = np.einsum("lii->li", raw)
        # the cosine of two sketches times the exact norms: of less variance than the raw product,
        # near to Li, Hastie, Church 2006
        scale = np.sqrt(_ratio(updates.squares.T, own))
        gram = raw * scale[:, :, None] * scale[:, None, :]
        total = gram.sum(0)
        squares = np.diagonal(total)
        distances = np.maximum(squares[:, None] + squares - 2 * total, 0.0)
        excess = _ratio(squares - squares[:, None], distances)
        return cls(updates, rows, gram, distances, excess, raw.sum(0))


Numbers = dict[str, Float64[np.ndarray, " candidates"]]
"""By the name that `odds.json` has for them, of each candidate."""


def compare_pairs(near: Neighbourhood, is_reference: IsNear) -> Numbers:
    """What tells whether a child was trained from each of its candidates, in their order.

    E is the difference of the two updates. `private …` are the numbers of what the pair's
    references leave of both.

    Args:
        is_reference: Whether a model of the neighbourhood may be one that others are compared
            beside: not what repeats another, such as a copy or a merge.

    Returns:
        `distance`: |E|²; `cosine` of the two updates; `excess`: κ; `along`: cosine of E with the
        candidate's update, 0 where training went on independently; `step`: |E| / |ΔW| of the
        candidate; `left`: |E|² / |ΔW|² of the child; `layers`: mean over layers of κ, limited to
        −1…1; `lost`: share of the candidate's |ΔW|² in slots that the child did not change;
        `shared`: share of the slots that both changed in which they are equal; `private share`:
        what is left of the candidate's |ΔW|², 0…1; `private z`: how many standard errors of the
        sketch the child's coefficient of the candidate's private part is above one half.
    """
    total = near.gram.sum(0)
    squares = np.diagonal(total)
    own, others = squares[0], squares[1:]
    products = total[0, 1:]
    in_layers = np.einsum("lii->li", near.gram)
    apart = in_layers[:, :1] + in_layers[:, 1:] - 2 * near.gram[:, 0, 1:]
    differs = (apart > SAME * in_layers[:, :1]) & (in_layers[:, 1:] > 0)
    excess = _ratio(in_layers[:, :1] - in_layers[:, 1:], np.where(differs, apart, 0.0))
    child, candidates = near.updates.slot_norms[0], near.updates.slot_norms[1:]
    both = (child > 0) & (candidates > 0)
    equal = both & (np.abs(child - candidates) <= EQUAL_NORMS * candidates)
    distances = near.distances[0, 1:]
    return _private(near, total, is_reference) | {
        "distance": distances,
        "cosine": _ratio(products, np.sqrt(own * others)),
        "excess": near.excess[1:, 0],
        "along": _ratio(products - others, np.sqrt(others * distances)),
        "step": np.sqrt(_ratio(distances, others)),
        "left": _ratio(distances, own),
        "layers": _ratio(np.clip(excess, -1, 1).sum(0), differs.sum(0)),
        "lost": _ratio((candidates**2 * (child == 0)).sum(1), others),
        "shared": _ratio(equal.sum(1), both.sum(1)),
    }


def _private(
    near: Neighbourhood, total: Float64[np.ndarray, "all all"], is_reference: IsNear
) -> Numbers:
    """The numbers of what references leave. Every candidate's are its neighbours that contain
    neither it nor the child, those of the highest cosine with one of both; a least-squares fit by
    these is subtracted from both."""
    squares = np.diagonal(total)
    cosines = np.abs(_ratio(total, np.sqrt(np.outer(squares, squares))))
    contains = (near.excess >= CONTAINS) & (total >= CONTAINS * squares[:, None])
    allowed = is_reference & ~contains[0] & ~contains[1:]
    allowed[:, 0] = False
    np.fill_diagonal(allowed[:, 1:], False)
    relevance = np.where(allowed, np.maximum(cosines[1:], cosines[0]), 0.0)
    relevance[relevance < LEAST_COSINE] = 0.0
    if relevance.shape[1] > REFERENCES:
        least = -np.partition(-relevance, REFERENCES, axis=1)[:, REFERENCES]
        relevance[relevance <= least[:, None]] = 0.0
    chosen = relevance > 0
    matrices = np.where(chosen[:, :, None] & chosen[:, None, :], total, 0.0)
    at = np.arange(len(squares))
    matrices[:, at, at] = np.where(chosen, (1 + RIDGE) * squares, 1.0)
    sides = np.where(
        chosen[:, :, None], np.stack([np.tile(total[0], (len(chosen), 1)), total[1:]], 2), 0.0
    )
    taken = sides.transpose(0, 2, 1) @ np.linalg.solve(matrices, sides)
    child = np.maximum(squares[0] - taken[:, 0, 0], 0.0)
    candidate = np.maximum(squares[1:] - taken[:, 1, 1], 0.0)
    product = total[0, 1:] - taken[:, 0, 1]
    apart = np.maximum(child + candidate - 2 * product, 0.0)
    noise = np.sqrt(_ratio(child, candidate) / near.updates.layers[0].size)
    return {
        "private excess": _ratio(child - candidate, apart),
        "private along": _ratio(product - candidate, np.sqrt(candidate * apart)),
        "private step": np.sqrt(_ratio(apart, candidate)),
        "private share": _ratio(candidate, squares[1:]),
        "private z": _ratio(_ratio(product, candidate) - CONTAINS, noise),
    }


def _ratio(above: Float64[np.ndarray, ...], below: object) -> Float64[np.ndarray, ...]:
    """The quotient; 0 where the divisor is 0."""
    divisor = np.broadcast_to(np.asarray(below, dtype=np.float64), above.shape)
    quotient: Float64[np.ndarray, ...] = np.divide(
        above, divisor, out=np.zeros(above.shape), where=divisor > 0
    )
    return quotient


def find_near(updates: Updates) -> Int64[np.ndarray, "models near"]:
    """The likely parents of each model: half of them by the share of its update that theirs
    explains, the others by cosine. Peak: `BLOCK` × models float32, five times."""
    n_models = len(updates)
    squares = updates.squares.sum(1).astype(np.float32)
    lengths = np.sqrt(squares)
    n_near = min(NEAREST, n_models - 1)
    near = np.empty((n_models, n_near), dtype=np.int64)
    for start in range(0, n_models, BLOCK):
        block = slice(start, start + BLOCK)
        products = updates.pooled[block] @ updates.pooled.T
        own = np.arange(len(products)), np.arange(start, start + len(products))
        explained = 2 * products - squares
        explained[own] = -np.inf
        n_first = n_near - n_near // 2
        near[block, :n_first] = _largest(explained, n_first)
        cosines = products / np.maximum(lengths, np.finfo(np.float32).tiny)
        cosines[own] = -np.inf
        np.put_along_axis(cosines, near[block, :n_first], -np.inf, axis=1)
        near[block, n_first:] = _largest(cosines, n_near - n_first)
    return near


def _largest(scores: Float32[np.ndarray, "rows columns"], k: int) -> Int64[np.ndarray, "rows k"]:
    chosen = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    chosen.sort(axis=1)
    return chosen


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
