"""What differs between two indexed models of one family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import RequestError
from ..records import Slot, SlotStats
from ..store import Catalog, ModelRow

MOST_CHANGED = 8
"""Slots that are listed."""

ALIKE, RELATED = 0.9, 0.3
"""Cosines from which two updates are called nearly the same, and related."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDifference:
    """One slot of both models.

    Attributes:
        change: |ΔW| / |W| of each; |ΔW| where W was not read; 0 where one left it alone.
        stable_rank: Of each.
        cosine: Of their updates, estimated from sketches; None where one lacks it.
    """

    slot: Slot
    change: tuple[float, float]
    stable_rank: tuple[float, float]
    cosine: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "slot": str(self.slot),
            "change": list(self.change),
            "stable_rank": list(self.stable_rank),
            "cosine": self.cosine,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two models, A and B.

    Attributes:
        unit: Of `change`: `relative` to |W|, or `absolute`.
        cosine: Of all updates together, before any mean is taken out.
        by_layer, by_role: |ΔW| over all slots of a layer or role, of A and of B.
        edited: What `deltadex profile` found to be edited most, where it was run.
    """

    models: tuple[str, str]
    base: str
    sentence: str
    unit: str
    cosine: float | None
    slots: tuple[SlotDifference, ...]
    by_layer: Mapping[str, tuple[float, float]]
    by_role: Mapping[str, tuple[float, float]]
    profiles: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The documented keys, ready for json.dumps."""
        most = sorted(self.slots, key=lambda s: -abs(s.change[0] - s.change[1]))
        return {
            "models": list(self.models),
            "base": self.base,
            "sentence": self.sentence,
            "unit": self.unit,
            "cosine": self.cosine,
            "by_layer": {name: list(pair) for name, pair in self.by_layer.items()},
            "by_role": {name: list(pair) for name, pair in self.by_role.items()},
            "most_different": [slot.to_json() for slot in most[:MOST_CHANGED]],
            "slots": [slot.to_json() for slot in self.slots],
            "profiles": dict(self.profiles),
        }


def diff_models(catalog: Catalog, first: str, second: str, base: str | None) -> Difference:
    """From what the catalog holds of both; nothing is read again.

    Raises:
        RequestError: one of them is not indexed, or they are of two families.
    """
    one = catalog.model(first, base)
    other = catalog.model(second, base or one.base)
    for row in (one, other):
        if row.status != "indexed":
            raise RequestError(f"{row.id} is not indexed ({row.code}: {row.reason})")
    mine = {stats.slot: stats for stats in catalog.slots_of(one.key)}
    theirs = {stats.slot: stats for stats in catalog.slots_of(other.key)}
    relative = all(stats.relative_norm is not None for stats in (*mine.values(), *theirs.values()))
    slots = tuple(
        _slot(slot, mine.get(slot), theirs.get(slot), relative=relative)
        for slot in sorted({*mine, *theirs})
    )
    cosine = _whole_cosine(mine, theirs)
    by_layer = _sums(mine, theirs, lambda slot: f"{slot.stack} {slot.layer + 1}")
    by_role = _sums(mine, theirs, lambda slot: slot.role)
    profiles = {row.id: _profile(catalog, row) for row in (one, other)}
    return Difference(
        models=(one.id, other.id),
        base=one.base,
        sentence=_sentence(one, other, cosine, by_layer, by_role, mine, theirs),
        unit="relative" if relative else "absolute",
        cosine=cosine,
        slots=slots,
        by_layer=by_layer,
        by_role=by_role,
        profiles={name: found for name, found in profiles.items() if found},
    )


def _slot(
    slot: Slot, mine: SlotStats | None, theirs: SlotStats | None, *, relative: bool
) -> SlotDifference:
    def change(stats: SlotStats | None) -> float:
        if stats is None:
            return 0.0
        return float(stats.relative_norm or 0.0) if relative else stats.fro_norm

    return SlotDifference(
        slot=slot,
        change=(change(mine), change(theirs)),
        stable_rank=(mine.stable_rank if mine else 0.0, theirs.stable_rank if theirs else 0.0),
        cosine=_cosine(mine, theirs),
    )


