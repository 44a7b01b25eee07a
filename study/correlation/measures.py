"""Measures by name: every number of a study's document, with its group of texts and its layer.

A measure's name is the way to it through the document, `geometry.groups.layers.anisotropy.centred`,
where entries of a list are told apart by what names them. Any parts between the first and the last
may be left out: `geometry.anisotropy.centred`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import RequestError, nearest_names
from ...records import SlotStats

CONTAINERS = ("groups", "layers", "stacks", "curves", "points", "slots")
"""Parts that are left out where names are listed."""

IDENTIFIERS = ("stack", "role", "slot", "name", "estimator", "theta")
"""Keys whose values tell the entries of a list apart."""

COLUMN_AXES = ("terms", "local_terms", "thetas")
"""Keys beside a list whose entries name that list's."""

FROM_BLOCK_1 = ("local_shift",)
"""Lists by block: the first entry is of layer 1."""

MOST_SHOWN = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of a document.

    Attributes:
        name: Its way through the document, with the study first.
        group: Of the texts; None where it is of all.
        layer: None where it is of the whole network.
    """

    name: str
    value: float
    group: str | None = None
    layer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The numbers of one model under one name."""

    model: str
    numbers: tuple[Number, ...]

    def value(
        self, *, layer: int | None = None, last: bool = False, group: str | None = None
    ) -> float | None:
        """The mean over the layers and groups that are asked for; None where there is none."""
        chosen = [n for n in self.numbers if group is None or n.group == group]
        layers = [n.layer for n in chosen if n.layer is not None]
        if last and layers:
            layer = max(layers)
        if layer is not None:
            chosen = [n for n in chosen if n.layer == layer]
        return float(np.mean([n.value for n in chosen])) if chosen else None

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of texts that have a number."""
        return tuple(dict.fromkeys(n.group for n in self.numbers if n.group is not None))

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have a number, ascending."""
        return tuple(sorted({n.layer for n in self.numbers if n.layer is not None}))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a walk through a document is."""

    name: tuple[str, ...]
    group: str | None = None
    layer: int | None = None
    depth: int | None = field(default=None)

    def at(self, *parts: object, **changes: Any) -> _Place:
        kept = {"group": self.group, "layer": self.layer, "depth": self.depth}
        return _Place((*self.name, *map(str, parts)), **kept | changes)


def numbers_of(study: str, document: Mapping[str, Any]) -> tuple[Number, ...]:
    """Every number of a study's document that a name leads to."""
    depth = document.get("n_layers")
    return tuple(_walk(document, _Place((study,), depth=depth if _is_number(depth) else None)))


def find_measure(measure: str, names: Iterable[str]) -> str:
    """The name that a measure stands for: its first and last part are those of the name.

    Raises:
        RequestError: none does, or several do; lists names.
    """
    known = sorted(set(names))
    if measure in known:
        return measure
    matches = [name for name in known if _abbreviates(measure.split("."), name.split("."))]
    # of a group and of its layers: the name as it is listed is the one that is nearer to the top
    listed_as = sorted((n for n in matches if short_name(n) == measure), key=lambda n: n.count("."))
    if len(matches) == 1 or listed_as:
        return [*listed_as, *matches][0]
    if matches:
        shown = ", ".join(_shown(matches))
        raise RequestError(f"{measure!r} stands for several measures: {shown}")
    near = nearest_names(measure, map(short_name, known))
    study = [name for name in known if name.split(".")[0] == measure.split(".")[0]]
    listed = list(dict.fromkeys([*near, *_shown(study or known)]))
    raise RequestError(
        f"no measure {measure!r} is stored; "
        + (f"there are: {', '.join(listed[:MOST_SHOWN])}" if listed else "run a study first")
        + (f" and {len(listed) - MOST_SHOWN} more" if len(listed) > MOST_SHOWN else "")
    )


def measure_names(numbers: Iterable[Number]) -> list[str]:
    """The different names, in order of appearance."""
    return list(dict.fromkeys(number.name for number in numbers))


