"""A model's update: every layer matrix against the base's, or an adapter's own, cut into slots."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Generic, TypeVar

import torch

from ..errors import ModelError
from ..records import PARTLY_READ, ModelRecord
from ..results import agree, count
from . import delta as deltas
from .adapter import Adapter, read_adapter
from .architecture import (
    Key,
    PlacedModel,
    Placement,
    in_slots_of,
    is_cut_otherwise,
    layer_modules,
    pair_unread,
    place_modules,
    require_known_slots,
    require_same_layers,
    require_within_base,
)
from .base import BaseWeights, are_equal, place_checkpoint, require_same_heads, stream_matrices
from .checkpoint import ADAPTER_WEIGHTS, DTYPES, Checkpoint, DerivedCheckpoint
from .family import Member
from .job import IndexJob, ordered, read_parts
from .untrusted_text import name_some

MIN_COSINE = 0.25
FIRST_LOOK = 6
THEN_EVERY = 8

UNRELATED = 0.9
"""|ΔW|/|W| above which a layer may be another one than its number says, and its cosine is computed:
at a cosine below `MIN_COSINE` the ratio is larger, whatever the child's norm."""

Measurement = TypeVar("Measurement")

Measure = Callable[[deltas.MatrixUpdate], Measurement]
"""What measures one update; in any thread."""

Take = Callable[[Measurement], object]
"""What takes each measurement; in one thread, in a fixed order."""

_Compared = tuple[Measurement, tuple[float, float, float] | None, tuple[tuple[str, int], float]]
"""The measurement of one matrix; if it is sampled, |child|, |W| and |ΔW|; its stack and
layer, and the cosine of child and base, 1 where they are near."""


def collect_full(
    member: Member,
    checkpoint: Checkpoint,
    job: IndexJob,
    measure: Measure[Measurement],
    take: Take[Measurement],
    placed: PlacedModel | None = None,
    only: Collection[Key] | None = None,
) -> str:
    """Measure the update of every layer matrix, or of those in `only`; returns a note on those that
    no slot takes. `placed`: where the matrices are of a model whose layers are not
    the base's of the same name; a model without it is refused, as `layer-mismatch`, where some of
    its layers owe the base's nothing."""
    if job.plan.whole:
        job.base.verify(keep=job.parts is None, embedding=job.footprints)
    require_same_heads(checkpoint, job.base.weights().config)
    is_moved = placed is not None
    if placed is None:
        placed = place_checkpoint(checkpoint, member.config, whole=job.base.by_module)
        require_same_layers(placed, job.base.weights().placed)
    if only is not None:
        chosen = tuple(p for p in placed.placements if p.key in only)
        placed = replace(placed, placements=chosen)
    comparison = _Comparison(placed, checkpoint, job, measure, BaseGate(job.base.name))
    cosines: dict[tuple[str, int], list[float]] = defaultdict(list)
    # tasks whose tensor is yet to be seen in its file weigh nothing
    ahead = 4 * job.threads if job.parts is None and checkpoint.concurrent else 0
    for compared in ordered(comparison.compare, comparison.tasks(), job.threads, ahead=ahead):
        for measured, norms, (layer, cosine) in compared:
            if norms is not None:
                comparison.gate.add(*norms)
            cosines[layer].append(cosine)
            take(measured)
    comparison.gate.check()
    strange = [layer for layer, values in cosines.items() if median(values) < MIN_COSINE]
    if strange and not is_moved:
        names = name_some([f"{stack}.{layer}" for stack, layer in sorted(strange)])
        raise ModelError("layer-mismatch", f"{names} owe the base's layers of that number nothing")
    if only is not None or not placed.unread:
        return ""
    return _note_on_unread(placed, checkpoint, job, is_moved=is_moved)


