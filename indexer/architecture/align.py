"""Whether a model's slots are its base's: all for a checkpoint, some for an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import ModelError
from ..words import name_some
from .placement import PlacedModel, Placement


def require_same_layers(child: PlacedModel, base: PlacedModel) -> None:
    """Pass if both fill the same parts of the same slots with matrices of equal shape.

    Embeddings, heads and prefixes are free to differ.

    Raises:
        ModelError: `layer-mismatch` or `shape-mismatch`, naming the first few.
    """
    ours, theirs = child.by_key(), base.by_key()
    missing = [theirs[key] for key in theirs if key not in ours]
    added = [ours[key] for key in ours if key not in theirs]
    if missing or added:
        raise ModelError("layer-mismatch", _differences(missing, added, len(theirs)))
    _require_equal_shapes(child, base)


def require_within_base(adapter: PlacedModel, base: PlacedModel) -> None:
    """Pass if every matrix that the adapter changes is in the base, with equal shape.

    Raises:
        ModelError: `unknown-targets` or `shape-mismatch`, naming the first few.
    """
    theirs = base.by_key()
    absent = [p for p in adapter.placements if (p.slot, p.part) not in theirs]
    if absent:
        raise ModelError(
            "unknown-targets",
            f"the base has no {_slots(absent)} (modules {name_some(_tensors(absent))}); "
            "index the adapter with the base that it was trained on",
        )
    _require_equal_shapes(adapter, base)


def _require_equal_shapes(child: PlacedModel, base: PlacedModel) -> None:
    theirs = base.by_key()
    unequal: list[tuple[Placement, Placement]] = [
        (ours, theirs[key])
        for key, ours in child.by_key().items()
        if ours.shape != theirs[key].shape
    ]
    if unequal:
        ours, expected = unequal[0]
        more = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
        raise ModelError(
            "shape-mismatch",
            f"tensor {ours.tensor!r} gives {_label(ours)} the shape {ours.shape}, the base "
            f"has {expected.shape}{more}; index it with its own base",
        )


def _differences(missing: Sequence[Placement], added: Sequence[Placement], n: int) -> str:
    """One line that says which slots are on one side only."""
    said = []
    if missing:
        said.append(f"lacks {len(missing)} of the base's {n} layer matrices: {_slots(missing)}")
    if added:
        said.append(f"has {len(added)} that the base lacks: {_slots(added)}")
    if any(p.slot.role == "qkv" for p in (*missing, *added)):
        said.append("one config.json does not say how a fused q/k/v matrix is laid out")
    return "; ".join(said) + "; index it with its own base"


def _slots(placements: Sequence[Placement]) -> str:
    return name_some([_label(p) for p in placements]).replace("'", "")


def _label(placement: Placement) -> str:
    return f"{placement.slot}.{placement.part}" if placement.part else str(placement.slot)


def _tensors(placements: Iterable[Placement]) -> list[str]:
    return list(dict.fromkeys(p.tensor for p in placements))
