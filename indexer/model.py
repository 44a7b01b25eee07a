"""One model from files to outcome: opened, placed, compared with its base, fingerprinted."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from ..errors import BaseError, ModelError
from ..records import Indexed, ModelRecord, Outcome, Recipe, Refused
from .adapter import Adapter, read_adapter
from .architecture import (
    PlacedModel,
    Placement,
    place,
    place_modules,
    require_same_layers,
    require_within_base,
)
from .base import Base, BaseWeights
from .checkpoint import (
    Checkpoint,
    disagreement,
    file_sha256,
    open_adapter_weights,
    open_local,
    quantization,
)
from .delta import Delta, DenseDelta, LowRankDelta
from .family import Member, Wanted
from .fingerprint import Layout
from .fingerprint.factors import frobenius
from .fingerprint.rounding import FILE_ROUNDING, RELATIVE_ROUNDING, rounding_norm, update_against
from .gate import BaseGate
from .hub import open_hub_adapter, open_hub_model
from .update import UpdateCollector

log = logging.getLogger(__name__)

MISFITS = ("wrong-base", "shape-mismatch", "layer-mismatch")
"""What a model of another base runs into."""


class Cancelled(Exception):
    """The run is being stopped; the model at hand is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every model of one run shares."""

    base: Base
    wanted: Wanted
    recipes: Sequence[Recipe]
    layout: Layout
    cancelled: threading.Event = field(default_factory=threading.Event)


def fingerprint_member(member: Member, job: Job) -> Outcome:
    """The model's fingerprints and statistics, or why there are none. Never raises for a model.

    Peak: one tensor pair in float32, and what the reader coalesces.

    Raises:
        Cancelled: the run is being stopped.
    """
    start = time.monotonic()
    checkpoint: Checkpoint | None = None

    def refused(code: str, reason: str) -> Refused:
        return Refused(
            model=member.record,
            code=code,
            reason=reason,
            bytes_read=checkpoint.bytes_read if checkpoint else 0,
            seconds=time.monotonic() - start,
        )

    try:
        if member.refusal is not None:
            raise member.refusal
        checkpoint = open_checkpoint(member)
        collector = UpdateCollector(job.recipes, job.layout)
        collect = _collect_adapter if member.is_adapter else _collect_full
        record = collect(member, checkpoint, job, collector)
        return Indexed(
            model=replace(record, bytes_total=checkpoint.bytes_total),
            fingerprints=collector.fingerprints(),
            slots=collector.statistics(),
            bytes_read=checkpoint.bytes_read,
            seconds=time.monotonic() - start,
        )
    except ModelError as err:
        if err.code in MISFITS and member.claims and not job.wanted.named_in(member.claims):
            return refused("other-base", f"names base {member.claims[0]!r}; {err.reason}")
        return refused(err.code, err.reason)
    except BaseError as err:
        return refused("needs-base", str(err))
    except MemoryError:
        return refused("internal", "not enough memory for one of its matrices")
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, OSError) as err:
        log.debug("defect while reading %s", member.record.id, exc_info=True)
        return refused("internal", f"{type(err).__name__}: {err}".splitlines()[0])
    finally:
        if checkpoint is not None:
            checkpoint.close()


def open_checkpoint(member: Member) -> Checkpoint:
    """The member's weight files, headers read.

    Raises:
        ModelError: they cannot be opened.
    """
    if member.hub is not None:
        return open_hub_adapter(member.hub) if member.is_adapter else open_hub_model(member.hub)
    assert member.folder is not None
    return open_adapter_weights(member.folder) if member.is_adapter else open_local(member.folder)


def _collect_full(
    member: Member, checkpoint: Checkpoint, job: Job, collector: UpdateCollector
) -> ModelRecord:
    scheme = quantization(member.config, checkpoint.tensors.values(), ())
    if scheme:
        raise ModelError("quantized", f"weights are stored as {scheme}")
    placed = place({n: t.shape for n, t in checkpoint.tensors.items()}, member.config)
    placed.require_known()
    base = job.base.weights()
    require_same_layers(placed, base.placed)
    wanted: dict[str, list[Placement]] = defaultdict(list)
    for placement in placed.placements:
        wanted[placement.tensor].append(placement)
    gate = BaseGate(job.base.name)
    for name, tensor in checkpoint.stream(wanted):
        if job.cancelled.is_set():
            raise Cancelled
        for placement in wanted[name]:
            _collect_pair(placement, tensor, base, gate, collector)
    gate.check()
    return member.record


def _collect_pair(
    placement: Placement,
    tensor: torch.Tensor,
    base: BaseWeights,
    gate: BaseGate,
    collector: UpdateCollector,
) -> None:
    """Compare one matrix with the base's and hand its update on."""
    key = (placement.slot, placement.part)
    child = placement.cut(tensor)
    if child.dtype not in RELATIVE_ROUNDING:
        raise ModelError("unsupported-dtype", f"tensor {placement.tensor!r} is {child.dtype}")
    weight_norm = base.norm(key)
    update = update_against(child, base.matrix(key))
    update_norm = frobenius(update)
    if not math.isfinite(update_norm):
        raise ModelError("non-finite", f"tensor {placement.tensor!r} holds NaN or infinity")
    if gate.samples_next():
        child_norm = frobenius(child)
        gate.add(child_norm=child_norm, base_norm=weight_norm, update_norm=update_norm)
    collector.add(
        placement.slot,
        placement.part,
        DenseDelta(update) if update_norm > 0 else None,
        shape=placement.shape,
        noise_norm=rounding_norm(weight_norm, child.dtype),
        weight_norm=weight_norm,
    )