def _note_on_unread(
    placed: PlacedModel, checkpoint: Checkpoint, job: IndexJob, *, is_moved: bool
) -> str:
    """What part of a model its update rests on: under a budget, and where layers moved, what has no
    slot is not compared."""
    n_read = len(placed.by_tensor())
    part = f"{n_read} of {count(n_read + len(placed.unread), 'layer matrix')}"
    names = name_some(placed.unread)
    if is_moved or job.parts is not None:
        return f"{PARTLY_READ}{part}: {names} {agree(len(placed.unread), 'was')} not read"
    base = job.base.weights()
    pairs = pair_unread(placed.unread, base.placed.unread)
    theirs = base.checkpoint
    differ = [
        name
        for name, other in pairs.items()
        if checkpoint.tensors[name].shape != theirs.tensors[other].shape
        or not are_equal(checkpoint, name, theirs, other)
    ]
    if not differ:
        others = agree(len(placed.unread), "other, {}, equals", "others, {}, equal").format(names)
        return f"{part} {agree(n_read, 'has a slot', 'have slots')}; the {others} the base's"
    without = agree(
        len(differ), "differs from the base's and has", "differ from the base's and have"
    )
    return f"{PARTLY_READ}{part}: {name_some(differ)} {without} no slot"


@dataclass(slots=True)
class BaseGate:
    """Running sums over (child, base) matrix pairs: the first few, then a sample.

    Independent weights have cosine ≈ 0 and |ΔW|/|W| ≈ √2. The cosine decides, since a long
    fine-tune can reach a ratio of 1 and still hold its base: at cosine 0.25 an update that
    owes the base nothing is four times as long as the base.
    """

    base_name: str
    child_sq: float = 0.0
    base_sq: float = 0.0
    update_sq: float = 0.0
    matrices: int = 0
    passed_by: int = 0

    def samples_next(self) -> bool:
        self.passed_by += 1
        return self.passed_by <= FIRST_LOOK or self.passed_by % THEN_EVERY == 0

    def add(self, child: float, base: float, update: float) -> None:
        """Take in one pair's norms; after the first few, refuse a model of another base at once."""
        self.child_sq += child**2
        self.base_sq += base**2
        self.update_sq += update**2
        self.matrices += 1
        if self.matrices == FIRST_LOOK:
            self.check()

    @property
    def ratio(self) -> float:
        return math.sqrt(self.update_sq / self.base_sq) if self.base_sq else math.inf

    @property
    def cosine(self) -> float:
        return _cosine(self.child_sq, self.base_sq, self.update_sq)

    def check(self) -> None:
        if self.cosine < MIN_COSINE:
            raise ModelError(
                "wrong-base",
                f"not a fine-tune of {self.base_name}: |ΔW|/|W| = {self.ratio:.2f} and cosine "
                f"{self.cosine:.2f} over {count(self.matrices, 'matrix')} (unrelated weights: 1.41 "
                "and 0)",
            )


def require_descent(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], base_name: str) -> None:
    """Refuse, as `wrong-base`, a model whose layer matrices, each beside the base's, owe the base
    nothing."""
    gate = BaseGate(base_name)
    for child, base in pairs:
        gate.add(deltas.frobenius(child), deltas.frobenius(base), deltas.frobenius(child - base))
    gate.check()


_Task = tuple[Sequence[Placement], Sequence[bool], torch.Tensor | None]
"""What is compared at once: one tensor's placements; which of them count for the gate; the matrix
or its rows, where they are read already."""


