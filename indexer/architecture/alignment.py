"""Whether a model's slots are its base's; an adapter in the slots of a base that can be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import ModelError
from ...records import Slot
from ...results import agree, count
from ..untrusted_text import name_some
from .in_memory import StoredRows, stored_modules
from .names import OPEN_PATH, WEIGHT, find_number, layer_paths, path_ends, table
from .placement import PlacedModel, Placement, as_one, label, refuse_factors, sort_key


def require_same_layers(child: PlacedModel, base: PlacedModel) -> None:
    """Pass if both fill the same parts of the same slots with matrices of equal shape, and what no
    slot takes in one is in the other, too."""
    pairs = pair_unread(child.unread, base.unread)
    require_none_new([name for name in child.unread if name not in pairs])
    ours, theirs = child.by_key, base.by_key
    missing = [placement for key, placement in theirs.items() if key not in ours]
    added = [placement for key, placement in ours.items() if key not in theirs]
    # a fused matrix of another shape may not be cut as the base's is
    fused = {_module(own[0]): as_one(own) for own in base.by_tensor().values() if len(own) > 1}
    whole = [p for p in added if (p.rows, p.index) == (None, None) and _module(p) in fused]
    others = {p.key: fused[_module(p)] for p in whole if p.shape != fused[_module(p)].shape}
    cut = {_module(own) for own in others.values() if own.index is None}
    missing = [p for p in missing if _module(p) not in cut]
    added = [p for p in added if _module(p) not in cut]
    if missing or added:
        raise ModelError("layer-mismatch", _differences(missing, added, len(theirs)))
    if lost := sorted(set(base.unread) - set(pairs.values())):
        raise ModelError("layer-mismatch", f"lacks {name_some(lost)} of the base's layers")
    _require_equal_shapes([(p, others.get(p.key) or theirs[p.key]) for p in child.placements])


def _module(placement: Placement) -> tuple[str, str]:
    return placement.slot.stack, placement.module


def pair_unread(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """The base's tensor of each of a model's that no slot takes, where it has one of the same name
    from the layers on."""
    by_end = {_from_layers(name): name for name in theirs}
    pairs = {name: by_end.get(_from_layers(name)) for name in ours}
    return {name: other for name, other in pairs.items() if other is not None}


def require_none_new(names: Sequence[str]) -> None:
    """Refuse, as `not-read`, a model with these tensors in its layers, which its base has not."""
    refuse_factors(names)
    if names:
        raise ModelError(
            "not-read",
            f"no slot and no tensor of the base for {count(len(names), 'tensor')} of its layers: "
            f"{name_some(names)}; expected the matrices of the base's layers",
        )


def _from_layers(name: str) -> str:
    """A tensor's name from the path of its layers on, whatever it is wrapped in."""
    module = name.removesuffix(WEIGHT)
    match = next(layer_paths(module), None)
    if match is not None:
        return module[match.start() :]
    parts = module.split(".")
    first = next((n for n, part in enumerate(parts) if part.isdecimal()), 1)
    return ".".join(parts[max(0, first - 1) :])


def in_slots_of(
    adapter: PlacedModel, base: PlacedModel, config: Mapping[str, Any] | None = None
) -> PlacedModel:
    """The same with each module that the base has by name, and with as many rows and columns, in
    the slots that the base has it in: by its stored name, or else by the one that it has when
    transformers loads it by the base's config."""
    parts, modules = base.by_tensor(), adapter.by_tensor()
    found = {
        module: _of_one_shape(parts.get(_same_module(module, base) or "", []), module, own)
        for module, own in modules.items()
    }
    stored = {} if all(found.values()) else stored_modules(_heights(parts), config)
    for module, own in modules.items():
        if not found[module]:
            found[module] = _of_pieces(_pieces(module, stored), module, own, parts) or [
                _in_only_stack(p, base) for p in own
            ]
    placements = sorted((p for own in found.values() for p in own), key=sort_key)
    return replace(adapter, placements=tuple(placements))


