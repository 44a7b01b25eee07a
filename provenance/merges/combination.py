"""Which few updates add up to one: a sparse combination, in linear sketches.

Orthogonal least squares (Chen, Billings, Luo 1989): each step takes the update that, made
orthogonal to those taken before, explains most of the rest. Siblings, whose updates have a cosine
of .5, mislead orthogonal matching pursuit, which compares the rest with updates as they are. A step
back follows: updates whose weight is noise are dropped, and each is exchanged for any other that
explains more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.stats import chi2

from ...arrays import Bool, Float32, Float64

MOST_PARENTS = 8
"""Updates of a combination; pursuit goes on to half as many more, before it steps back."""

NOISE_RATE = 3e-7
"""Rate at which one update's weight passes for more than noise, where it is none: z = 5. Of 10,000
updates that could be taken by mistake, .3 % of combinations have one."""

LEAST_SHARE = 0.01
"""|w||x| / |y| below which an update is no part of a combination."""

LEAST_OWN = 1e-6
"""Share of |x|² that is not in the span of others, below which x adds nothing to them."""

ROUNDS = 6

Vector = Float64[np.ndarray, "blocks features"]
Products = Float64[np.ndarray, "models blocks"]
Weights = Float64[np.ndarray, "parents blocks"]
Allowed = Bool[np.ndarray, " models"]


@dataclass(frozen=True, eq=False)
class Space:
    """Updates in which inner products estimate ⟨ΔW, ΔW'⟩, cut into blocks that have weights of
    their own. `dims`: independent numbers of a block, which decide its noise."""

    updates: Float32[np.ndarray, "models blocks features"]
    dims: float
    _of_rows: dict[int, Products] = field(default_factory=dict)

    @cached_property
    def norms(self) -> Products:
        """|x|² of each block."""
        return np.asarray(np.einsum("mbf,mbf->mb", self.updates, self.updates, dtype=np.float64))

    def products(self, vectors: Vector) -> Products:
        """Of every update with one vector a block. Peak: no copy of the updates."""
        short = vectors.astype(np.float32)
        blocks = [self.updates[:, b] @ short[b] for b in range(len(short))]
        return np.stack(blocks, axis=1).astype(np.float64)

    def products_of(self, row: int) -> Products:
        """Of every update with one of them; each is computed once."""
        if row not in self._of_rows:
            self._of_rows[row] = self.products(self.updates[row].astype(np.float64))
        return self._of_rows[row]


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """y ≈ Σ w x. `rows`: of the updates, by falling |w||x|; `energy`: |y − Σ w x|²."""

    rows: tuple[int, ...]
    weights: Weights
    energy: float


@dataclass(eq=False)
class Pursuit:
    """The search for one update's combination. `allowed`: rows that may be taken; `signed`:
    weights may be negative; `floor`: |rest|² that is only rounding."""

    space: Space
    target: Vector
    allowed: Allowed
    signed: bool
    floor: float

    @cached_property
    def _fits(self) -> Products:
        return self.space.products(self.target)

    def combination(self) -> Combination:
        chosen = self._pruned(self._extended([], MOST_PARENTS + MOST_PARENTS // 2))
        for _ in range(ROUNDS):
            before = sorted(chosen)
            chosen = self._pruned(self._extended(self._exchanged(chosen), MOST_PARENTS))
            if sorted(chosen) == before:
                break
        return self.fit(chosen)

    def fit(self, rows: Sequence[int]) -> Combination:
        """Least squares by block, in float64; unless `signed`, those whose weights over all blocks
        are negative are left out."""
        rows = list(rows)
        while True:
            weights, energy = np.zeros((len(rows), len(self.target))), 0.0
            for block, wanted in enumerate(self.target):
                parts = self.space.updates[rows, block].astype(np.float64).T
                weights[:, block] = np.linalg.lstsq(parts, wanted, rcond=1e-9)[0]
                energy += float(((wanted - parts @ weights[:, block]) ** 2).sum())
            lengths = np.sqrt(self.space.norms[rows])
            sums = (weights * lengths).sum(1)
            if self.signed or not (sums < 0).any():
                break
            rows.pop(int(sums.argmin()))
        order = np.argsort(-np.abs(weights * lengths).sum(1), kind="stable")
        return Combination(tuple(rows[i] for i in order), weights[order], energy)

    def _remainder(self, rows: Sequence[int]) -> tuple[Vector, Products, Products]:
        """What a set leaves: of the target, and of every update (squared norms, and products with
        the target's rest)."""
        rest, own, fits = self.target.copy(), self.space.norms.copy(), self._fits.copy()
        for block in range(len(self.target)) if rows else ():
            lengths = np.sqrt(np.maximum(self.space.norms[rows, block], 1e-300))
            parts = self.space.updates[rows, block].astype(np.float64) / lengths[:, None]
            inverse = np.linalg.pinv(parts @ parts.T, rcond=LEAST_OWN, hermitian=True)
            shares = inverse @ (parts @ self.target[block])
            products = [self.space.products_of(row)[:, block] for row in rows]
            theirs = np.stack(products, axis=1) / lengths
            rest[block] -= shares @ parts
            own[:, block] -= ((theirs @ inverse) * theirs).sum(1)
            fits[:, block] -= theirs @ shares
        return rest, own, fits

    def _best(self, own: Products, fits: Products, excluded: Sequence[int]) -> tuple[int, float]:
        """The update that explains most of the rest, and how much of |y|²."""
        usable = own > LEAST_OWN * self.space.norms
        shares = fits**2 / np.where(usable, own, 1.0)
        gains: Float64[np.ndarray, " models"] = np.where(usable, shares, 0.0).sum(1)
        if not self.signed:
            gains[fits.sum(1) <= 0] = 0.0
        gains[~self.allowed] = 0.0
        gains[list(excluded)] = 0.0
        best = int(gains.argmax())
        return best, float(gains[best])

    def _extended(self, chosen: Sequence[int], most: int) -> list[int]:
        """These and the next best, until what is left is rounding, or no more than noise."""
        chosen = list(chosen)
        while len(chosen) < most:
            rest, own, fits = self._remainder(chosen)
            left = float((rest**2).sum())
            row, gain = self._best(own, fits, chosen)
            if left <= self.floor or not self._counts(gain, left - gain):
                break
            chosen.append(row)
        return chosen

    def _counts(self, gain: float, left: float) -> bool:
        """Whether a gain is more than noise gives, which is spread evenly over `dims` numbers."""
        n_blocks = len(self.target)
        level = max(left, 0.0) / (self.space.dims * n_blocks)
        return gain > max(level, 1e-300) * float(chi2.isf(NOISE_RATE, n_blocks))

    def _pruned(self, chosen: Sequence[int]) -> list[int]:
        """Without those whose absence leaves rounding, or no more than noise besides."""
        fit = self.fit(chosen)
        length = float((self.target**2).sum()) ** 0.5
        while fit.rows:
            sizes = np.sqrt((fit.weights**2 * self.space.norms[list(fit.rows)]).sum(1)) / length
            losses = self._losses(fit)
            least = int(losses.argmin())
            loss = float(losses[least])
            is_part = sizes[least] >= LEAST_SHARE and self._counts(loss, fit.energy)
            if is_part and fit.energy + loss > self.floor:
                break
            fit = self.fit([row for row in fit.rows if row != fit.rows[least]])
        return list(fit.rows)

    def _losses(self, fit: Combination) -> Float64[np.ndarray, " parents"]:
        """How much more is left without each: w² over its diagonal of the inverse Gram matrix."""
        losses = np.zeros(len(fit.rows))
        for block in range(len(self.target)):
            parts = self.space.updates[list(fit.rows), block].astype(np.float64)
            inverse = np.diag(np.linalg.pinv(parts @ parts.T, rcond=1e-12, hermitian=True))
            own = np.where(inverse > 0, inverse, 1.0)
            losses += np.where(inverse > 0, fit.weights[:, block] ** 2 / own, 0.0)
        return losses

    def _exchanged(self, chosen: Sequence[int]) -> list[int]:
        """Each in turn exchanged for another that explains more beside the rest."""
        fit = self.fit(chosen)
        for row in reversed(fit.rows):
            if fit.energy <= self.floor or row not in fit.rows:
                continue
            others = [other for other in fit.rows if other != row]
            _, own, fits = self._remainder(others)
            best, _ = self._best(own, fits, others)
            other = self.fit([*others, best])
            if len(other.rows) == len(fit.rows) and other.energy < fit.energy * (1 - 1e-6):
                fit = other
        return list(fit.rows)
