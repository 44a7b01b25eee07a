"""mergekit's formulas, over the updates of the parents; and what they do to Gaussian ones.

Formulas: `linear.py`, `slerp.py`, `generalized_task_arithmetic.py` and `sparsify.py` of mergekit
0.1.5. Weights are those of its config files.

A sparse merge is no sum of its parents' updates: what a sketch shows of it is the best sum, how
much that leaves, and how many entries are 0. All three follow from the weights and the density,
given the parents' norms and cosines, where entries are Gaussian (of real fine-tunes the kurtosis is
2.3 to 4, by tensor). `forward` computes them; `parents.py` looks for the weights and the density.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ...arrays import Float64

Method = Literal["linear", "slerp", "task_arithmetic", "ties", "dare_linear", "dare_ties"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One of mergekit's generalised task arithmetic. `trims`: by magnitude; `drops`: at random,
    and rescales; `elects`: entries against the majority's sign are left out; `normalises`: divides
    by the weights that count."""

    trims: bool = False
    drops: bool = False
    elects: bool = False
    normalises: bool = False


FORMULAS: Mapping[Method, Formula] = {
    "linear": Formula(normalises=True),
    "task_arithmetic": Formula(),
    "ties": Formula(trims=True, elects=True, normalises=True),
    "dare_linear": Formula(drops=True),
    "dare_ties": Formula(drops=True, elects=True),
}

SLERP_LINEAR = 0.9995
"""Cosine of two tensors beyond which mergekit interpolates linearly."""


def combine(parts: torch.Tensor, weights: torch.Tensor, formula: Formula) -> torch.Tensor:
    """ΔW of a merge: parts (parents, …), trimmed or dropped already, weights (parents, …)."""
    weighted = parts * weights
    if not formula.elects:
        merged = weighted.sum(0)
        divisor = weights.sum(0)
        divisor = torch.where(divisor.abs() < 1e-8, 1.0, divisor)
    else:
        majority = (weighted.sum(0) >= 0) * 2.0 - 1.0
        counts = weighted.sign() == majority
        merged = (weighted * counts).sum(0)
        divisor = (weights * counts).sum(0)
        divisor = torch.where(divisor == 0, 1.0, divisor)
    return merged / divisor if formula.normalises else merged


def slerp_weights(t: float, cosine: float) -> tuple[float, float]:
    """What mergekit's SLERP multiplies both models by, whose weights have this cosine."""
    if abs(cosine) > SLERP_LINEAR:
        return 1 - t, t
    theta = float(np.arccos(cosine))
    return float(np.sin((1 - t) * theta) / np.sin(theta)), float(np.sin(t * theta) / np.sin(theta))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Appearance:
    """A merge as it looks in sketches: the best sum's weights; the share of |ΔW|² that the sum
    leaves; the share of entries that are 0."""

    weights: Float64[np.ndarray, " parents"]
    rest: float
    zeros: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParentGeometry:
    """The parents' updates in parts whose entries are drawn alike: |x| of each, 0 where a parent
    leaves it unchanged; how many matrices a part stands for; the parents' cosines."""

    norms: Float64[np.ndarray, "parts parents"]
    counts: Float64[np.ndarray, " parts"]
    cosines: Float64[np.ndarray, "parents parents"]

    def grams(self) -> Float64[np.ndarray, "parts parents parents"]:
        return np.asarray(self.norms[:, :, None] * self.norms[:, None, :] * self.cosines)


DRAWS = 2048
"""Entries drawn of each part."""


