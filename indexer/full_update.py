"""A full checkpoint's update: every layer matrix against the base's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ModelError
from .architecture import PlacedModel, Placement, place, require_same_layers
from .base import BaseWeights
from .budget import read_parts
from .checkpoint import Checkpoint, quantization
from .delta import Scratch, update_against
from .family import Member
from .fingerprint.factors import frobenius
from .fingerprint.rounding import RELATIVE_ROUNDING, rounding_norm
from .gate import BaseGate, Norms
from .job import Job
from .parallel import ordered
from .update import Collector, MatrixUpdate


@dataclass(frozen=True, slots=True)
class _Task:
    """What is compared at once: one tensor's placements, or one matrix's part.

    Attributes:
        matrix: What was read already of the child: the whole tensor, or the part.
        sampled: For each placement, whether it counts for the base gate.
    """

    placements: Sequence[Placement]
    sampled: Sequence[bool]
    matrix: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class _Compared:
    """One matrix: what the collector measured and, if sampled, |child|, |W|, |ΔW|."""

    measured: Any
    norms: Norms | None


def collect_full(member: Member, checkpoint: Checkpoint, job: Job, collector: Collector) -> None:
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
        with job.scratch.borrow() as scratch:
            worker = _Worker(base, collector, scratch, job)
            return worker.compare(task, checkpoint)

    whole = job.parts is None
    tasks = (
        _whole_tasks(placed, checkpoint, gate)
        if whole
        else _part_tasks(placed, checkpoint, gate, job)
    )
    # tasks whose tensor is yet to be seen in its file weigh nothing
    ahead = 4 * job.threads if whole and checkpoint.concurrent else 0
    for compared in ordered(compare, tasks, job.threads, ahead=ahead):
        for one in compared:
            if one.norms is not None:
                gate.add(one.norms)
            collector.take(one.measured)
    gate.check()


def _whole_tasks(placed: PlacedModel, checkpoint: Checkpoint, gate: BaseGate) -> Iterator[_Task]:
    """Tensor by tensor; where several threads may read, they do it themselves."""
    wanted: Mapping[str, list[Placement]] = defaultdict(list)
    for placement in placed.placements:
        wanted[placement.tensor].append(placement)
    if checkpoint.concurrent:
        refs = sorted(
            (checkpoint.tensors[name] for name in wanted), key=lambda r: (r.file, r.start)
        )
        read: Iterable[tuple[str, torch.Tensor | None]] = ((ref.name, None) for ref in refs)
    else:
        read = checkpoint.stream(wanted)
    for name, tensor in read:
        yield _Task(wanted[name], [gate.samples_next() for _ in wanted[name]], tensor)


def _part_tasks(
    placed: PlacedModel, checkpoint: Checkpoint, gate: BaseGate, job: Job
) -> Iterator[_Task]:
    """Matrix by matrix, the rows that the budget reads."""
    assert job.parts is not None
    for placement, part in read_parts(checkpoint, placed.placements, job.parts.parts):
        yield _Task([placement], [gate.samples_next()], part)


@dataclass(frozen=True, slots=True)
class _Worker:
    """What one thread compares matrices with."""

    base: BaseWeights
    collector: Collector
    scratch: Scratch
    job: Job

    def compare(self, task: _Task, checkpoint: Checkpoint) -> list[_Compared]:
        """Every matrix of a task against the base's."""
        if self.job.parts is not None:
            (placement,), (sampled,) = task.placements, task.sampled
            assert task.matrix is not None
            weight, norm = self.job.parts.matrix((placement.slot, placement.part))
            return [self._compare(placement, task.matrix, weight, norm, sampled=sampled)]
        if task.matrix is not None:
            return self._compare_all(task, task.matrix)
        with checkpoint.view(task.placements[0].tensor) as tensor:
            return self._compare_all(task, tensor)

    def _compare_all(self, task: _Task, tensor: torch.Tensor) -> list[_Compared]:
        compared = []
        for placement, sampled in zip(task.placements, task.sampled, strict=True):
            key = (placement.slot, placement.part)
            child = placement.cut(tensor)
            with self.base.matrix(key) as weight:
                norm = self.base.norm(key, weight)
                compared.append(self._compare(placement, child, weight, norm, sampled=sampled))
        return compared

    def _compare(
        self,
        placement: Placement,
        child: torch.Tensor,
        weight: torch.Tensor,
        weight_norm: float,
        *,
        sampled: bool,
    ) -> _Compared:
        if child.dtype not in RELATIVE_ROUNDING:
            raise ModelError("unsupported-dtype", f"tensor {placement.tensor!r} is {child.dtype}")
        update = update_against(child, weight, self.scratch, self.job.device)
        if not math.isfinite(update.norm):
            raise ModelError("non-finite", f"tensor {placement.tensor!r} holds NaN or infinity")
        measured = self.collector.measure(
            MatrixUpdate(
                slot=placement.slot,
                part=placement.part,
                delta=update if update.norm > 0 else None,
                shape=placement.shape,
                noise_norm=rounding_norm(weight_norm, child.dtype),
                weight_norm=weight_norm,
                cut_axis=self._cut_axis(placement),
            )
        )
        if not sampled:
            return _Compared(measured, None)
        norms = Norms(child=frobenius(child), base=weight_norm, update=update.norm)
        return _Compared(measured, norms)

    def _cut_axis(self, placement: Placement) -> int | None:
        if self.job.parts is None:
            return None
        return self.job.parts.parts[placement.slot, placement.part].axis
