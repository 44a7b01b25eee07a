"""A full checkpoint's update: every layer matrix against the base's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
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
from .gate import BaseGate
from .job import Job
from .parallel import ordered
from .update import Collector, MatrixUpdate, Measurement

_Compared = tuple[Measurement, tuple[float, float, float] | None]
"""The collector's measurement of one matrix and, if it is sampled, |child|, |W| and |ΔW|."""


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
        for measured, norms in compared:
            if norms is not None:
                comparison.gate.add(*norms)
            collector.take(measured)
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
        with self.job.scratch.borrow() as scratch, ExitStack() as opened:
            tensor = task.tensor
            if tensor is None:
                tensor = opened.enter_context(self.checkpoint.view(task.placements[0].tensor))
            return [
                self._compare(placement, tensor, scratch, sampled)
                for placement, sampled in zip(task.placements, task.sampled, strict=True)
            ]

    def _compare(
        self, placement: Placement, tensor: torch.Tensor, scratch: Scratch, sampled: bool
    ) -> _Compared[Measurement]:
        key, base, parts = placement.key, self.job.base.weights(), self.job.parts
        with ExitStack() as opened:
            if parts is not None:
                child, (weight, weight_norm) = tensor, parts.matrix(key)
            else:
                child, weight = placement.cut(tensor), opened.enter_context(base.matrix(key))
                weight_norm = base.norm(key, weight)
            if child.dtype not in RELATIVE_ROUNDING:
                line = f"tensor {placement.tensor!r} is {child.dtype}"
                raise ModelError("unsupported-dtype", line)
            delta = update_against(child, weight, scratch, self.job.device)
            if not math.isfinite(delta.norm):
                line = f"tensor {placement.tensor!r} holds NaN or infinity"
                raise ModelError("non-finite", line)
            update = MatrixUpdate(
                slot=placement.slot,
                part=placement.part,
                delta=delta if delta.norm > 0 else None,
                shape=placement.shape,
                noise_norm=rounding_norm(weight_norm, child.dtype),
                weight_norm=weight_norm,
                cut_axis=parts.parts[key].axis if parts else None,
            )
            norms = (frobenius(child), weight_norm, delta.norm) if sampled else None
            return self.collector.measure(update), norms
