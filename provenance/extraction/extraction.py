"""A LoRA adapter of a full fine-tune: base + adapter is the model, up to its layers' ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from ...arrays import Float64
from ...errors import ModelError, RequestError
from ...indexer import DenseDelta, Key, LowRankDelta, MatrixUpdate, OpenUpdate, factorise
from ...results import count
from ...store import Track
from .other_tensors import compare_others
from .peft_folder import CARD, SETTINGS, WEIGHTS, PeftAdapter, new_folder

MATRIX_BYTES = 1 << 30
"""Memory for the matrices that are compared at once; one that is larger is compared alone."""

DEFAULT_RANK = 16

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


def extract_adapter(
    update: OpenUpdate,
    target: Path,
    *,
    rank: int | None = None,
    budget: int | None = None,
    dtype: str = "float32",
    replaces: bool = False,
    track: Track,
) -> dict[str, Any]:
    """Write the adapter of an open model into the folder `target`; returns what it consists of.

    Args:
        rank: Of every layer matrix that changed; none where `budget` is given.
        budget: Bytes that the folder may have; ranks are dealt out by energy.

    Raises:
        RequestError: the budget does not hold what is saved whole, or the folder is taken.
        ModelError: what is wrong with the model.
        StoreFull: the system refuses to write.

    Peak: the adapter, and `MATRIX_BYTES` of matrices or the largest one.
    """
    with new_folder(target, replaces=replaces) as partial_folder:
        adapter = PeftAdapter(update, compare_others(update))
        keys, factor_type = list(adapter.module_of), getattr(torch, dtype)
        if budget is None:
            updates = _collect(update, dict.fromkeys(keys, rank or DEFAULT_RANK), track)
            ranks = {key: len(updates[key].sigma) for key in keys if updates[key].norm > 0}
        else:
            updates, ranks = _under_budget(adapter, budget, factor_type.itemsize, track)
        if not ranks:
            if not adapter.others.changed:
                line = "every tensor equals the base's; there is nothing to extract"
                raise ModelError("no-update", line)
            # PEFT wants a target: the smallest, with factors of zeros
            ranks = {min(updates.values(), key=lambda known: sum(known.shape)).key: 1}
        factors, slots, error = _factors(adapter, updates, ranks, factor_type)
        save_file(adapter.tensors(factors), partial_folder / WEIGHTS, metadata={"format": "pt"})
        (partial_folder / SETTINGS).write_bytes(adapter.settings(ranks))
        (partial_folder / CARD).write_bytes(adapter.card(error))
        n_bytes = sum(path.stat().st_size for path in partial_folder.iterdir())
    return {
        "model": update.member.record.id,
        "base": update.base.name,
        "path": str(target),
        "bytes": n_bytes,
        "error": error,
        "dtype": dtype,
        "task": adapter.task[0],
        "saved": adapter.saved,
        "biases": adapter.bias_of(ranks),
        "notes": adapter.notes,
        "slots": slots,
    }


def _under_budget(
    adapter: PeftAdapter, budget: int, value_bytes: int, track: Track
) -> tuple[dict[Key, ExtractedUpdate], dict[Key, int]]:
    """The updates of all modules, and the ranks that the budget holds of each."""
    shapes = {p.key: p.shape for p in adapter.update.placed.placements}
    costs = {key: value_bytes * sum(shapes[key]) for key in adapter.module_of}  # of a rank
    fixed = adapter.fixed_bytes()
    left, cheapest = budget - fixed, min(costs.values())
    if left < cheapest:
        raise RequestError(
            f"--bytes {budget}: {fixed + cheapest} are needed for one rank beside what is saved "
            f"whole, {count(len(adapter.saved), 'module')} such as embeddings, norms and heads"
        )
    limits = {key: min(*shapes[key], left // cost) for key, cost in costs.items()}
    even = left // sum(costs.values())
    # one also where it does not fit: the error of all counts what is left out
    wanted = {key: max(1, min(limit, 2 * even + 8)) for key, limit in limits.items()}
    updates: dict[Key, ExtractedUpdate] = {}
    computed: dict[Key, int] = {}
    while wanted:
        for key in wanted:
            updates.pop(key, None)  # the factors that are computed anew need its memory
        updates |= _collect(adapter.update, wanted, track)
        computed |= wanted
        ranks = deal_out([updates[key] for key in costs], left, value_bytes)
        # the modules that were given every rank that was computed of them
        full = [key for key, rank in ranks.items() if rank == computed[key] < limits[key]]
        wanted = {key: min(limits[key], 2 * computed[key]) for key in full}
    return updates, {key: rank for key, rank in ranks.items() if rank}


def _collect(
    update: OpenUpdate, ranks: Mapping[Key, int], track: Track
) -> dict[Key, ExtractedUpdate]:
    """The updates of modules, with so many ranks of each; a `ModelError` for changed experts."""
    ticks = iter(track(range(len(ranks)), "layer matrices", total=len(ranks)))
    updates: dict[Key, ExtractedUpdate] = {}

    def take(measured: ExtractedUpdate) -> None:
        updates[measured.key] = measured
        next(ticks, None)

    update.collect(lambda matrix: _measure(matrix, ranks), take, set(ranks))
    for _ in ticks:
        pass
    for known in updates.values():
        if known.norm > 0 and "expert." in known.key[1]:
            tensor = update.placed.by_key[known.key].tensor
            line = f"{tensor!r} changed: experts of a mixture are no modules that"
            line = f"{line} LoRA of PEFT can target in transformers 5"
            raise ModelError("unknown-targets", line)
    return updates


def _measure(update: MatrixUpdate, ranks: Mapping[Key, int]) -> ExtractedUpdate:
    key, delta = (update.slot, update.part), update.delta
    if not isinstance(delta, DenseDelta):
        return ExtractedUpdate(key=key, shape=update.shape)
    rank = min(ranks[key], *update.shape)
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


def _factors(
    adapter: PeftAdapter,
    updates: Mapping[Key, ExtractedUpdate],
    ranks: Mapping[Key, int],
    dtype: torch.dtype,
) -> tuple[dict[Key, tuple[torch.Tensor, torch.Tensor]], list[dict[str, Any]], float]:
    """A and B of every target, rank and relative error of every module that changed, and the error
    of all of them.

    |ΔW − UΣVᵀ|² with the first of the factors is a sum of squares: UᵀΔW = ΣVᵀ, so the rest and
    every term are orthogonal.
    """
    factors, slots, left, whole = {}, [], 0.0, 0.0
    for key, module in adapter.module_of.items():
        known, rank, rounding = updates[key], ranks.get(key, 0), 0.0
        if rank:
            a, b, rounding = known.factors(rank, dtype)
            factors[key] = a, b
        if known.norm == 0:
            continue
        energy = known.rest**2 + float(np.square(known.sigma[rank:]).sum()) + rounding
        left, whole = left + energy, whole + known.norm**2
        error = math.sqrt(energy) / known.norm
        slots.append({"slot": _label(key), "module": module, "rank": rank, "error": error})
    return factors, slots, math.sqrt(left / whole) if whole else 0.0


def _label(key: Key) -> str:
    slot, part = key
    if "+" in part:
        return f"{slot.stack}.{slot.layer}.{part}"
    return f"{slot}.{part}" if part else str(slot)


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?b?|b)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_bytes(text: str | int) -> int:
    """The bytes that `500000`, `20MB` or `1.5GiB` says, or a `RequestError`."""
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise RequestError(f"bytes {text!r}: expected a size such as 20MB")
    unit = (match[2] or "").lower()
    return int(float(match[1]) * _UNITS[unit.removesuffix("b") if len(unit) > 1 else unit])
