"""Shapes of a family whose base is only a name, from the headers of its adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import ModelError
from ..records import Slot
from .adapter import read_adapter
from .architecture import Placement, place_modules
from .family import Member
from .model import open_checkpoint, with_config

Shapes = Mapping[tuple[Slot, str], tuple[int, int]]


def adapter_placements(member: Member) -> tuple[Placement, ...]:
    """Where an adapter's modules belong; empty if its files do not tell. Reads headers only."""
    try:
        member = with_config(member)
        checkpoint = open_checkpoint(member)
    except ModelError:
        return ()
    try:
        adapter = read_adapter(checkpoint, member.adapter_config)
        return place_modules(adapter.modules, None).placements
    except ModelError:
        return ()
    finally:
        checkpoint.close()


def family_shapes(members: Iterable[Member]) -> dict[tuple[Slot, str], tuple[int, int]]:
    """Every slot part that the adapters among `members` touch, with its shape."""
    shapes: dict[tuple[Slot, str], tuple[int, int]] = {}
    for member in members:
        if member.is_adapter and member.refusal is None and member.claims:
            for placement in adapter_placements(member):
                shapes.setdefault((placement.slot, placement.part), placement.shape)
    return shapes


def place_unnamed(members: Sequence[Member], shapes: Shapes) -> list[Member]:
    """The members; an adapter that names no base stays only if its shapes fit the family's."""
    return [_fit(m, shapes) if _is_unnamed(m) else m for m in members]


def _is_unnamed(member: Member) -> bool:
    return member.is_adapter and not member.claims and member.refusal is None


def _fit(member: Member, shapes: Shapes) -> Member:
    placements = adapter_placements(member)
    fits = [shapes.get((p.slot, p.part)) == p.shape for p in placements]
    if fits and all(fits):
        notes = (*member.record.notes, "names no base; its shapes fit this family's")
        return replace(member, record=replace(member.record, notes=notes))
    if not placements:
        return member
    reason = f"names no base, and {fits.count(False)} of its {len(fits)} matrices do not fit"
    return replace(member, refusal=ModelError("base-unknown", reason))
