"""The shapes that the matrices of a family have, where no base tells them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from ..errors import ModelError
from ..records import Slot
from ..store import Catalog, ModelFilter, Page
from .adapter import read_adapter
from .architecture import Key, Placement, place_modules
from .base import Base
from .family import Member
from .model import open_checkpoint, with_config

MODELS_THAT_TELL = 3
"""Models of a family from which on their shapes tell whether another one belongs to it."""

SAMPLED_ADAPTERS = 32
"""Of a run, whose headers are read before it where nothing else tells what a family has."""


def known_shapes(catalog: Catalog, base: str) -> dict[str, tuple[int, int]]:
    """(out, in) by slot, of the family's models at the end of its last run; none where so few
    are indexed that one of another base would decide it."""
    family = catalog.base(base)
    _, indexed = catalog.page_of_models(ModelFilter(base=base, status="indexed"), Page(limit=1))
    if family is None or indexed < MODELS_THAT_TELL:
        return {}
    return {slot: (n_out, n_in) for slot, (n_out, n_in) in family.slots.get("shapes", {}).items()}


def usual_shapes(members: Sequence[Member], base: Base) -> dict[str, tuple[int, int]]:
    """(out, in) by slot, of most of the adapters on disk, for a family of which too little is
    known and a base that is not read; reads headers only, of some."""
    adapters = [m for m in members if m.is_adapter and m.hub is None and m.refusal is None]
    if base.opened() is not None or len(adapters) < MODELS_THAT_TELL:
        return {}
    sample = adapters[:: max(1, len(adapters) // SAMPLED_ADAPTERS)]
    changed = [{(str(p.slot), p.shape) for p in _adapter_placements(m)} for m in sample]
    changed = [slots for slots in changed if slots]
    stacks = Counter(
        stack for slots in changed for stack in {name.partition(".")[0] for name, _ in slots}
    )
    usual = {stack for stack, count in stacks.items() if 2 * count > len(changed)}
    counts = Counter(slot for slots in changed for slot in slots)
    shapes: dict[str, tuple[int, int]] = {}
    for (name, shape), _ in counts.most_common():
        if name.partition(".")[0] in usual:
            shapes.setdefault(name, shape)
    return shapes if len(changed) >= MODELS_THAT_TELL else {}


def place_unnamed(members: list[Member], base: Base, catalog: Catalog) -> list[Member]:
    """The members; an adapter that names no base stays only if its shapes fit the family's."""
    if not any(map(_is_unnamed, members)):
        return members
    weights = base.opened()
    if weights is not None:
        shapes = {key: placement.shape for key, placement in weights.placed.by_key.items()}
    else:
        shapes = family_shapes(members)
        family = catalog.base(base.name)
        for text, shape in (family.slots.get("shapes", {}) if family else {}).items():
            stack, layer, role = text.split(".")
            shapes.setdefault((Slot(stack, int(layer), role), ""), (shape[0], shape[1]))
    return [_fit(member, shapes) if _is_unnamed(member) else member for member in members]


def _is_unnamed(member: Member) -> bool:
    return member.is_adapter and not member.claims and member.refusal is None


def _fit(member: Member, shapes: Mapping[Key, tuple[int, int]]) -> Member:
    placements = _adapter_placements(member)
    fits = [shapes.get(p.key) == p.shape for p in placements]
    if fits and all(fits):
        notes = (*member.record.notes, "names no base; its shapes fit this family's")
        return replace(member, record=replace(member.record, notes=notes))
    if not placements:
        return member
    reason = f"names no base, and {fits.count(False)} of its {len(fits)} matrices do not fit"
    return replace(member, refusal=ModelError("base-unknown", reason))


def _adapter_placements(member: Member) -> tuple[Placement, ...]:
    """Where an adapter's modules belong; empty if its files do not tell. Reads headers only."""
    try:
        member = with_config(member)
        with closing(open_checkpoint(member)) as checkpoint:
            adapter = read_adapter(checkpoint, member.config)
            return place_modules(adapter.modules, None).placements
    except ModelError:
        return ()


def family_shapes(members: Iterable[Member]) -> dict[Key, tuple[int, int]]:
    """Every slot part that the adapters among `members` touch, with its shape."""
    shapes: dict[Key, tuple[int, int]] = {}
    for member in members:
        if member.is_adapter and member.refusal is None and member.claims:
            for placement in _adapter_placements(member):
                shapes.setdefault(placement.key, placement.shape)
    return shapes
