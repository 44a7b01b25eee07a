"""Give the tensors of a checkpoint, or the modules of an adapter, their slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ...errors import ModelError
from ..words import name_some
from .attention_config import read_attention_config
from .located import Spot, find_number, locate
from .pieces import place_stack
from .placement import Key, PlacedModel, Placement, sort_key
from .rules import is_ignored, table
from .stacks import common_prefix, gather_stacks

Shape = tuple[int, ...]

WEIGHT = ".weight"
ATTENTION_ROLES = frozenset(("q", "k", "v", "qkv", "o", "cross_q", "cross_k", "cross_v", "cross_o"))


def place(shapes: Mapping[str, Shape], config: Mapping[str, object] | None) -> PlacedModel:
    """The slots of a checkpoint's tensors, whatever their prefix and order.

    Args:
        shapes: As stored, by full name; matrices end in `.weight`, stacked experts do not.
        config: The model's config.json; only interleaved layouts need it.

    Raises:
        ModelError: `no-attention`; `unknown-architecture` when two tensors claim one slot,
            or nothing that attends can be placed.
    """
    return _place(shapes, config, stored=True)


def place_modules(shapes: Mapping[str, Shape], config: Mapping[str, object] | None) -> PlacedModel:
    """The slots of an adapter's modules; some layers or none may be there.

    Without a config, a `c_attn` with three times as many rows as columns is GPT-2's.

    Args:
        shapes: (out, in) by module path, as named on disk or in memory by any transformers;
            stacked experts (expert, out, in).
        config: The base's config.json, where it is at hand.

    Raises:
        ModelError: `unknown-architecture` when two modules claim one slot.
    """
    return _place(shapes, config, stored=False)


def _place(
    shapes: Mapping[str, Shape], config: Mapping[str, object] | None, *, stored: bool
) -> PlacedModel:
    facts = read_attention_config(config)
    spots, unknown, rest = _locate_all(shapes, stored=stored)
    stacks = gather_stacks(spots, shapes.keys(), facts)
    placements = [
        placement
        for stack, group in stacks.items()
        for placement in place_stack(stack, group, facts, stored=stored)
    ]
    unknown += _unknown(rest, shapes, stored=stored)
    placed = PlacedModel(
        placements=tuple(sorted(placements, key=sort_key)),
        prefix=common_prefix(stacks),
        ignored=tuple(sorted(set(rest) - set(unknown))),
        unknown=tuple(sorted(unknown)),
    )
    _refuse_doubles(placed.placements)
    if stored:
        _require_attention(placed)
    return placed


def _locate_all(
    shapes: Mapping[str, Shape], *, stored: bool
) -> tuple[list[Spot], list[str], list[str]]:
    """(placeable, known by name but of the wrong kind, all others)."""
    spots, odd, rest = [], [], []
    for name, shape in shapes.items():
        spot = locate(name, name.removesuffix(WEIGHT), shape)
        if spot is None or (stored and spot.rule.stacked == name.endswith(WEIGHT)):
            rest.append(name)
        elif len(shape) != (3 if spot.rule.stacked else 2):
            odd.append(name)
        else:
            spots.append(spot)
    return spots, odd, rest


def _unknown(names: Iterable[str], shapes: Mapping[str, Shape], *, stored: bool) -> list[str]:
    """Those names that are matrices of layers, of which nothing is known.

    In a checkpoint only layers that attend count, so that a numbered head is no obstacle.
    """
    numbered = {name: find_number(name.removesuffix(WEIGHT)) for name in shapes}
    attends = table().attention_word.search
    attending = {n.before for n in numbered.values() if n and attends(n.suffix)}
    found = []
    for name in names:
        number = numbered[name]
        if number is None or not _is_matrix(shapes[name]):
            continue
        counts = number.before in attending or (number.path != "" and not stored)
        if counts and not is_ignored(number.path, number.suffix):
            found.append(name)
    return found


def _is_matrix(shape: Shape) -> bool:
    """Two or three dimensions, of which two are more than 1."""
    return len(shape) in (2, 3) and sum(size > 1 for size in shape) > 1


def _refuse_doubles(placements: Sequence[Placement]) -> None:
    tensors: dict[Key, list[str]] = defaultdict(list)
    for placement in placements:
        tensors[placement.slot, placement.part].append(placement.tensor)
    for (slot, part), names in tensors.items():
        if len(names) > 1:
            where = f"{slot}.{part}" if part else str(slot)
            raise ModelError(
                "unknown-architecture",
                f"{name_some(names)} all fill {where}: expected one tensor",
            )


def _require_attention(placed: PlacedModel) -> None:
    if any(p.slot.role in ATTENTION_ROLES for p in placed.placements):
        return
    placed.require_known()
    seen = name_some(placed.ignored[:2]) or "none"
    raise ModelError(
        "no-attention",
        f"has no attention matrix among its tensors (it has {seen}); only models with "
        "attention layers can be fingerprinted",
    )
