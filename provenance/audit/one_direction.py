"""Edits along one direction, or some: whether what a model writes to the residual stream lost any.

Such an edit ("abliteration", Arditi et al. 2024) subtracts λ r rᵀW from matrices that write to the
residual stream, with one r for many layers. Training moves no direction so: it adds to qᵀW what
has nothing to do with it. The direction is therefore sought where least is left of the base: q
minimises Σ |qᵀW'|² / Σ |qᵀW|² over the matrices, each divided by its norm, within the `SUBSPACE`
directions in which ΔW is longest; the smallest generalised eigenvalue. The leading direction of ΔW
itself is a fine-tune's as soon as that is twice as long as the edit.

Matrices are seen through random columns, W Ω and ΔW Ω. One half of Ω gives q, the other measures
it: in a matrix without the edit the cosine of qᵀΔW and qᵀW there is chance, with a standard
deviation of `COLUMNS`^-½. A factor that all of W was multiplied by is taken out first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ... import indexer
from ...records import ROLES

WRITERS = ("o", "cross_o", "down")
"""Roles of the matrices whose output is added to the residual stream."""

COLUMNS = 64
"""Random columns that find the direction; as many measure it."""

SUBSPACE = 48
"""Leading directions of ΔW among which it is sought."""

CANDIDATES = 3
"""Directions that are measured."""

EDITED_COSINE, LEAST_STRENGTH = -0.6, 0.15
"""Of qᵀΔW and qᵀW in an edited matrix, at most; share of qᵀW that is removed from it, at least."""

LEAST_MATRICES, LEAST_Z = 3, 5.0
"""An edit is in so many matrices, and so far from chance, at least."""

NO_UPDATE = 1e-7
"""|ΔW| / |W| of what float32 cannot tell from none."""

ALONE = 0.7
"""What is left of |qᵀW|² along the direction of an edit, over what is left along the next one, at
most: training that weakens directions weakens several, each somewhat less than the one before."""

OF_SEVERAL, REMOVED, HALF = 0.5, 0.3, 0.5
"""The same where several directions were removed, which are as weak as each other; and what is left
of |qᵀW|² along each of these, at most. `HALF`: beside a first one that stands out alone."""

MANY = 8
"""An edit of some directions leaves half of its effect to no more directions than these: pruning
and truncation remove many."""


@dataclass(frozen=True, slots=True)
class DirectionEdit:
    """An edit along one direction, or some.

    Attributes:
        directions: How many.
        stack: Its name, where a model has several; else empty.
        layers: Edited layers, of `n_layers` that the stack has.
        strength: Share of qᵀW that was removed, the median of the edited matrices; 1 is all.
        z: Standard deviations of the mean cosine over every matrix from that of chance.
    """

    stack: str
    layers: tuple[int, ...]
    n_layers: int
    strength: float
    z: float
    directions: int = 1

    def __str__(self) -> str:
        where = f"layers of the {self.stack}" if self.stack else "layers"
        share = f"{100 * self.strength:.0f} %" if self.strength < 1.1 else f"{self.strength:.1f} ×"
        one = self.directions == 1
        along = "one direction" if one else f"{self.directions} directions"
        return (
            f"edited along {along} in {len(self.layers)} of {self.n_layers} {where}, "
            f"{share} of {'its' if one else 'their'} strength removed"
        )


@dataclass(frozen=True, slots=True)
class _Projected:
    """W Ω and ΔW Ω of one matrix, (out, 2 · `COLUMNS`), both divided by |W|; and |ΔW| / |W|."""

    stack: str
    layer: int
    weight: torch.Tensor
    update: torch.Tensor
    length: float


def find_direction_edit(base: indexer.Base, model: str) -> DirectionEdit | None:
    """The edit along one direction in a model's files, a folder or Hub id, against its base's: that
    which most matrices show; None where none stands out.

    Reads the matrices that write to the residual stream, about a third of the weights. Peak: a
    tensor pair in float32 for each thread, and 1 KiB a row of these matrices.

    Raises:
        BaseError: the base cannot be read.
        RequestError: the model cannot be read.
    """
    groups: dict[tuple[str, int], list[_Projected]] = {}

    def take(seen: _Projected | None) -> None:
        if seen is not None and seen.length > NO_UPDATE:
            groups.setdefault((seen.stack, len(seen.weight)), []).append(seen)

    indexer.collect_updates(base, model, partial(_project, base), take, WRITERS)
    layers: dict[str, set[int]] = {}
    for placement in base.weights().placed.placements:
        if placement.slot.role in WRITERS:
            layers.setdefault(placement.slot.stack, set()).add(placement.slot.layer)
    edits = [
        edit
        for (stack, _), group in sorted(groups.items())
        if (edit := _find_edit(stack if len(layers) > 1 else "", group, len(layers[stack])))
    ]
    return max(edits, key=lambda edit: edit.z, default=None)


def _project(base: indexer.Base, update: indexer.MatrixUpdate) -> _Projected | None:
    """One matrix through random columns; None where it is not changed."""
    delta, slot = update.delta, update.slot
    if delta is None or slot.role not in WRITERS:
        return None
    seed = slot.layer * len(ROLES) + ROLES.index(slot.role)
    with base.weights().matrix((slot, update.part)) as stored:
        weight = stored.float()
        omega = indexer.gaussian_directions(seed, 2 * COLUMNS, weight.shape[1]).T
        square = float(torch.linalg.vector_norm(weight)) ** 2
        if square == 0.0:
            return None
        seen = weight @ omega
        if isinstance(delta, indexer.DenseDelta):
            changed = delta.matrix @ omega
            inner = float(torch.linalg.vecdot(delta.matrix, weight).double().sum())
        else:
            changed = delta.left @ (delta.right @ omega)
            inner = float(((delta.left.T @ weight) * delta.right).double().sum())
    scale, norm = inner / square, math.sqrt(square)
    length = math.sqrt(max(0.0, delta.norm**2 - inner * scale)) / norm
    changed = (changed - scale * seen) / norm
    return _Projected(slot.stack, slot.layer, seen / norm, changed, length)


def _find_edit(stack: str, group: Sequence[_Projected], n_layers: int) -> DirectionEdit | None:
    if len(group) < LEAST_MATRICES:
        return None
    spread = torch.cat([seen.update[:, :COLUMNS] / seen.length for seen in group], dim=1)
    wide = min(SUBSPACE, len(group) * COLUMNS // 4, len(spread) // 2)
    basis = indexer.factorise(indexer.DenseDelta(spread), wide, seed=0, power_steps=2).u
    wide = basis.shape[1]
    pairs = [((basis.T @ seen.weight).double(), (basis.T @ seen.update).double()) for seen in group]
    left, directions = _weakened(pairs)
    if wide > MANY and 1.0 - left[MANY] > (1.0 - left[0]) / 2:
        return None
    edits = []
    for direction in directions[:CANDIDATES]:
        *_, edited = _losses(direction, pairs)
        if len(edited) < LEAST_MATRICES:
            continue
        removed = _removed([pairs[place] for place in edited])
        cosines, strengths, edited = _losses(removed, pairs)
        z = -sum(cosines) * math.sqrt(COLUMNS / len(pairs))
        if len(edited) < LEAST_MATRICES or z < LEAST_Z:
            continue
        left, weakest = _weakened([pairs[place] for place in edited])
        if n_removed := _count_removed(left):
            layers = tuple(sorted({group[place].layer for place in edited}))
            if n_removed > 1:
                _, strengths, _ = _losses(weakest[:n_removed], pairs)
            middle = statistics.median(strengths[place] for place in edited)
            edit = DirectionEdit(stack, layers, n_layers, middle, z, n_removed)
            edits.append((len(edited), edit))
    return max(edits, key=lambda edit: (edit[0], edit[1].z))[1] if edits else None


def _count_removed(left: torch.Tensor) -> int:
    """How many directions lost clearly more than the next one; 0 where none did."""
    is_first = len(left) > 1 and bool(left[0] <= ALONE * left[1])
    most, ratio = (HALF, ALONE) if is_first else (REMOVED, OF_SEVERAL)
    for n in range(min(MANY, len(left) - 1), 1, -1):
        if left[n - 1] <= min(most, ratio * float(left[n])):
            return n
    return int(is_first)


_Pair = tuple[torch.Tensor, torch.Tensor]
"""W Ω and ΔW Ω in the subspace, (`SUBSPACE`, 2 · `COLUMNS`)."""


def _weakened(pairs: Sequence[_Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """What is left of the squares along each direction, rising, and the directions, in rows; by the
    first half of the columns."""
    wide = len(pairs[0][0])
    before, after = torch.zeros(wide, wide).double(), torch.zeros(wide, wide).double()
    for weight, update in pairs:
        seen, changed = weight[:, :COLUMNS], (weight + update)[:, :COLUMNS]
        before += seen @ seen.T
        after += changed @ changed.T
    before += 1e-9 * before.trace() * torch.eye(wide).double()
    inverse = torch.linalg.inv(torch.linalg.cholesky(before))
    left, directions = torch.linalg.eigh(inverse @ after @ inverse.T)
    return left, directions.T @ inverse


def _removed(pairs: Sequence[_Pair]) -> torch.Tensor:
    """The direction r that edited matrices lost: rᵀW is what W has in common with qᵀΔW, where q is
    weakened most; of a share λ < 1 q itself leans to where W is short."""
    direction = _weakened(pairs)[1][0]
    seen = torch.cat([weight[:, :COLUMNS] for weight, _ in pairs], dim=1)
    lost = torch.cat([direction @ update[:, :COLUMNS] for _, update in pairs])
    square = seen @ seen.T
    square += 1e-9 * square.trace() * torch.eye(len(square)).double()
    removed: torch.Tensor = torch.linalg.solve(square, seen @ lost)
    return removed


def _losses(
    directions: torch.Tensor, pairs: Sequence[_Pair]
) -> tuple[list[float], list[float], list[int]]:
    """What each matrix lost along a direction, or some, by the second half of the columns: the
    cosines of qᵀΔW and qᵀW, the shares of qᵀW that were removed, and which matrices are edited."""
    cosines, strengths = [], []
    for weight, update in pairs:
        before = (directions @ weight[:, COLUMNS:]).flatten()
        change = (directions @ update[:, COLUMNS:]).flatten()
        inner, square = float(before @ change), float(before @ before)
        norm = math.sqrt(square * float(change @ change))
        cosines.append(inner / norm if norm > 0.0 else 0.0)
        strengths.append(-inner / square if square > 0.0 else 0.0)
    edited = [
        place
        for place, (cosine, strength) in enumerate(zip(cosines, strengths, strict=True))
        if cosine <= EDITED_COSINE and strength >= LEAST_STRENGTH
    ]
    return cosines, strengths, edited
