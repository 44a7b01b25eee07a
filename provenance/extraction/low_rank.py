"""Low-rank factors of every module's ΔW, and ranks dealt out under a budget of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ...arrays import Float64
from ...indexer import DenseDelta, Key, LowRankDelta, MatrixUpdate, factorise

SEED, POWER_STEPS, MARGIN = 0, 2, 8
"""Of the randomised SVD, which computes half as many ranks more than are kept, and `MARGIN`. One
power step alone left 2 % (rank 16) to 4 % (rank 64) more of a real fine-tune than the exact SVD,
this .2 % (docs/extract-adapter.md)."""

BLOCK_VALUES = 1 << 22
"""Entries of ΔW less its factors that are held at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedUpdate:
    """What is known of one module's ΔW.

    Attributes:
        shape: (out, in).
        norm: |ΔW|, Frobenius; 0 where it is an exact zero.
        sigma: The leading singular values, descending.
        rest: |ΔW − UΣVᵀ| with all of `sigma`, measured on the difference itself.
        rows: Of each rank U√Σ and √ΣVᵀ side by side, (rank, out + in).
    """

    key: Key
    shape: tuple[int, int]
    norm: float = 0.0
    sigma: Float64[np.ndarray, " rank"] = field(default_factory=lambda: np.zeros(0), compare=False)
    rest: float = 0.0
    rows: torch.Tensor = field(default_factory=lambda: torch.zeros(0), compare=False)

    def energy_left(self, rank: int) -> float:
        """|ΔW − UΣVᵀ|² with the first `rank` of the factors. A sum of squares: UᵀΔW = ΣVᵀ, so the
        rest and every term are orthogonal."""
        return self.rest**2 + float(np.square(self.sigma[rank:]).sum())

    def factors(self, rank: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, float]:
        """A (rank, in) and B (out, rank) as they are written, and |rounding|² of their product;
        ranks that ΔW does not have are zeros."""
        rows = torch.zeros(rank, sum(self.shape))
        if len(self.rows):
            rows[: len(self.sigma)] = self.rows[:rank]
        left, right = rows[:, : self.shape[0]], rows[:, self.shape[0] :]
        a = right.to(dtype).clone()
        b = left.T.to(dtype).clone(memory_format=torch.contiguous_format)
        if dtype == torch.float32:
            return a, b, 0.0
        rounding = LowRankDelta(
            torch.cat([b.float(), left.T], dim=1), torch.cat([a.float(), -right])
        )
        return a, b, rounding.norm**2


@dataclass(slots=True)
class FactorCollector:
    """Collects the factors of matrices. `ranks`: how many are wanted of each; `ticks`: one is taken
    with every matrix, to show progress."""

    ranks: Mapping[Key, int] = field(default_factory=dict)
    ticks: Iterator[object] = field(default_factory=lambda: iter(()))
    updates: dict[Key, ExtractedUpdate] = field(default_factory=dict)

    def measure(self, update: MatrixUpdate) -> ExtractedUpdate:
        key, delta = (update.slot, update.part), update.delta
        if not isinstance(delta, DenseDelta):
            return ExtractedUpdate(key=key, shape=update.shape)
        rank = min(self.ranks[key], *update.shape)
        computed = rank + rank // 2 + MARGIN
        # power steps lose directions below 1e-3 of σ₁, and all directions need none
        steps = POWER_STEPS if computed < min(delta.shape) else 0
        factors = factorise(delta, computed, seed=SEED, power_steps=steps).first(rank)
        root = factors.sigma.sqrt()
        rows = torch.cat([factors.u * root, factors.v * root]).T.contiguous()
        return ExtractedUpdate(
            key=key,
            shape=update.shape,
            norm=delta.norm,
            sigma=factors.sigma.double().numpy(),
            rest=_left_out(delta.matrix, rows),
            rows=rows,
        )

    def take(self, measured: ExtractedUpdate) -> None:
        self.updates[measured.key] = measured
        next(self.ticks, None)


def _left_out(matrix: torch.Tensor, rows: torch.Tensor) -> float:
    """|ΔW − BA|, Frobenius, some rows of ΔW at a time."""
    n_out = len(matrix)
    left, right = rows[:, :n_out].T, rows[:, n_out:]
    if matrix.stride(-1) != 1:
        matrix, left, right = matrix.T, right.T, left.T
    height = max(1, BLOCK_VALUES // max(1, matrix.shape[1]))
    norms = []
    for start in range(0, len(matrix), height):
        part = slice(start, start + height)
        difference = torch.addmm(matrix[part], left[part], right, alpha=-1)
        norms.append(float(torch.linalg.vector_norm(difference)))
    return math.hypot(*norms)


def deal_out(updates: Sequence[ExtractedUpdate], budget: int, value_bytes: int) -> dict[Key, int]:
    """Ranks by greedy energy: again and again the rank with the largest σ²/(out + in) that still
    fits the budget of bytes. A module whose next rank does not fit gets no more."""
    gains = [np.square(update.sigma) / sum(update.shape) for update in updates]
    owners = np.repeat(np.arange(len(updates)), [len(gain) for gain in gains])
    order = np.argsort(-np.concatenate(gains), kind="stable") if gains else np.zeros(0, np.int64)
    ranks = dict.fromkeys((update.key for update in updates), 0)
    full = set()
    for owner in owners[order].tolist():
        update = updates[owner]
        cost = value_bytes * sum(update.shape)
        if owner in full or cost > budget:
            full.add(owner)
            continue
        ranks[update.key] += 1
        budget -= cost
    return ranks