def forward(
    parents: ParentGeometry, formula: Formula, weights: Float64[np.ndarray, " parents"], kept: float
) -> Appearance:
    """What such a merge looks like; `kept`: the density. The same numbers are drawn every time."""
    n_parts, n_parents = parents.norms.shape
    rng = np.random.default_rng(0)
    values, vectors = np.linalg.eigh(parents.cosines)
    root = vectors * np.sqrt(np.clip(values, 0.0, None)) @ vectors.T
    normal = rng.standard_normal((n_parents, DRAWS))
    # the draws have exactly the cosines that are wanted
    normal = np.linalg.solve(np.linalg.cholesky(normal @ normal.T / DRAWS), normal)
    unit = root @ normal
    sizes = parents.norms.T[:, :, None]  # (parents, parts, 1)
    drawn = torch.from_numpy(unit[:, None, :] * sizes)
    parts = drawn
    if formula.drops:
        keeps = torch.from_numpy(rng.random((n_parents, n_parts, DRAWS)) < kept)
        parts = parts * keeps / max(kept, 1e-6)
    elif formula.trims:
        least = np.quantile(np.abs(unit), 1 - kept, axis=1)
        parts = parts * torch.from_numpy(np.abs(unit) >= least[:, None])[:, None, :]
    merged = combine(parts, torch.from_numpy(weights)[:, None, None], formula)
    grams = torch.einsum("ipd,jpd->pij", drawn, drawn).numpy() / DRAWS
    sums = torch.einsum("ipd,pd->pi", drawn, merged).numpy() / DRAWS
    squares = merged.square().mean(1).numpy()
    gram, fits = grams.sum(0), sums.sum(0)
    found = np.linalg.lstsq(gram, fits, rcond=1e-9)[0]
    whole = max(float(squares.sum()), 1e-300)
    zeros = (merged == 0).double().mean(1).numpy()
    return Appearance(
        weights=found,
        rest=max(0.0, 1 - float(fits @ found) / whole),
        zeros=float(zeros @ parents.counts / parents.counts.sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseRecipe:
    """A method with its weights and density that looks as a merge does.

    Attributes:
        rest_ratio: What is left of the best sum, relative to the sum, over what the method leaves.
        scale: The sum of the best sum's weights, over that which the method gives.
    """

    method: Method
    weights: Float64[np.ndarray, " parents"]
    density: float
    rest_ratio: float
    scale: float


STEPS = 4
EVEN = 0.12
"""How far weights are from equal ones, before anything is known: standard deviation, of a sum of 1.
A sparse TIES divides most entries by the one weight that counts there: they say little of it."""

MODEL_ERROR = 0.04
"""Relative error of `forward`, of entries that are not Gaussian."""


def fit_recipe(
    parents: ParentGeometry,
    method: Method,
    seen: Appearance,
    errors: Float64[np.ndarray, " parents"],
) -> SparseRecipe:
    """The weights and the density with which a method gives the same sum and as many zeros: Gauss-
    Newton steps, with equal weights as prior. `errors`: standard errors of the weights seen."""
    formula = FORMULAS[method]
    kept = _density(parents, formula, seen.zeros)
    total = 1.0 if formula.normalises else float(np.clip(seen.weights, 1e-3, None).sum())
    n_parents = len(seen.weights)
    even = np.full(n_parents, total / n_parents)
    weights = even.copy()
    if not formula.normalises:
        weights = np.clip(seen.weights, 1e-3, None)
    spread = np.sqrt(errors**2 + (MODEL_ERROR * seen.weights) ** 2)
    for _ in range(STEPS):
        made = forward(parents, formula, weights, kept)
        step = 0.05 * total
        slopes = np.zeros((n_parents, n_parents))
        for place in range(n_parents):
            moved = weights.copy()
            moved[place] += step
            slopes[:, place] = (
                forward(parents, formula, moved, kept).weights - made.weights
            ) / step
        misses = (seen.weights - made.weights) / spread
        if formula.normalises:
            # the length says nothing of the weights
            misses = (
                seen.weights * made.weights.sum() / seen.weights.sum() - made.weights
            ) / spread
        prior = (even - weights) / (EVEN * total)
        system = np.vstack([slopes / spread[:, None], np.eye(n_parents) / (EVEN * total)])
        change = np.linalg.lstsq(system, np.concatenate([misses, prior]), rcond=None)[0]
        most = 0.5 * total / n_parents
        weights = np.clip(weights + np.clip(change, -most, most), 0.01 * total, None)
        if formula.normalises:
            weights = weights / weights.sum()
    made = forward(parents, formula, weights, kept)
    return SparseRecipe(
        method=method,
        weights=weights,
        density=kept,
        rest_ratio=_odds(seen.rest) / _odds(made.rest),
        scale=float(np.sum(seen.weights) / max(float(np.sum(made.weights)), 1e-9)),
    )


def _odds(rest: float) -> float:
    return max(rest, 1e-9) / max(1 - rest, 1e-9)


def _density(parents: ParentGeometry, formula: Formula, zeros: float) -> float:
    """The density that leaves this share of entries at 0, whatever the weights: by halving."""
    low, high = 0.005, 1.0
    equal = np.ones(len(parents.cosines))
    for _ in range(10):
        middle = (low + high) / 2
        if forward(parents, formula, equal, middle).zeros > zeros:
            low = middle
        else:
            high = middle
    return high
