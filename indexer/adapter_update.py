"""An adapter's update: each module's ΔW from its own tensors, cut into slots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..errors import ModelError
from ..records import ModelRecord
from .adapter import Adapter, read_adapter
from .architecture import (
    Placement,
    place_modules,
    require_known_slots,
    require_within_base,
)
from .checkpoint import ADAPTER_WEIGHTS, DTYPES, Checkpoint, disagreement
from .delta import RELATIVE_ROUNDING, Delta, DenseDelta, LowRankDelta, MatrixUpdate, flaw_of
from .family import Member
from .job import Job
from .untrusted_text import name_some
from .update import Collector, Measurement


def collect_adapter(
    member: Member, checkpoint: Checkpoint, job: Job, collector: Collector[Measurement]
) -> ModelRecord:
    """Pass every module's update to the collector; returns the record with what the files say.

    Only methods whose ΔW is a function of W open the base.
    """
    adapter = read_adapter(checkpoint, member.config)
    base = job.base.weights() if job.parts else job.base.opened()
    placed = place_modules(_shapes(adapter, job), base.config if base else None)
    placed.require_known()
    if base is not None:
        require_within_base(placed, base.placed)
    else:
        require_known_slots(placed, job.shapes, job.base.name)
    if not placed.placements:
        changed = name_some((*placed.ignored, *adapter.outside)) or "nothing that is read"
        raise ModelError("no-layer-update", f"it changes only {changed}")
    if job.plan.whole and not adapter.needs_base.isdisjoint(placed.by_tensor()):
        job.base.verify(keep=job.parts is None)
    for module, placements in placed.by_tensor().items():
        job.stop_if_cancelled()
        dtypes = {DTYPES[checkpoint.tensors[name].dtype] for name in adapter.tensors_of(module)}
        rounding = max(RELATIVE_ROUNDING[dtype] for dtype in dtypes) * math.sqrt(2)
        for update in _updates(module, placements, adapter, rounding, job):
            collector.take(collector.measure(update))
    notes = (*member.record.notes, *adapter.notes)
    sha256 = member.record.content_sha256
    files = member.files
    if files is not None:
        difference = disagreement(files)
        notes += (difference,) if difference else ()
        sha256 = files.sha256(next(filter(files.has, ADAPTER_WEIGHTS)))
    return replace(member.record, method=adapter.method, notes=notes, content_sha256=sha256)


def _updates(
    module: str, placements: Sequence[Placement], adapter: Adapter, rounding: float, job: Job
) -> Iterator[MatrixUpdate]:
    """One module's ΔW, cut into its slots; `rounding`: how much of each is only that."""
    weight = None
    if module in adapter.needs_base:
        weight = job.base.weights().whole_matrix(placements[0].key)
    delta = adapter.delta(module, weight)
    for placement in placements:
        if isinstance(delta, DenseDelta):
            piece: Delta = DenseDelta(placement.cut_rows(delta.matrix))
        else:
            piece = LowRankDelta(placement.cut_rows(delta.left), delta.right)
        part = job.parts.parts[placement.key] if job.parts else None
        piece = part.cut(piece) if part else piece
        norm = piece.norm
        if flaw := flaw_of(norm):
            raise ModelError("non-finite", f"module {module!r}: ΔW {flaw}")
        yield MatrixUpdate(
            slot=placement.slot,
            part=placement.part,
            delta=piece if norm > 0 else None,
            shape=placement.shape,
            noise_norm=rounding * norm,
            weight_norm=None,
            cut_axis=part.axis if part else None,
            cut_start=part.start if part else 0,
        )


def _shapes(adapter: Adapter, job: Job) -> dict[str, tuple[int, int]]:
    """(out, in) of every module; the base's where the adapter's tensors do not show it.

    A module that is no layer matrix (a head saved whole) needs no shape and no base.
    """
    shapes = dict(adapter.modules)
    unknown = [m for m, shape in shapes.items() if 0 in shape] + list(adapter.full_values)
    layers = {p.tensor for p in place_modules(dict.fromkeys(unknown, (1, 1)), None).placements}
    for module in unknown:
        shapes[module] = job.base.weights().shape_of(module) if module in layers else (1, 1)
    return shapes