@dataclass(frozen=True, slots=True)
class _Comparison(Generic[Measurement]):
    """One checkpoint against its base, matrix by matrix; `compare` runs in any thread."""

    placed: PlacedModel
    checkpoint: Checkpoint
    job: IndexJob
    measure: Measure[Measurement]
    gate: BaseGate

    def tasks(self) -> Iterator[_Task]:
        """Tensor by tensor, which threads may read themselves; under a budget matrix by matrix, its
        rows."""
        if self.job.parts is not None:
            parts = read_parts(self.checkpoint, self.placed.placements, self.job.parts.parts)
            for placement, part in parts:
                yield [placement], [self.gate.samples_next()], part
            return
        read: Iterable[tuple[list[Placement], torch.Tensor | None]]
        if self.checkpoint.concurrent:
            wanted = self.placed.by_tensor()
            refs = [self.checkpoint.tensors[name] for name in wanted]
            refs.sort(key=lambda ref: (ref.file, ref.start))
            read = ((wanted[ref.name], None) for ref in refs)
        else:
            read = stream_matrices(self.checkpoint, self.placed)
        for placements, matrix in read:
            yield placements, [self.gate.samples_next() for _ in placements], matrix

    def compare(self, task: _Task) -> list[_Compared[Measurement]]:
        self.job.base.stop_if_cancelled()
        placements, sampled, matrix = task
        with self.job.scratch.borrow() as scratch, ExitStack() as opened:
            if matrix is not None:
                stored = [matrix] * len(placements)
            else:
                tensor = opened.enter_context(self.checkpoint.view(placements[0].tensor))
                stored = [tensor if p.index is None else tensor[p.index] for p in placements]
            triples = zip(placements, stored, sampled, strict=True)
            return [self._compare(*triple, scratch) for triple in triples]

    def _compare(
        self, placement: Placement, stored: torch.Tensor, sampled: bool, scratch: deltas.Scratch
    ) -> _Compared[Measurement]:
        key, base, parts = placement.key, self.job.base.weights(), self.job.parts
        with ExitStack() as opened:
            if parts is not None:
                child, (weight, weight_norm) = stored, parts.matrix(key)
            else:
                child, weight = placement.cut_matrix(stored), opened.enter_context(base.matrix(key))
                weight_norm = base.norm(key, weight)
            if child.dtype not in deltas.RELATIVE_ROUNDING:
                line = f"tensor {placement.tensor!r} is {child.dtype}"
                raise ModelError("unsupported-dtype", line)
            delta = deltas.update_against(child, weight, scratch, self.job.device)
            if flaw := deltas.flaw_of(delta.norm, child):
                raise ModelError("non-finite", f"tensor {placement.tensor!r} {flaw}")
            rounding = deltas.RELATIVE_ROUNDING[child.dtype]
            if isinstance(self.checkpoint, DerivedCheckpoint):
                error = self.checkpoint.relative_error(placement.tensor, child)
                rounding = max(rounding, error)
            update = deltas.MatrixUpdate(
                slot=placement.slot,
                part=placement.part,
                delta=delta if delta.norm > 0 else None,
                shape=placement.shape,
                noise_norm=rounding * weight_norm,
                weight_norm=weight_norm,
                cut_axis=parts.parts[key].axis if parts else None,
                cut_start=parts.parts[key].start if parts else 0,
            )
            is_far = delta.norm > UNRELATED * weight_norm > 0
            norms = None
            if sampled or is_far:
                norms = deltas.frobenius(child), weight_norm, delta.norm
            layer = placement.slot.stack, placement.slot.layer
            cosine = _cosine(*(n**2 for n in norms)) if norms is not None and is_far else 1.0
            return self.measure(update), norms if sampled else None, (layer, cosine)


def _cosine(child_sq: float, base_sq: float, update_sq: float) -> float:
    """Of child and base, from |child|², |W|² and |ΔW|²; 0 where one of both is zero."""
    if not child_sq or not base_sq:
        return 0.0
    inner = (child_sq + base_sq - update_sq) / 2
    return inner / math.sqrt(child_sq * base_sq)


def collect_adapter(
    member: Member, checkpoint: Checkpoint, job: IndexJob, take: Take[deltas.MatrixUpdate]
) -> ModelRecord:
    """Take every module's update; the record with what the files say. Only methods whose ΔW is a
    function of W open the base."""
    adapter = read_adapter(checkpoint, member.config)
    # only the base's config tells how stacked experts are cut
    needs_config = bool(job.parts) or any(len(shape) > 2 for shape in adapter.modules.values())
    base = job.base.weights() if needs_config else job.base.opened()
    placed = place_modules(_shapes(adapter, job), base.config if base else None)
    if base is None and is_cut_otherwise(placed, job.stored):
        base = job.base.weights()
        placed = place_modules(_shapes(adapter, job), base.config)
    placed.require_known()
    if base is not None:
        placed = in_slots_of(placed, base.placed, base.config)
        require_within_base(placed, base.placed)
    else:
        require_known_slots(placed, job.shapes, job.base.name)
    if not placed.placements:
        changed = name_some((*placed.ignored, *adapter.outside)) or "nothing that is read"
        raise ModelError("no-layer-update", f"it changes only {changed}")
    if job.plan.whole and not adapter.needs_base.isdisjoint(placed.by_tensor()):
        job.base.verify(keep=job.parts is None, embedding=job.footprints)
    n_modules = Counter(placement.key for placement in placed.placements)
    waiting: dict[Key, list[deltas.MatrixUpdate]] = defaultdict(list)
    for module, placements in placed.by_tensor().items():
        job.base.stop_if_cancelled()
        dtypes = {DTYPES[checkpoint.tensors[name].dtype] for name in adapter.tensors_of(module)}
        rounding = max(deltas.RELATIVE_ROUNDING.get(dtype, 0.0) for dtype in dtypes) * math.sqrt(2)
        for update in _updates(module, placements, adapter, rounding, job):
            key = update.slot, update.part
            waiting[key].append(update)
            if len(waiting[key]) == n_modules[key]:
                take(_sum(waiting.pop(key)))
    form = (checkpoint.note,) if isinstance(checkpoint, DerivedCheckpoint) else ()
    notes = (*member.record.notes, *form, *adapter.notes)
    sha256 = member.record.content_sha256
    files = member.files
    if files is not None:
        sha256 = files.sha256(next(filter(files.has, ADAPTER_WEIGHTS)))
    return replace(member.record, method=adapter.method, notes=notes, content_sha256=sha256)


