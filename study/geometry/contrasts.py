"""Trained against untrained, and texts as written against the same words scrambled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..report_json import JsonRecord
from .geometry_options import GeometryOptions
from .paired_measures import ComparedGroup, PairedMeasure, compare_groups
from .scrambling import scrambled_group


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(JsonRecord):
    """One group under two conditions; every difference is first − second.

    Attributes:
        condition: What the second is.
        group: The group's name.
    """

    condition: Literal["untrained", "scrambled"]
    group: str
    measures: tuple[PairedMeasure, ...]


def contrasts(
    trained: Sequence[ComparedGroup], untrained: Sequence[ComparedGroup], options: GeometryOptions
) -> tuple[Contrast, ...]:
    """Of every group with its untrained one, and with its scrambled one, where they exist."""
    fresh = {group.geometry.group: group for group in untrained}
    by_name = {group.geometry.group: group for group in trained}
    found = []
    permuted = {scrambled_group(name) for name in by_name}
    for name, group in by_name.items():
        if name in permuted:
            continue
        others: list[tuple[Literal["untrained", "scrambled"], ComparedGroup | None]] = [
            ("untrained", fresh.get(name)),
            ("scrambled", by_name.get(scrambled_group(name))),
        ]
        found += [
            Contrast(
                condition=condition, group=name, measures=compare_groups(group, other, options)
            )
            for condition, other in others
            if other is not None
        ]
    return tuple(found)
