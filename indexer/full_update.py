"""A full checkpoint's update: every layer matrix against the base's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..errors import ModelError
from .architecture import PlacedModel, Placement, place, require_same_layers
from .base import BaseWeights
from .checkpoint import Checkpoint, quantization
from .delta import DenseDelta
from .family import Member
from .fingerprint.factors import frobenius
from .fingerprint.rounding import RELATIVE_ROUNDING, rounding_norm, update_against
from .gate import BaseGate, Norms
from .job import Job
from .parallel import ordered
from .update import Measured, UpdateCollector


@dataclass(frozen=True, slots=True)
class _Task:
    """One tensor as it was read, and what is cut from it; `sampled` for the base gate."""

    tensor: torch.Tensor
    placements: Sequence[tuple[Placement, bool]]


@dataclass(frozen=True, slots=True)
class _Compared:
    """One matrix: its measured update and, if sampled, |child|, |W|, |ΔW|."""

    measured: Measured
    norms: Norms | None


def collect_full(
    member: Member, checkpoint: Checkpoint, job: Job, collector: UpdateCollector
) -> None:
    """Stream a full checkpoint, subtract the base, hand every update to the collector.

    Raises:
        ModelError: not this base's fine-tune, or not readable; BaseError: no base weights.
    """
    scheme = quantization(member.config, checkpoint.tensors.values(), ())
    if scheme:
        raise ModelError("quantized", f"weights are stored as {scheme}")
    placed = place({n: t.shape for n, t in checkpoint.tensors.items()}, member.config)
    placed.require_known()
    base = job.base.weights()
    require_same_layers(placed, base.placed)
    gate = BaseGate(job.base.name)

    def compare(task: _Task) -> list[_Compared]:
        job.stop_if_cancelled()
        return [
            _compare(placement, task.tensor, base, collector, sampled=sampled)
            for placement, sampled in task.placements
        ]

    for compared in ordered(compare, _tasks(placed, checkpoint, gate), job.threads):
        for one in compared:
            if one.norms is not None:
                gate.add(one.norms)
            collector.take(one.measured)
    gate.check()


def _tasks(placed: PlacedModel, checkpoint: Checkpoint, gate: BaseGate) -> Iterator[_Task]:
    wanted: Mapping[str, list[Placement]] = defaultdict(list)
    for placement in placed.placements:
        wanted[placement.tensor].append(placement)
    for name, tensor in checkpoint.stream(wanted):
        yield _Task(tensor, [(p, gate.samples_next()) for p in wanted[name]])


def _compare(
    placement: Placement,
    tensor: torch.Tensor,
    base: BaseWeights,
    collector: UpdateCollector,
    *,
    sampled: bool,
) -> _Compared:
    """One matrix against the base's."""
    key = (placement.slot, placement.part)
    child = placement.cut(tensor)
    if child.dtype not in RELATIVE_ROUNDING:
        raise ModelError("unsupported-dtype", f"tensor {placement.tensor!r} is {child.dtype}")
    weight_norm = base.norm(key)
    update = update_against(child, base.matrix(key))
    update_norm = frobenius(update)
    if not math.isfinite(update_norm):
        raise ModelError("non-finite", f"tensor {placement.tensor!r} holds NaN or infinity")
    measured = collector.measure(
        placement.slot,
        placement.part,
        DenseDelta(update) if update_norm > 0 else None,
        shape=placement.shape,
        noise_norm=rounding_norm(weight_norm, child.dtype),
        weight_norm=weight_norm,
    )
    norms = Norms(child=frobenius(child), base=weight_norm, update=update_norm) if sampled else None
    return _Compared(measured, norms)