def _updates(
    module: str, placements: Sequence[Placement], adapter: Adapter, rounding: float, job: IndexJob
) -> Iterator[deltas.MatrixUpdate]:
    """One module's ΔW, cut into its slots; `rounding`: how much of each is only that."""
    weight = None
    if module in adapter.needs_base:
        weight = _weight_of(placements, job.base.weights())
    delta = adapter.delta(module, weight)
    for placement in placements:
        if isinstance(delta, deltas.DenseDelta):
            piece: deltas.Delta = deltas.DenseDelta(placement.cut_rows(delta.matrix))
        else:
            at = ... if placement.index is None else placement.index
            piece = deltas.LowRankDelta(placement.cut_rows(delta.left[at]), delta.right[at])
        part = job.parts.parts[placement.key] if job.parts else None
        piece = part.cut(piece) if part else piece
        norm = piece.norm
        if flaw := deltas.flaw_of(norm):
            raise ModelError("non-finite", f"module {module!r}: ΔW {flaw}")
        yield deltas.MatrixUpdate(
            slot=placement.slot,
            part=placement.part,
            delta=piece if norm > 0 else None,
            shape=placement.shape,
            noise_norm=rounding * norm,
            weight_norm=None,
            cut_axis=part.axis if part else None,
            cut_start=part.start if part else 0,
        )


def _weight_of(placements: Sequence[Placement], base: BaseWeights) -> torch.Tensor:
    """The module's (out, in) matrix in the base, in the module's order of rows, float32."""
    rows = [torch.tensor(p.row_numbers) for p in placements]
    height = sum(int((numbers >= 0).sum()) for numbers in rows)
    weight = torch.empty(height, placements[0].shape[1])
    for placement, numbers in zip(placements, rows, strict=True):
        with base.matrix(placement.key) as matrix:
            base.norm(placement.key, matrix)
            weight[numbers[numbers >= 0]] = matrix[numbers >= 0].float()
    return weight


def _sum(updates: Sequence[deltas.MatrixUpdate]) -> deltas.MatrixUpdate:
    """The update of one slot part to which several modules are added."""
    first = updates[0]
    changes = [update.delta for update in updates if update.delta is not None]
    if len(updates) == 1 or not changes:
        return first
    delta: deltas.Delta = changes[0]
    for other in changes[1:]:
        if isinstance(delta, deltas.LowRankDelta) and isinstance(other, deltas.LowRankDelta):
            left = torch.cat((delta.left, other.left), dim=1)
            delta = deltas.LowRankDelta(left, torch.cat((delta.right, other.right)))
        else:
            delta = deltas.DenseDelta(deltas.dense(delta) + deltas.dense(other))
    noise = math.hypot(*(update.noise_norm for update in updates))
    return replace(first, delta=delta, noise_norm=noise)


def _shapes(adapter: Adapter, job: IndexJob) -> dict[str, tuple[int, ...]]:
    """(out, in) of every module; the base's where the adapter's tensors do not show it. A module
    that is no layer matrix (a head saved whole) needs neither."""
    shapes = dict(adapter.modules)
    unknown = [m for m, shape in shapes.items() if 0 in shape] + list(adapter.full_values)
    layers = layer_modules(unknown)
    for module in unknown:
        shapes[module] = job.base.weights().shape_of(module) if module in layers else (1, 1)
    return shapes
