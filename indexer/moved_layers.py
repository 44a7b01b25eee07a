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
from .architecture import PlacedModel, Placement
from .architecture.placement import label
from .base import BaseWeights
from .checkpoint import FEW_BYTES
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

    placed: PlacedModel
    note: str


def find_moved(member: Member, job: IndexJob) -> MovedModel | None:
    """Where a full checkpoint's layers are in the base; None where its weights do not show it."""
    try:
        with closing(member.checkpoint(FEW_BYTES, job.session)) as checkpoint:
            weights, samples = job.base.weights(), job.base.samples()
            matrices = layer_matrices(checkpoint.tensors, member.config)
            if {m.shape for m in matrices}.isdisjoint(m.shape for m in samples):
                return None
            found = find_layer_map(sample_matrices(checkpoint, matrices), samples)
            if found is None or not found.is_significant:
                return None
            shapes = {name: ref.shape for name, ref in checkpoint.tensors.items()}
            # as its names say
            own = architecture.place(shapes, member.config).placements if found.by_name else ()
            placed = _placed(found, own, weights.placed)
            taken = placed.by_tensor()
            rest = {name: shape for name, shape in shapes.items() if name not in taken}
            unread = architecture.find_unread(rest, shapes)
            if found.by_name:
                new = _new_names(unread, own, weights.placed)
            else:
                layers = {child.layer for child, _ in found.pairs}
                inside = {m.tensor for m in matrices if m.layer in layers}
                new = [name for name in unread if name in inside]
                if not any(map(architecture.find_number, taken)):
                    unread += _extra(rest, weights)
            architecture.require_none_new(new)
            placed = replace(placed, unread=tuple(sorted(unread)))
            return MovedModel(placed, _note(found, placed, weights.placed))
    except (ModelError, BaseError):
        return None


def _placed(found: LayerMap, own: Iterable[Placement], base: PlacedModel) -> PlacedModel:
    """The model's matrices, each layer under the number of its base's; of several layers that are
    the same one, the nearest. `own`: as its names say."""
    chosen = found.nearest_layers()
    if found.by_name:
        number = {(stack, child): layer for (stack, layer), child in chosen.items()}
        if all(child == layer for (_, child), layer in number.items()):
            # a new layer in the place of one of the base's counts as an update of it
            number |= {new: new[1] for new in found.unmatched}
        moved = [
            replace(p, slot=replace(p.slot, layer=number[p.slot.stack, p.slot.layer]))
            for p in own
            if (p.slot.stack, p.slot.layer) in number
        ]
    else:
        theirs = base.by_tensor()
        moved = [
            replace(p, tensor=child.tensor)
            for child, matrix in found.pairs
            if chosen.get((matrix.group.partition(".")[0], matrix.layer)) == child.layer
            for p in theirs.get(matrix.tensor, ())
        ]
    placements = [
        replace(p, module=like.module)
        for p in moved
        if (like := base.by_key.get(p.key)) and like.shape == p.shape
    ]
    if not placements:
        raise ModelError("layer-mismatch", "no matrix has the place of one of the base's")
    placements.sort(key=architecture.sort_key)
    return PlacedModel(placements=tuple(placements), ignored=(), unread=())


def _new_names(unread: Iterable[str], own: Iterable[Placement], base: PlacedModel) -> list[str]:
    """Those of the matrices in layers without a place in the base's of whose name it has none."""
    # whole layers that are none of the base's, or the same one again, have its roles
    roles = {(p.slot.stack, p.slot.role) for p in base.placements}
    alike = (p.tensor for p in own if (p.slot.stack, p.slot.role) in roles)
    known = set(map(architecture.without_numbers, (*base.unread, *alike)))
    return [name for name in unread if architecture.without_numbers(name) not in known]


def _extra(shapes: Mapping[str, tuple[int, ...]], base: BaseWeights) -> Iterator[str]:
    """The matrices, under names without numbers, that are more than what the base has of their
    shape beside its layers."""
    layers = base.placed.by_tensor()
    beside = Counter(ref.shape for n, ref in base.checkpoint.tensors.items() if n not in layers)
    for name, shape in shapes.items():
        beside[shape] -= 1
        if architecture.is_matrix(shape) and beside[shape] < 0:
            yield name


def _note(found: LayerMap, placed: PlacedModel, base: PlacedModel) -> str:
    """What the model's record says of its layers: those in their place may lack matrices."""
    n = len(base.placements)
    if not found.is_identity or not found.by_name:
        renamed = [] if found.by_name else ["its tensors are named otherwise than its base's"]
        changes = "; ".join(renamed + describe_layers(found))
        covers = f"{len(placed.placements)} of the base's {count(n, 'matrix')}"
        return f"its layers are other layers of the base ({covers}, p {found.p:.0e}): {changes}"
    lost = [label(p) for p in base.placements if p.key not in placed.by_key]
    if not lost:
        return ""
    return f"{PARTLY_READ}{n - len(lost)} of {count(n, 'layer matrix')}: it lacks {name_some(lost)}"