def short_name(name: str) -> str:
    """The name without the parts that only hold others; a measure that `find_measure` takes."""
    first, *between, last = name.split(".")
    return ".".join([first, *(part for part in between if part not in CONTAINERS), last])


def family_values(slots: Sequence[SlotStats], *, layer: int | None = None) -> dict[str, float]:
    """Measures of a model's whole update, over its slots, or over those of one layer.

    Norms add up by their squares: `slots.relative_norm` is √(Σ|ΔW|² / Σ|W|²).
    """
    chosen = [slot for slot in slots if layer is None or slot.slot.layer == layer]
    if not chosen:
        return {}
    energy = sum(slot.fro_norm**2 for slot in chosen)
    values = {
        "slots.fro_norm": energy**0.5,
        "slots.stable_rank": float(np.mean([slot.stable_rank for slot in chosen])),
        "slots.changed": float(sum(slot.fro_norm > slot.noise_floor for slot in chosen)),
    }
    measured = [slot for slot in chosen if slot.relative_norm]
    if len(measured) == sum(slot.fro_norm > 0 for slot in chosen) and measured:
        weights = sum((slot.fro_norm / float(slot.relative_norm or 1)) ** 2 for slot in measured)
        values["slots.relative_norm"] = (energy / weights) ** 0.5
    return values


def _walk(value: Mapping[str, Any], place: _Place) -> Iterator[Number]:
    group, layer = value.get("group"), value.get("layer")
    if isinstance(group, str):
        place = place.at(group=group)
    if isinstance(layer, int):
        place = place.at(layer=layer)
    for key, child in value.items():
        if key in ("group", "layer"):
            continue
        if _is_number(child):
            yield _number(place.at(key), float(child))
        elif isinstance(child, Mapping):
            yield from _walk(child, place.at(key))
        elif isinstance(child, list) and child:
            yield from _walk_list(child, key, value, place)


def _walk_list(
    entries: list[Any], key: str, beside: Mapping[str, Any], place: _Place
) -> Iterator[Number]:
    """A list of records, of numbers by layer or term, or of such lists by layer."""
    if all(isinstance(entry, Mapping) for entry in entries):
        for entry in entries:
            own = [entry[name] for name in IDENTIFIERS if isinstance(entry.get(name), str | float)]
            inner = {k: v for k, v in entry.items() if k not in IDENTIFIERS}
            yield from _walk(inner, place.at(key, *own))
        return
    columns = next(
        (beside[axis] for axis in COLUMN_AXES if len(entries) == len(beside.get(axis) or ())), None
    )
    if all(entry is None or _is_number(entry) for entry in entries):
        by_layer = place.layer is None and _is_by_layer(len(entries), beside, place.depth)
        for index, entry in enumerate(entries):
            if entry is None or not (columns or by_layer):
                continue
            at = place.at(key, layer=index) if by_layer else place.at(key, (columns or ())[index])
            yield _number(at, float(entry))
    elif all(isinstance(entry, list) for entry in entries):
        start = 1 if key in FROM_BLOCK_1 else 0
        inner_axes = {axis: beside[axis] for axis in COLUMN_AXES if axis in beside}
        for index, row in enumerate(entries, start=start):
            if row and inner_axes:
                yield from _walk_list(row, key, inner_axes, place.at(layer=index))


def _is_by_layer(length: int, beside: Mapping[str, Any], depth: int | None) -> bool:
    if isinstance(beside.get("layers"), list):
        return length == len(beside["layers"])
    return depth is not None and length in (depth, depth + 1)


def _number(place: _Place, value: float) -> Number:
    name = ".".join(place.name)
    return Number(name=name, value=value, group=place.group, layer=place.layer)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _abbreviates(parts: Sequence[str], name: Sequence[str]) -> bool:
    if not parts or parts[0] != name[0] or parts[-1] != name[-1]:
        return False
    rest = iter(name)
    return all(part in rest for part in parts)


def _shown(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(short_name(name) for name in names))