def loaded_shape(
    module: str, base: PlacedModel, config: Mapping[str, Any] | None
) -> tuple[int, int] | None:
    """(out, in) of a module that the base has only by the name that transformers loads it under."""
    parts = base.by_tensor()
    pieces = _pieces(module, stored_modules(_heights(parts), config))
    n_rows = sum(row >= 0 for _, rows in pieces for row in rows)
    return (n_rows, as_one(parts[pieces[0][0]]).shape[1]) if pieces else None


def _pieces(module: str, stored: Mapping[str, tuple[StoredRows, ...]]) -> tuple[StoredRows, ...]:
    ends = {stored[end] for end in path_ends(module, len(module)) if end in stored}
    return ends.pop() if len(ends) == 1 else ()


def _heights(parts: Mapping[str, Sequence[Placement]]) -> dict[str, int]:
    return {tensor: sum(p.shape[0] for p in placed) for tensor, placed in parts.items()}


def _of_one_shape(
    theirs: Sequence[Placement], module: str, own: Sequence[Placement]
) -> list[Placement]:
    """The base's placements of a module's matrix; none where it is of another shape."""
    is_one = bool(theirs) and all(p.index is None for p in (*own, *theirs))
    if not is_one or as_one(theirs).shape != as_one(own).shape:
        return []
    return [replace(p, tensor=module, transposed=False) for p in theirs]


def _of_pieces(
    pieces: Sequence[StoredRows],
    module: str,
    own: Sequence[Placement],
    parts: Mapping[str, Sequence[Placement]],
) -> list[Placement]:
    """The base's placements of the rows that a module is loaded from, in the module's order; none
    where they are of another shape. The rows of a slot that another module has are -1."""
    if len(pieces) == 1 and isinstance(pieces[0][1], range):
        return _of_one_shape(parts[pieces[0][0]], module, own)
    found = []
    for tensor, numbers in pieces:
        places = {row: place for place, row in enumerate(numbers) if row >= 0}
        for p in parts[tensor]:
            if p.index is not None or p.transposed:
                return []
            rows = tuple(places.get(row, -1) for row in p.row_numbers)
            if max(rows) >= 0:
                found.append(replace(p, tensor=module, rows=rows))
    places_filled = [row for p in found for row in p.row_numbers if row >= 0]
    n_rows, width = as_one(own).shape
    fits = sorted(places_filled) == list(range(n_rows)) and {p.shape[1] for p in found} == {width}
    return found if fits and all(p.index is None for p in own) else []


def _in_only_stack(placement: Placement, base: PlacedModel) -> Placement:
    """The same in the one stack of the base that has such a matrix, where its own has none and is a
    guess."""
    slot, part = placement.key
    if placement.key in base.by_key or not placement.module.startswith(f"{OPEN_PATH}."):
        return placement
    keys = ((replace(slot, stack=stack), part) for stack in base.stacks)
    alike = [
        key for key in keys if key in base.by_key and base.by_key[key].shape == placement.shape
    ]
    return replace(placement, slot=alike[0][0]) if len(alike) == 1 else placement


def _same_module(module: str, base: PlacedModel) -> str | None:
    """The base's tensor whose name agrees with a module's to the most words from the end; None
    where no block's does, or several do."""
    ends = (base.by_end.get(end) for end in path_ends(module, base.longest_module))
    tensors = next(filter(None, ends), ())
    for end in path_ends(module, len(module)):
        best = [name for name in tensors if f".{name.removesuffix(WEIGHT)}".endswith(f".{end}")]
        if best:
            return best[0] if len(best) == 1 else None
    return None


def require_within_base(adapter: PlacedModel, base: PlacedModel) -> None:
    """Pass if every matrix that the adapter changes is in the base, with equal shape."""
    absent = [p for p in adapter.placements if p.key not in base.by_key]
    if absent:
        modules = name_some(list(dict.fromkeys(p.tensor for p in absent)))
        raise ModelError(
            "unknown-targets",
            f"the base has no {_slots(absent)} (modules {modules}); "
            "index the adapter with the base that it was trained on",
        )
    _require_equal_shapes([(p, base.by_key[p.key]) for p in adapter.placements])


