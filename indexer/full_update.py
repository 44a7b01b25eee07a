"""A full checkpoint's update: every layer matrix against the base's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

import torch

from ..errors import ModelError
from .architecture import PlacedModel, Placement, require_same_layers
from .base import place_checkpoint
from .budget import read_parts
from .checkpoint import Checkpoint
from .delta import RELATIVE_ROUNDING, Scratch, rounding_norm, update_against
from .family import Member
from .fingerprint.factors import frobenius
from .gate import BaseGate, Norms
from .job import Job
from .parallel import ordered
from .update import Collector, MatrixUpdate, Measurement


def collect_full(
    member: Member, checkpoint: Checkpoint, job: Job, collector: Collector[Measurement]
) -> None:
    """Stream a full checkpoint, subtract the base, pass every update to the collector."""
    placed = place_checkpoint(checkpoint, member.config)
    require_same_layers(placed, job.base.weights().placed)
    comparison = _Comparison(placed, checkpoint, job, collector, BaseGate(job.base.name))
    # tasks whose tensor is yet to be seen in its file weigh nothing
    ahead = 4 * job.threads if job.parts is None and checkpoint.concurrent else 0
    for compared in ordered(comparison.compare, comparison.tasks(), job.threads, ahead=ahead):
        for matrix in compared:
            if matrix.norms is not None:
                comparison.gate.add(matrix.norms)
            collector.take(matrix.measured)
    comparison.gate.check()


@dataclass(frozen=True, slots=True)
class _Task:
    """What is compared at once: one tensor's placements, or one matrix's part.

    Attributes:
        sampled: For each placement, whether it counts for the base gate.
        tensor: What was read already of the child: the whole tensor, or the part.
    """

    placements: Sequence[Placement]
    sampled: Sequence[bool]
    tensor: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class _Compared(Generic[Measurement]):
    """One matrix: what the collector measured and, if sampled, |child|, |W|, |ΔW|."""

    measured: Measurement
    norms: Norms | None


@dataclass(frozen=True, slots=True)
class _Comparison(Generic[Measurement]):
    """One checkpoint against its base, matrix by matrix; `compare` runs in any thread."""

    placed: PlacedModel
    checkpoint: Checkpoint
    job: Job
    collector: Collector[Measurement]
    gate: BaseGate

    def tasks(self) -> Iterator[_Task]:
        """Tensor by tensor; where several threads may read, they do it themselves.

        Under a budget matrix by matrix, the rows that it reads.
        """
        if self.job.parts is not None:
            parts = read_parts(self.checkpoint, self.placed.placements, self.job.parts.parts)
            for placement, part in parts:
                yield _Task([placement], [self.gate.samples_next()], part)
            return
        wanted = self.placed.by_tensor()
        tensors: Iterable[tuple[str, torch.Tensor | None]]
        if self.checkpoint.concurrent:
            refs = [self.checkpoint.tensors[name] for name in wanted]
            refs.sort(key=lambda ref: (ref.file, ref.start))
            tensors = ((ref.name, None) for ref in refs)
        else:
            tensors = self.checkpoint.stream(wanted)
        for name, tensor in tensors:
            placements = wanted[name]
            yield _Task(placements, [self.gate.samples_next() for _ in placements], tensor)

    def compare(self, task: _Task) -> list[_Compared[Measurement]]:
        """Every matrix of a task against the base's."""
        self.job.stop_if_cancelled()
        with self.job.scratch.borrow() as scratch:
            if self.job.parts is not None:
                (placement,), (sampled,) = task.placements, task.sampled
                assert task.tensor is not None
                weight, norm = self.job.parts.matrix((placement.slot, placement.part))
                return [self._compare(placement, task.tensor, weight, norm, scratch, sampled)]
            if task.tensor is not None:
                return self._compare_all(task, task.tensor, scratch)
            with self.checkpoint.view(task.placements[0].tensor) as tensor:
                return self._compare_all(task, tensor, scratch)

    def _compare_all(
        self, task: _Task, tensor: torch.Tensor, scratch: Scratch
    ) -> list[_Compared[Measurement]]:
        base, compared = self.job.base.weights(), []
        for placement, sampled in zip(task.placements, task.sampled, strict=True):
            key = (placement.slot, placement.part)
            child = placement.cut(tensor)
            with base.matrix(key) as weight:
                norm = base.norm(key, weight)
                compared.append(self._compare(placement, child, weight, norm, scratch, sampled))
        return compared

    def _compare(
        self,
        placement: Placement,
        child: torch.Tensor,
        weight: torch.Tensor,
        weight_norm: float,
        scratch: Scratch,
        sampled: bool,
    ) -> _Compared[Measurement]:
        if child.dtype not in RELATIVE_ROUNDING:
            raise ModelError("unsupported-dtype", f"tensor {placement.tensor!r} is {child.dtype}")
        delta = update_against(child, weight, scratch, self.job.device)
        if not math.isfinite(delta.norm):
            raise ModelError("non-finite", f"tensor {placement.tensor!r} holds NaN or infinity")
        parts = self.job.parts
        measured = self.collector.measure(
            MatrixUpdate(
                slot=placement.slot,
                part=placement.part,
                delta=delta if delta.norm > 0 else None,
                shape=placement.shape,
                noise_norm=rounding_norm(weight_norm, child.dtype),
                weight_norm=weight_norm,
                cut_axis=parts.parts[placement.slot, placement.part].axis if parts else None,
            )
        )
        if not sampled:
            return _Compared(measured, None)
        norms = Norms(child=frobenius(child), base=weight_norm, update=delta.norm)
        return _Compared(measured, norms)
