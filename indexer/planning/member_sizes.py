"""The size of every member's weight files: known, counted in parameters, or that of a sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from ...errors import ModelError
from ..family import Format, Kind, Member, format_of, kind_of
from ..hub import HubSession, request_bytes, stated_bytes

SAMPLE = 16
"""Members of one kind and format whose sizes are requested, where the listing has none."""

Origin = Literal["files", "parameters", "requested", "sample", "base", "unknown"]
"""Where a size is from: the file system; the parameters that the listing counts, without headers; a
request; the mean of those that were requested; the base; nowhere."""


@dataclass(frozen=True, slots=True)
class SizedMember:
    """A member, and the bytes of its weight files; 0 where they are not known."""

    member: Member
    kind: Kind
    format: Format
    bytes: int
    origin: Origin


def size_members(
    members: Sequence[Member], session: HubSession, base_bytes: int
) -> list[SizedMember]:
    """Every member with its size, in order; at most `SAMPLE` requests a kind and format."""
    sizes: dict[int, tuple[int, Origin]] = {}
    unsized: dict[tuple[Kind, Format], list[int]] = defaultdict(list)
    for i, member in enumerate(members):
        known = _known_size(member)
        if known is not None:
            sizes[i] = known
        else:
            unsized[kind_of(member), format_of(member)].append(i)
    for (kind, _), places in unsized.items():
        requested = _request_some([members[i] for i in places], session)
        rest: tuple[int, Origin] = (0, "unknown")
        if requested:
            rest = (round(mean(requested.values())), "sample")
        elif kind in ("full", "merge") and base_bytes:
            rest = (base_bytes, "base")
        for i in places:
            own = requested.get(members[i].record.id)
            sizes[i] = rest if own is None else (own, "requested")
    return [
        SizedMember(member, kind_of(member), format_of(member), *sizes[i])
        for i, member in enumerate(members)
    ]


def _known_size(member: Member) -> tuple[int, Origin] | None:
    """A size that needs no request; of a model that is refused none is needed."""
    if member.hub is None:
        size = member.record.bytes_total
        return size, "files" if size else "unknown"
    stated = stated_bytes(member.hub)
    if stated is not None:
        return stated, "parameters"
    return None if member.refusal is None else (0, "unknown")


def _request_some(members: Sequence[Member], session: HubSession) -> dict[str, int]:
    """Sizes by id, of members evenly spread over all; those that fail are left out."""
    n = min(SAMPLE, len(members)) if not session.offline else 0
    sizes = {}
    for i in range(n):
        member = members[i * len(members) // n]
        assert member.hub is not None
        try:
            sizes[member.record.id] = request_bytes(member.hub, session)
        except ModelError:
            continue
    return sizes