def _require_equal_shapes(pairs: Iterable[tuple[Placement, Placement]]) -> None:
    unequal = [(p, own) for p, own in pairs if p.shape != own.shape]
    if unequal:
        first, expected = unequal[0]
        more = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
        raise ModelError(
            "shape-mismatch",
            f"tensor {first.tensor!r} gives {label(first)} the shape {first.shape}, the base "
            f"has {expected.shape}{more}; index it with its own base",
        )


def _differences(missing: Sequence[Placement], added: Sequence[Placement], n: int) -> str:
    differences = []
    if missing:
        lost = f"{len(missing)} of the base's {count(n, 'layer matrix')}"
        differences.append(f"lacks {lost}: {_slots(missing)}")
    if added:
        differences.append(f"has {len(added)} that the base lacks: {_slots(added)}")
    if any(p.slot.role == "qkv" for p in (*missing, *added)):
        differences.append("one config.json does not say how a fused q/k/v matrix is laid out")
    return "; ".join(differences) + "; index it with its own base"


def _slots(placements: Sequence[Placement]) -> str:
    return name_some([label(p) for p in placements]).replace("'", "")


def is_cut_otherwise(adapter: PlacedModel, stored: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the models of the family (`stored`: (out, in) by slot) have a fused matrix of the
    adapter in other slots than it has without the base's config, which alone tells its rows."""
    stacks = {name.partition(".")[0] for name in stored}
    values = {Slot.parse(name).stack for name in stored if name.endswith(".v")}
    for own in adapter.by_tensor().values():
        slot, heights = own[0].slot, [stored.get(str(p.slot), p.shape)[0] for p in own]
        if slot.role == "qkv":
            others = values & ({slot.stack} if slot.stack in stacks else stacks)
            if str(replace(slot, role="v")) in stored or (others and str(slot) not in stored):
                return True
        cut = [p.shape[0] for p in own]
        if heights != cut and sum(heights) == sum(cut):
            return True
    return False


def require_known_slots(
    adapter: PlacedModel, shapes: Mapping[str, tuple[int, int]], base_name: str
) -> None:
    """Pass if most matrices that an adapter changes may be those of a base by what its models have
    (`shapes`: as of `IndexJob`), else `other-base`. A role or layer that no model of the family
    changed yet may be there; a stack may, where models of that architecture have several."""
    if not shapes:
        return
    stacks = {name.partition(".")[0] for name in shapes}
    foreign = [p for p in adapter.placements if _is_foreign(p, shapes, stacks)]
    if 2 * len(foreign) > len(adapter.placements):
        first = foreign[0]
        known = shapes.get(str(first.slot)) or f"no {first.slot.stack}"
        raise ModelError(
            "other-base",
            f"{len(foreign)} of {count(len(adapter.placements), 'matrix')} "
            f"{agree(len(foreign), 'is')} none of {base_name}'s: "
            f"{name_some([first.tensor])} fills {first.slot} with the shape {first.shape}, its "
            f"models have {known}; index it with its own base",
        )


def _is_foreign(
    placement: Placement, shapes: Mapping[str, tuple[int, int]], stacks: Collection[str]
) -> bool:
    slot = placement.slot
    known = shapes.get(str(slot))
    if known is None and slot.stack not in stacks:
        number = find_number(placement.module)
        path = number.path if number else ""
        if path != OPEN_PATH:
            return path not in table().beside_others
        if slot.stack != table().layers[path]:  # a tower beside the language model
            return False
        # without a config its stack is a guess: the matrix may be known under another
        others = (shapes.get(f"{stack}.{slot.layer}.{slot.role}") for stack in sorted(stacks))
        return placement.shape not in others
    return placement.part == "" and known not in (None, placement.shape)
