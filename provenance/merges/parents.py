"""The parents of a merge: which indexed models, with what weights, by which method.

A merge's update is a sum of its parents' but for rounding (linear, task arithmetic, nearly SLERP),
or a sum with noise that its method decides (TIES, DARE). Linear sketches keep sums: the parents are
a sparse combination of the family's sketches (`combination.py`), and what the combination leaves is
compared with storage rounding. Entries that only a merge leaves unchanged show TIES or DARE, which
rows tell apart (`reconstruction.py`). Else more than rounding means that something is missing: a
parent that is not in the catalog, or training since.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.special import erf

from ...arrays import Float32, Float64
from ...records import LINEAR_DIM, LINEAR_LAYER_DIM
from ...store import FamilyUpdates
from .combination import MOST_PARENTS, Allowed, Combination, Pursuit, Space
from .file_on_rows import Method

Kind = Literal["merge", "scaled", "copy", "part", "none", "rounding"]
"""`merge`: parents and weights explain it; `scaled`: one model, interpolated with the base;
`copy`: the update of another model; `part`: contains updates of these models, and more;
`rounding`: the update is hardly more than storage rounding."""

ROUNDING_ENERGY = 1.15
"""|rest|² over that of the expected rounding, up to which a rest is rounding: the expectation is
for Gaussian matrices, and a sketch measures |rest|² to 3 %. Of 10 merges in bfloat16: .98 to
1.07."""

LEAST_REST = 4e-3
"""|rest| / |ΔW| up to which a sum explains an update, whatever it is stored in; SLERP leaves up to
as much where it is not linear."""

EXACT = 1e-3
"""Share of |ΔW|² that is left of a sum below which no relative of a parent can stand for it."""

KIN = 0.2
"""Cosine of two updates of a sum from which both may stand for a parent that is not there, whose
siblings they are."""

MOST_ROUNDING = 0.5
"""Share of |ΔW|² that is rounding from which nothing is said of parents."""

NEARLY = 0.01
"""Share of |ΔW|² in which two updates, or an update and a sum, may differ and count as one because
rounding explains it; where more is rounding, a sum that explains more of it is preferred."""

SAME_WEIGHT = 4.0
"""Standard errors within which the weight of one parent alone is 1: a copy, up to rounding."""

MOST_CHANGED = 0.10
"""Share of |ΔW|² that a merge may leave unexplained, if it was trained on; above, a parent is
missing."""

MADE_OF_IT = 0.8
"""|w||x| / |ΔW| of a model in a sum from which the sum is tried without it: it may be made of the
model in question."""

LEAST_EXPLAINED = 0.3
"""Share of |ΔW|² from which models whose updates it contains are named: siblings explain less."""

LEAST_ZEROS = 0.02
"""Share of unchanged entries below which no method dropped any."""

MEAN_WITHIN = 0.02
"""How far from 1 the weights of a mean may add up to, in any layer."""

VARIES = 0.02
"""Mean difference of a weight by layer from its mean, relative to it, from which it varies."""

ROUNDING_OF_HALF_STEP = 0.735
"""As `indexer/delta.py` has it: the mean step of a Gaussian matrix, over its largest binade's."""

GAUSSIAN_SIZES = np.abs(np.random.default_rng(0).standard_normal(2048))
"""|W| of a Gaussian matrix, relative to its standard deviation."""

SCREENED = 4096
"""Models that are compared in full; of a larger family those nearest to the update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A model with its weight in a merge. `layers`: the weight in each layer, where weights vary;
    `equal`: models with the same update, any of which may be the parent."""

    model: str
    weight: float
    layers: Mapping[tuple[str, int], float] = field(default_factory=dict)
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parentage:
    """What a model was merged from, as far as the family's sketches tell.

    Attributes:
        parents: By falling share in the update. Of `ties` their weights add up to 1.
        method: None where none of the methods explains what the sum leaves.
        density: Of a sparse method.
        unexplained: Share of |ΔW|² that parents and method do not explain, 0…1.
        is_complete: Nothing is missing; None where sketches do not contradict it, and could not
            tell a parent from its siblings.
        zeros: Share of entries of changed matrices that a method left unchanged.
        copies: Models with the same update as this one; they are no parents.
    """

    kind: Kind
    parents: tuple[Parent, ...] = ()
    method: Method | None = None
    density: float | None = None
    unexplained: float = 1.0
    is_complete: bool | None = False
    zeros: float = 0.0
    copies: tuple[str, ...] = ()

    @property
    def is_related(self) -> bool:
        """Whether enough of the update is of these models to say so, or entries were dropped."""
        explained = 1 - self.unexplained
        return bool(self.parents) and (explained >= LEAST_EXPLAINED or self.zeros >= LEAST_ZEROS)