def _cosine(mine: SlotStats | None, theirs: SlotStats | None) -> float | None:
    if mine is None or theirs is None:
        return None
    a, b = mine.sketch.astype(np.float64), theirs.sketch.astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    if len(a) != len(b) or not lengths:
        return None
    return float(a @ b) / lengths


def _whole_cosine(mine: Mapping[Slot, SlotStats], theirs: Mapping[Slot, SlotStats]) -> float | None:
    """Over all slots; one that a model lacks counts as zero."""
    inner, a_sq, b_sq = 0.0, 0.0, 0.0
    for slot in {*mine, *theirs}:
        a = mine[slot].sketch.astype(np.float64) if slot in mine else np.zeros(0)
        b = theirs[slot].sketch.astype(np.float64) if slot in theirs else np.zeros(0)
        a_sq, b_sq = a_sq + float(a @ a), b_sq + float(b @ b)
        if a.size and b.size:
            if a.size != b.size:
                return None
            inner += float(a @ b)
    return inner / (a_sq * b_sq) ** 0.5 if a_sq and b_sq else None


def _sums(
    mine: Mapping[Slot, SlotStats], theirs: Mapping[Slot, SlotStats], name: Any
) -> dict[str, tuple[float, float]]:
    """|ΔW| of A and B over the slots of each name, in slot order."""
    squares: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for slot in sorted({*mine, *theirs}):
        for side, stats in enumerate((mine.get(slot), theirs.get(slot))):
            squares[name(slot)][side] += stats.fro_norm**2 if stats else 0.0
    return {key: (a**0.5, b**0.5) for key, (a, b) in squares.items()}


def _profile(catalog: Catalog, row: ModelRow) -> dict[str, Any] | None:
    """The lines of a stored profile that two models are compared by."""
    document = catalog.studies(row.key).latest("profile")
    if document is None:
        return None
    stacks = document["components"]["stacks"]
    return {
        "most_edited": {name: stack["most_edited"] for name, stack in stacks.items()},
        "total_shift": {name: stack["total_shift"][-1] for name, stack in stacks.items()},
        "activation_shift": document["activation_shift"]["length"],
        "anisotropy_last_layer": document["geometry"]["anisotropy_centred"][-1],
        "base_layer_classifier": document["layers"]["base_classifier"],
    }


def _sentence(
    one: ModelRow,
    other: ModelRow,
    cosine: float | None,
    by_layer: Mapping[str, tuple[float, float]],
    by_role: Mapping[str, tuple[float, float]],
    mine: Mapping[Slot, SlotStats],
    theirs: Mapping[Slot, SlotStats],
) -> str:
    """The whole of it in a plain sentence or two."""
    if cosine is None:
        related = "cannot be compared direction by direction"
    elif cosine >= ALIKE:
        related = f"are nearly the same update (cosine {cosine:.2f})"
    elif cosine >= RELATED:
        related = f"are related updates (cosine {cosine:.2f})"
    else:
        related = f"point in different directions (cosine {cosine:.2f})"
    lengths = [sum(pair[side] ** 2 for pair in by_role.values()) ** 0.5 for side in (0, 1)]
    size = "They changed their base about equally"
    if min(lengths) > 0 and max(lengths) / min(lengths) >= 1.2:
        larger = (one.id, other.id)[lengths.index(max(lengths))]
        size = f"{larger} changed its base {max(lengths) / min(lengths):.1f} times as much"
    stack, layer = _widest(by_layer).split()
    where = f"most in layer {layer} of the {stack} and in role {_widest(by_role)}"
    only = [
        f"only {row.id} touches {_listed([str(s) for s in sorted({*a} - {*b})])}"
        for row, a, b in ((one, mine, theirs), (other, theirs, mine))
        if {*a} - {*b}
    ]
    told = "; ".join([f"{size}; they differ {where}", *only])
    return f"{one.id} and {other.id} {related}. {told}."


def _widest(sums: Mapping[str, tuple[float, float]]) -> str:
    """Where the share of A's and of B's update differ most."""
    totals = [sum(pair[side] ** 2 for pair in sums.values()) or 1.0 for side in (0, 1)]
    return max(
        sums, key=lambda name: abs(sums[name][0] ** 2 / totals[0] - sums[name][1] ** 2 / totals[1])
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:2])
    return shown + (f" and {len(names) - 2} more slots" if len(names) > 2 else "")