def _collect_adapter(
    member: Member, checkpoint: Checkpoint, job: Job, collector: UpdateCollector
) -> ModelRecord:
    adapter = read_adapter(checkpoint, member.adapter_config)
    base = job.base.opened()
    shapes = {**adapter.modules, **_full_value_shapes(adapter, checkpoint)}
    placed = place_modules(shapes, base.config if base else None)
    placed.require_known()
    if base is not None:
        require_within_base(placed, base.placed)
    if not placed.placements:
        raise ModelError("no-layer-update", f"it changes only {_some(placed.ignored)}")
    by_module: dict[str, list[Placement]] = defaultdict(list)
    for placement in placed.placements:
        by_module[placement.tensor].append(placement)
    for module, placements in by_module.items():
        if job.cancelled.is_set():
            raise Cancelled
        _collect_module(module, placements, adapter, checkpoint, job, collector)
    return _adapter_record(member, adapter)


def _collect_module(
    module: str,
    placements: list[Placement],
    adapter: Adapter,
    checkpoint: Checkpoint,
    job: Job,
    collector: UpdateCollector,
) -> None:
    """Compute one module's ΔW, cut it into its slots, hand the updates on."""
    first = placements[0]
    weight = None
    if module in adapter.needs_base or module not in adapter.modules:
        weight = job.base.weights().whole_matrix((first.slot, first.part))
    if module in adapter.modules:
        delta = adapter.delta(module, weight)
        names = adapter.tensors_of(module)
    else:
        assert weight is not None
        names = (adapter.full_values[module],)
        delta = DenseDelta(update_against(checkpoint.read(names[0]), weight))
    rounding = max(FILE_ROUNDING[checkpoint.tensors[n].dtype] for n in names) * math.sqrt(2)
    for placement in placements:
        piece = _cut(delta, placement)
        norm = piece.norm
        if not math.isfinite(norm):
            raise ModelError("non-finite", f"module {module!r}: ΔW holds NaN or infinity")
        collector.add(
            placement.slot,
            placement.part,
            piece if norm > 0 else None,
            shape=placement.shape,
            noise_norm=rounding * norm,
            weight_norm=None,
        )


def _cut(delta: Delta, placement: Placement) -> Delta:
    """The rows of ΔW that belong to one placement."""
    if isinstance(delta, DenseDelta):
        return DenseDelta(placement.cut_rows(delta.matrix))
    return LowRankDelta(placement.cut_rows(delta.left), delta.right)


def _full_value_shapes(adapter: Adapter, checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {m: checkpoint.tensors[name].shape for m, name in adapter.full_values.items()}


def _adapter_record(member: Member, adapter: Adapter) -> ModelRecord:
    record = replace(member.record, method=adapter.method)
    notes = list(adapter.notes)
    if member.folder is None:
        return replace(record, notes=tuple(notes))
    odd = disagreement(member.folder)
    weights = next(
        member.folder / n
        for n in ("adapter_model.safetensors", "adapter_model.bin")
        if (member.folder / n).exists()
    )
    return replace(
        record,
        notes=(*notes, odd) if odd else tuple(notes),
        content_sha256=file_sha256(weights),
    )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing that is read"
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