def find_parents(
    target: FamilyUpdates,
    family: FamilyUpdates,
    ids: Sequence[str],
    *,
    excluded: Sequence[int] = (),
    later: Sequence[int] = (),
) -> Parentage:
    """What one update (the only row of `target`) was merged from. Peak: the sketches twice.

    Args:
        ids: Of the family's models.
        excluded: Their rows that are the model itself.
        later: Rows of models that were made after it, as far as times are known: they are parents
            only where nothing explains it without them.
    """
    if not target.sketched[0]:
        return Parentage(kind="none")
    search = _Search(target, family, ids, excluded)
    if search.floor.sum() > MOST_ROUNDING * search.energy:
        return Parentage(kind="rounding")
    allowed = search.allowed.copy()
    allowed[list(later)] = False
    parentage = search.parentage(allowed)
    if len(later) and parentage.is_complete is False:
        parentage = search.parentage(search.allowed)
    return parentage


def near_rows(target: FamilyUpdates, family: FamilyUpdates) -> Float64[np.ndarray, " models"]:
    """How much of an update each model explains alone, by pooled sketches: for screening."""
    products = family.pooled @ target.pooled[0]
    squares = np.einsum("mf,mf->m", family.pooled, family.pooled)
    return np.asarray(products.astype(np.float64) ** 2 / np.where(squares > 0, squares, np.inf))


