"""A config file's numbers on rows of every matrix: what the file gives, and how near that comes.

Formulas: `generalized_task_arithmetic.py` and `sparsify.py` of mergekit 0.1.5, over the updates of
the parents. Weights are those of its config files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from ...arrays import Bool, Float64
from ...indexer import Key

Method = Literal["linear", "slerp", "task_arithmetic", "ties", "dare_linear", "dare_ties"]

Matrices = Mapping[Key, torch.Tensor]

Entries = Float64[np.ndarray, " entries"]
PerParent = Float64[np.ndarray, " parents"]
PerPiece = Float64[np.ndarray, "parents pieces"]

Place = tuple[int, bool]
"""A layer, and whether of its attention: what a config file gives weights of their own."""

STEPS = {torch.float32: 4.0, torch.float64: 4.0, torch.float16: 1.01, torch.bfloat16: 1.01}
"""Steps of the storage type within which an entry counts as reproduced: one rounding, and in
float32 the order of additions besides."""

PROVEN = 0.95
"""Share of entries that are reproduced, beyond those that a wrong recipe reproduces, from which a
recipe is proven; the rest are ties of rounding and of magnitude."""

LEAST_ERROR = 1e-3
"""|file − merge| / |ΔW| up to which a file gives a merge again, beside `ROUNDINGS` times the energy
of one rounding: few entries that are far off are no rounding."""

ROUNDINGS = 0.5

COARSE_ERROR = 1e-2
"""The same of arithmetic in bfloat16 or float16, which rounds every product."""

TRIM_ERROR = 0.06
"""The limit of a method that trims: the threshold of a whole matrix is not in its rows."""

MOST_SEARCHED = 0.6
"""The same of the best of a few TIES, from which its numbers are not searched."""

SEARCHED = 60_000
"""Entries by which the numbers of TIES are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One of mergekit's generalised task arithmetic. `elects`: entries against the majority's sign
    are left out; `normalises`: divides by the weights that count."""

    elects: bool = False
    normalises: bool = False


TASK_ARITHMETIC, TIES = Formula(), Formula(elects=True, normalises=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """What the rows say of a merge.

    Attributes:
        method: None where no file gives the merge: then `share` is that of sums that do.
        share: Of entries that the file gives, 0…1; of draws, of entries that are sums of kept ones.
        chance: The same of a recipe that is wrong: parents' entries shifted by one.
        weights: As a config file has them; means, where they vary.
        by_place: Where weights vary: of each parent.
        densities: One a parent; empty without.
        normalises: As the config's `normalize`; `scale`: its `lambda`.
        arithmetic: The config's `dtype`.
        is_drawn: Entries were drawn at random: no file gives them again.
        error: |file − merge| / |ΔW|; `rounding`: of one rounding of the merge.
        entries: That were compared.
    """

    method: Method | None
    weights: tuple[float, ...]
    share: float
    chance: float
    densities: tuple[float, ...] = ()
    normalises: bool = False
    scale: float = 1.0
    by_place: Mapping[Place, tuple[float, ...]] = field(default_factory=dict)
    arithmetic: torch.dtype = torch.float32
    is_drawn: bool = False
    error: float = 0.0
    rounding: float = 0.0
    entries: int = 0

    @property
    def explains(self) -> bool:
        """Whether nothing is missing."""
        is_fine = torch.finfo(self.arithmetic).eps < 1e-6 and self.rounding < LEAST_ERROR
        least, rounded = LEAST_ERROR if is_fine else COARSE_ERROR, ROUNDINGS * self.rounding**2
        limit = TRIM_ERROR**2 if self.densities else least**2 + rounded
        is_close = self.error**2 <= limit
        return is_close and self.share - self.chance >= PROVEN * (1 - self.chance)

    @property
    def is_reproduced(self) -> bool:
        """Whether the file gives the merge again."""
        return self.explains and self.method is not None and not self.is_drawn


@dataclass(slots=True, eq=False)
class MergeRows:
    """Entries of all matrices side by side, in the file's arithmetic. `wanted`: ΔW of the merge;
    `parts`: of its parents; `slack`: how far an entry may be off; `step`: of the storage type, both
    absolute; `places`: of each matrix; where a file gives one weight to all, one place."""

    pieces: list[slice]
    base: Entries
    wanted: Entries
    parts: Float64[np.ndarray, "parents entries"]
    slack: Entries
    step: Entries
    stored: torch.dtype
    arithmetic: torch.dtype
    places: list[Place]

    @classmethod
    def of(
        cls,
        base: Matrices,
        merged: Matrices,
        parents: Sequence[Matrices],
        arithmetic: torch.dtype = torch.float64,
        places: Mapping[Key, Place] | None = None,
    ) -> MergeRows | None:
        """Of the matrices that any of the models changes."""
        models = (merged, *parents)
        keys = [
            key
            for key in sorted(base, key=str)
            if not all(torch.equal(model[key].to(base[key].dtype), base[key]) for model in models)
        ]
        if not keys:
            return None
        ends = np.cumsum([0, *(base[key].numel() for key in keys)])

        def flat(model: Matrices, dtype: torch.dtype) -> Entries:
            return np.concatenate([model[k].to(dtype).double().flatten().numpy() for k in keys])

        own, result = flat(base, arithmetic), flat(merged, torch.float64)
        stored = np.stack([flat(model, arithmetic) for model in parents])
        dtype = merged[keys[0]].dtype
        sizes = np.maximum(np.abs(np.vstack([own, result, stored])).max(0), 1e-30)
        eps = torch.finfo(dtype).eps
        return cls(
            pieces=[slice(*pair) for pair in pairwise(ends.tolist())],
            base=own,
            wanted=result - own,
            parts=stored - own,
            slack=STEPS[dtype] * eps * sizes,
            step=eps * 2.0 ** np.floor(np.log2(np.maximum(np.abs(result), 1e-30))),
            stored=dtype,
            arithmetic=arithmetic,
            places=[places[key] if places else (0, False) for key in keys],
        )

    @property
    def is_fine(self) -> bool:
        return torch.finfo(self.stored).eps < 1e-6

    def shifted(self) -> MergeRows:
        """The same with parents' entries that belong to their neighbours."""
        return replace(self, parts=np.roll(self.parts, 1, axis=1))

    def thinned(self) -> MergeRows:
        """Every so many entries of each matrix."""
        every = max(1, len(self.wanted) // SEARCHED)
        chosen = np.concatenate([np.arange(p.start, p.stop, every) for p in self.pieces])
        ends = np.cumsum([0, *(len(range(p.start, p.stop, every)) for p in self.pieces)])
        names = ("base", "wanted", "slack", "step")
        arrays = {name: getattr(self, name)[chosen] for name in names}
        pieces = [slice(*pair) for pair in pairwise(ends.tolist())]
        return replace(self, pieces=pieces, parts=self.parts[:, chosen], **arrays)

    def share(self, made: Entries) -> float:
        return float((np.abs(made - self.wanted) <= self.slack).mean())

    def error(self, made: Entries) -> float:
        length = max(float(np.linalg.norm(self.wanted)), 1e-300)
        return float(np.linalg.norm(made - self.wanted)) / length

    def rounding(self) -> float:
        length = max(float(np.linalg.norm(self.wanted)), 1e-300)
        return float(np.linalg.norm(self.step)) / 12**0.5 / length

    def spread(self, by_piece: PerPiece) -> Float64[np.ndarray, "parents entries"]:
        return np.repeat(by_piece, [p.stop - p.start for p in self.pieces], axis=1)

    def kept_as(self, model: torch.Tensor) -> Entries:
        """ΔW of a model once it is stored."""
        return np.asarray(model.to(self.stored).double().numpy() - self.base)


Make = Callable[[MergeRows], Entries]


def evaluated(
    rows: MergeRows, make: Make, method: Method | None, weights: Sequence[float], **numbers: object
) -> Reconstruction:
    """A recipe with what it gives; `make` takes the rows, or those of a wrong recipe."""
    made, wrong = make(rows), rows.shifted()
    return Reconstruction(
        method=method,
        weights=tuple(float(weight) for weight in weights),
        share=rows.share(made),
        chance=wrong.share(make(wrong)),
        error=rows.error(made),
        rounding=rows.rounding(),
        arithmetic=rows.arithmetic,
        entries=len(rows.wanted),
        **numbers,  # type: ignore[arg-type]
    )


def combined(
    rows: MergeRows,
    weights: PerPiece,
    formula: Formula,
    scale: float = 1.0,
    masks: Bool[np.ndarray, "parents entries"] | None = None,
) -> Entries:
    """As mergekit's `generalized_task_arithmetic.py`, each step in the file's arithmetic."""
    base = torch.from_numpy(rows.base).to(rows.arithmetic)
    parts = torch.from_numpy(rows.parts + rows.base).to(rows.arithmetic) - base
    if masks is not None:
        parts = parts * torch.from_numpy(masks)
    own = torch.from_numpy(rows.spread(weights)).to(rows.arithmetic)
    merged = combine(parts, own, formula)
    return rows.kept_as(base + (merged * scale if scale != 1 else merged))


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
