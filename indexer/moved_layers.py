"""A model whose tensors are named otherwise than its base's, or whose layers moved, placed as the
base is: layer i of the model in the slots of the layer of the base that it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from ..errors import BaseError, ModelError
from ..records import PARTLY_READ
from ..results import count
from . import architecture
from .architecture.placement import label
from .base import BaseWeights
from .checkpoint import FEW_BYTES, Checkpoint
from .family import Member
from .job import IndexJob
from .layer_map import LayerMap, describe_layers, find_layer_map
from .untrusted_text import name_some
from .weight_samples import layer_matrices, sample_matrices

MAY_BE_MOVED = frozenset(
    {
        "layer-mismatch",
        "not-read",
        "unknown-architecture",
        "no-attention",
        "wrong-base",
        "other-base",
    }
)
"""Codes that a model ends with whose layers moved, or whose tensors are renamed."""


@dataclass(frozen=True, slots=True)
class MovedModel:
    """A model in the places of its base; `note`: for its record, empty where each matrix is where
    it was."""

    placed: architecture.PlacedModel
    note: str


def find_moved(member: Member, job: IndexJob) -> MovedModel | None:
    """Where a full checkpoint's layers are in the base; None where its weights do not show it."""
    try:
        with closing(member.checkpoint(FEW_BYTES, job.session)) as checkpoint:
            weights = job.base.weights()
            base = weights.placed
            matrices = layer_matrices(checkpoint.tensors, member.config)
            samples = job.base.samples()
            if {m.shape for m in matrices}.isdisjoint(m.shape for m in samples):
                return None
            found = find_layer_map(sample_matrices(checkpoint, matrices), samples)
            if found is None or not found.is_significant:
                return None
            placed = _placed(found, member, checkpoint, base)
            placed = replace(placed, unread=_unread(found, placed, member, checkpoint, weights))
            is_in_place = found.is_identity and found.by_name
            note = _lacking(placed, base) if is_in_place else _note(found, placed, base)
            return MovedModel(placed, note)
    except (ModelError, BaseError):
        return None


def _placed(
    found: LayerMap, member: Member, checkpoint: Checkpoint, base: architecture.PlacedModel
) -> architecture.PlacedModel:
    by_key = base.by_key
    placements = [
        replace(placement, module=own.module)
        for placement in _in_base(found, member, checkpoint, base)
        if (own := by_key.get(placement.key)) and own.shape == placement.shape
    ]
    if not placements:
        raise ModelError("layer-mismatch", "no matrix has the place of one of the base's")
    return architecture.PlacedModel(
        placements=tuple(sorted(placements, key=architecture.sort_key)), ignored=(), unread=()
    )


def _in_base(
    found: LayerMap, member: Member, checkpoint: Checkpoint, base: architecture.PlacedModel
) -> Iterable[architecture.Placement]:
    """The model's placements, each layer under the number of its base's; of several layers that are
    the same one, the nearest."""
    chosen = found.nearest_layers()
    if found.by_name:
        shapes = {name: ref.shape for name, ref in checkpoint.tensors.items()}
        number = {(stack, child): layer for (stack, layer), child in chosen.items()}
        if all(child == layer for (_, child), layer in number.items()):
            # a new layer in the place of one of the base's counts as an update of it
            number |= {new: new[1] for new in found.unmatched}
        for placement in architecture.place(shapes, member.config).placements:
            slot = placement.slot
            layer = number.get((slot.stack, slot.layer))
            if layer is not None:
                yield replace(placement, slot=replace(slot, layer=layer))
        return
    by_tensor = base.by_tensor()
    for child, own in found.pairs:
        stack = own.group.partition(".")[0]
        if chosen.get((stack, own.layer)) == child.layer:
            for placement in by_tensor.get(own.tensor, ()):
                yield replace(placement, tensor=child.tensor)


def _unread(
    found: LayerMap,
    placed: architecture.PlacedModel,
    member: Member,
    checkpoint: Checkpoint,
    base: BaseWeights,
) -> tuple[str, ...]:
    """The matrices in the model's layers that have no place in the base's; `not-read` where they
    are in a layer that has one, and the base has none of their name."""
    taken = placed.by_tensor()
    shapes = {n: ref.shape for n, ref in checkpoint.tensors.items()}
    rest = [name for name in shapes if name not in taken]
    unread = architecture.find_unread(rest, shapes)
    if found.by_name:
        # whole layers that are none of the base's, or the same one again, have its roles
        roles = {(p.slot.stack, p.slot.role) for p in base.placed.placements}
        known = {
            *map(architecture.without_numbers, base.placed.unread),
            *(
                architecture.without_numbers(p.tensor)
                for p in architecture.place(shapes, member.config).placements
                if (p.slot.stack, p.slot.role) in roles
            ),
        }
        new = [n for n in unread if architecture.without_numbers(n) not in known]
    else:
        layers = {child.layer for child, _ in found.pairs}
        matrices = layer_matrices(checkpoint.tensors, member.config)
        layer_of = {matrix.tensor: matrix.layer for matrix in matrices}
        new = [n for n in unread if layer_of.get(n) in layers]
        if not any(map(architecture.find_number, taken)):
            unread += _extra({name: shapes[name] for name in rest}, base)
    architecture.require_none_new(new)
    return tuple(sorted(unread))


def _extra(shapes: Mapping[str, tuple[int, ...]], base: BaseWeights) -> Iterator[str]:
    """The matrices, under names without numbers, that are more than what the base has of their
    shape beside its layers."""
    layers = base.placed.by_tensor()
    beside = Counter(ref.shape for n, ref in base.checkpoint.tensors.items() if n not in layers)
    for name, shape in shapes.items():
        beside[shape] -= 1
        if architecture.is_matrix(shape) and beside[shape] < 0:
            yield name


def _lacking(placed: architecture.PlacedModel, base: architecture.PlacedModel) -> str:
    """The note on matrices of layers in their place that the model's files do not hold."""
    lost = [label(p) for p in base.placements if p.key not in placed.by_key]
    if not lost:
        return ""
    n = len(base.placements)
    return f"{PARTLY_READ}{n - len(lost)} of {count(n, 'layer matrix')}: it lacks {name_some(lost)}"


def _note(found: LayerMap, placed: architecture.PlacedModel, base: architecture.PlacedModel) -> str:
    renamed = [] if found.by_name else ["its tensors are named otherwise than its base's"]
    changes = "; ".join(renamed + describe_layers(found))
    covers = f"{len(placed.placements)} of the base's {count(len(base.placements), 'matrix')}"
    return f"its layers are other layers of the base ({covers}, p {found.p:.0e}): {changes}"