class _Search:
    """One update's search. `energy`: |ΔW|²; `floor`: its rounding by layer, `floors`: that of the
    family's models; `copies`: rows."""

    def __init__(
        self,
        target: FamilyUpdates,
        family: FamilyUpdates,
        ids: Sequence[str],
        excluded: Sequence[int],
    ) -> None:
        self.target, self.family, self.ids = target, family, ids
        self.layers = target.layers[0].astype(np.float64)
        squares = (self.layers**2).sum(1)
        # as many layers as carry the update decide how little noise their sketches have
        counted = float(squares.sum()) ** 2 / max(float((squares**2).sum()), 1e-300)
        self.wholes = _features(target).astype(np.float64)
        self.whole = Space(_features(family)[:, None], LINEAR_DIM + LINEAR_LAYER_DIM * counted)
        self.by_layer = Space(family.layers, float(LINEAR_LAYER_DIM))
        self.energy = float((self.wholes**2).sum())
        self.floor = target.by_layer(target.noise_floor**2)[0]
        self.floors = family.by_layer(family.noise_floor**2)
        self.allowed = family.sketched & (self.whole.norms[:, 0] > 0)
        self.allowed[list(excluded)] = False
        self.copies = self.equal_to(self.wholes[0], float(self.floor.sum()))
        self.allowed[self.copies] = False

    def equal_to(self, update: Float64[np.ndarray, " features"], floor: float) -> list[int]:
        """The allowed rows whose update is this one, but for storage rounding.

        What is stored in a shorter type than the base is compared with the base as that type rounds
        it, where that is nearer (`indexer/delta.py`): the type's rounding counts twice beside a
        longer one, as it does of two models of one type. Where the weight is 1, a rest may be more.
        """
        length = float(update @ update)
        distances = self.whole.norms[:, 0] + length
        distances = distances - 2 * self.whole.products(update[None])[:, 0]
        near = np.flatnonzero(self.allowed & (distances <= MOST_ROUNDING * length))
        updates = self.whole.updates[near, 0].astype(np.float64)
        norms, floors = self.whole.norms[near, 0], self.floors[near].sum(1)
        rests = ((updates - update) ** 2).sum(1)
        errors = SAME_WEIGHT * (rests / self.whole.dims * norms) ** 0.5
        is_whole = np.abs(updates @ update - norms) <= errors
        limits = ROUNDING_ENERGY * (floor + floors)
        is_equal = rests <= np.clip(limits, LEAST_REST**2 * length, NEARLY * length)
        is_equal |= is_whole & (rests <= 2 * ROUNDING_ENERGY * np.maximum(floor, floors))
        equal: list[int] = near[is_equal].tolist()
        return equal

    def parentage(self, allowed: Allowed) -> Parentage:
        """Sums first, with one weight a model, then by layer, then with negative ones; then without
        each model of the sum, which may be made of it; then methods that leave noise."""
        sums = self._pursuit(self.whole, allowed, signed=False).combination()
        for trial in self._trials(sums, allowed):
            if trial.rows and self._is_rounding(trial):
                return self._sum(trial)
        if not sums.rows:
            return self._copy()
        return self._sparse(sums)

    def _trials(self, first: Combination, allowed: Allowed) -> Iterator[Combination]:
        yield first
        yield self.refit(first.rows)
        yield self._pursuit(self.by_layer, allowed, signed=True).combination()
        yield self._pursuit(self.whole, allowed, signed=True).combination()
        length = self.energy**0.5
        for row, weight in zip(first.rows, first.weights[:, 0], strict=True):
            if weight * self.whole.norms[row, 0] ** 0.5 < MADE_OF_IT * length:
                continue
            others = allowed.copy()
            others[row] = False
            yield self._pursuit(self.whole, others, signed=False).combination()

    def _pursuit(self, space: Space, allowed: Allowed, *, signed: bool) -> Pursuit:
        target = self.wholes if space is self.whole else self.layers
        floor = np.clip(self.floor.sum() / self.energy, LEAST_REST**2, NEARLY) * self.energy
        return Pursuit(space, target, allowed, signed, float(floor))

    def refit(self, rows: Sequence[int]) -> Combination:
        """The same models with weights of their own in every layer."""
        return self._pursuit(self.by_layer, self.allowed, signed=True).fit(rows)

    def _is_rounding(self, fit: Combination) -> bool:
        """Whether what is left is the rounding of the model and of its weighted parents."""
        if len(fit.rows) > MOST_PARENTS:
            return False
        floors = self.floors[list(fit.rows)]
        weights = np.broadcast_to(fit.weights, floors.shape)
        floor = float(self.floor.sum() + (weights**2 * floors).sum())
        limit = max(ROUNDING_ENERGY * floor, LEAST_REST**2 * self.energy)
        if fit.energy > EXACT * self.energy and self._are_kin(fit.rows):
            return False
        dims = self.whole.dims if fit.weights.shape[1] == 1 else self.by_layer.dims
        return fit.energy <= limit * (1 - len(fit.rows) / dims)

    def _copy(self) -> Parentage:
        return Parentage(kind="copy" if self.copies else "none", copies=self._ids(self.copies))

    def _ids(self, rows: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.ids[row] for row in rows)

    def _parents(self, fit: Combination) -> tuple[Parent, ...]:
        """The rows of a fit by falling share, each with its weights by layer where they vary."""
        used = self.by_layer.norms[list(fit.rows)] > 0
        means = fit.weights[:, 0]
        if fit.weights.shape[1] > 1:
            means = (fit.weights * used).sum(1) / used.sum(1)
        parents = []
        for place, row in enumerate(fit.rows):
            layers: dict[tuple[str, int], float] = {}
            own, mean = fit.weights[place], float(means[place])
            counted = own[used[place]] if len(own) > 1 else own
            if len(counted) > 1 and np.abs(counted - mean).mean() > VARIES * abs(mean):
                names = zip(self.family.layer_names, own.tolist(), used[place], strict=True)
                layers = {name: weight for name, weight, is_used in names if is_used}
            update = self.whole.updates[row, 0].astype(np.float64)
            equal = self.equal_to(update, float(self.floors[row].sum()))
            others = self._ids([other for other in equal if other != row])
            parents.append(Parent(model=self.ids[row], weight=mean, layers=layers, equal=others))
        return tuple(parents)

    def _sum(self, fit: Combination) -> Parentage:
        """A merge whose update is a sum of its parents' but for rounding."""
        layered = self.refit(fit.rows)
        parents = self._parents(layered)
        if not any(parent.layers for parent in parents):
            layered = fit
            parents = self._parents(fit)
        # where a parent leaves a layer unchanged its weight there is not known
        known = (self.by_layer.norms[list(layered.rows)] > 0).all(0)
        sums = layered.weights.sum(0)[known if layered.weights.shape[1] > 1 else [True]]
        is_mean = (layered.weights >= 0).all() and (np.abs(sums - 1) <= MEAN_WITHIN).all()
        return Parentage(
            kind="merge" if len(parents) > 1 else "scaled",
            parents=parents,
            method="linear" if is_mean or len(parents) == 1 else "task_arithmetic",
            unexplained=min(1.0, fit.energy / self.energy),
            is_complete=True if fit.energy <= EXACT * self.energy else None,
            copies=self._ids(self.copies),
        )

    def _sparse(self, sums: Combination) -> Parentage:
        """A merge by a method that leaves noise; or parts of one, where it leaves too much."""
        parents = self._parents(sums)
        rest = sums.energy / (1 - len(parents) / self.whole.dims) / self.energy
        zeros = self._zeros(sums.rows)
        copies = self._ids(self.copies)
        found = Parentage(
            kind="part", parents=parents, unexplained=min(1.0, rest), zeros=zeros, copies=copies
        )
        if len(parents) == 1:
            return self._copy() if self.copies else found
        if self._are_kin(sums.rows):
            return found
        squares = np.square(self.whole.updates[list(sums.rows), 0].astype(np.float64)).sum(1)
        second = float(np.sort(sums.weights[:, 0] ** 2 * squares)[-2]) / self.energy
        if zeros >= LEAST_ZEROS and second >= MOST_CHANGED:
            return replace(found, kind="merge", is_complete=None)
        # training goes a little way along many updates: it is no merge with them
        return replace(found, kind="merge") if rest <= min(MOST_CHANGED, second) else found

    def _are_kin(self, rows: Sequence[int]) -> bool:
        """Whether any two of the updates are siblings."""
        vectors = self.whole.updates[list(rows), 0].astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return bool((np.abs(vectors @ vectors.T - np.eye(len(rows))) >= KIN).any())

    def _zeros(self, rows: Sequence[int]) -> float:
        """The share of entries, of matrices that parents change, that a method left unchanged:
        beyond those that are unchanged in all parents, or too small a change for the storage."""
        own, theirs = self.target, self.family.take(list(rows))
        changed = (theirs.fro_norm > 0).any(0) & (own.fro_norm[0] > 0)
        if not changed.any():
            return 0.0
        kept = np.nan_to_num(theirs.zero_share[:, changed], nan=1.0).prod(0)
        # of Gaussian weights, storage rounds this share of Gaussian changes to none
        roundings = np.nan_to_num(own.noise_floor[0, changed] / own.fro_norm[0, changed])
        half_steps = roundings * math.sqrt(3) / ROUNDING_OF_HALF_STEP
        binades = 2.0 ** np.floor(np.log2(GAUSSIAN_SIZES))
        rounded = erf(half_steps[:, None] * binades / math.sqrt(2)).mean(1)
        expected = np.maximum(kept, rounded)
        seen = np.nan_to_num(own.zero_share[0, changed], nan=1.0)
        shares = np.maximum(0.0, seen - expected) / np.maximum(1 - expected, 1e-3)
        return float(shares.mean())


def _features(updates: FamilyUpdates) -> Float32[np.ndarray, "models features"]:
    """Pooled and layers' sketches, by how much each says of ⟨ΔW, ΔW'⟩: its numbers."""
    n_models, n_layers = updates.layers.shape[:2]
    share = LINEAR_DIM / (LINEAR_DIM + LINEAR_LAYER_DIM * n_layers)
    features = np.empty((n_models, LINEAR_DIM + LINEAR_LAYER_DIM * n_layers), dtype=np.float32)
    np.multiply(updates.pooled, share**0.5, out=features[:, :LINEAR_DIM])
    flat = updates.layers.reshape(n_models, -1)
    np.multiply(flat, (1 - share) ** 0.5, out=features[:, LINEAR_DIM:])
    return features
