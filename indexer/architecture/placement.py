"""Where stored tensors belong, and whether a model's slots are its base's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ...errors import ModelError
from ...records import ROLES, Slot
from ..untrusted_text import name_some

Key = tuple[Slot, str]
"""A slot and the part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One slot's matrix, or one part of it, inside a stored tensor.

    Attributes:
        slot: The position it fills.
        part: "" for the usual single matrix; else names the piece ("expert.3",
            "shared", "q_a", …): parts of one slot are blocks of one update.
        module: Canonical name without prefix, as in the base's own file.
        tensor: The stored tensor's full name in the checkpoint at hand.
        index: Leading index where experts are stacked in one tensor.
        transposed: Stored in × out (GPT-2's Conv1D, gpt_oss experts).
        rows: Output rows (after transposing) that belong here; None = all.
        shape: (out, in) of the resulting matrix.
    """

    slot: Slot
    part: str
    module: str
    tensor: str
    index: int | None = None
    transposed: bool = False
    rows: slice | tuple[int, ...] | None = None
    shape: tuple[int, int]

    @property
    def key(self) -> Key:
        """The slot and the part of it."""
        return self.slot, self.part

    @property
    def first_row(self) -> int:
        if self.rows is None:
            return 0
        return (self.rows.start or 0) if isinstance(self.rows, slice) else self.rows[0]

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """This placement's (out, in) matrix as a view where possible, dtype kept."""
        return self.cut_matrix(tensor if self.index is None else tensor[self.index])

    def cut_matrix(self, matrix: torch.Tensor) -> torch.Tensor:
        """The same from the stored matrix at its index."""
        return self.cut_rows(matrix.T if self.transposed else matrix)

    def cut_rows(self, matrix: torch.Tensor) -> torch.Tensor:
        """The rows of an (out, …) matrix that belong here: a fused ΔW, or its left factor."""
        if self.rows is None:
            return matrix
        if isinstance(self.rows, slice):
            return matrix[self.rows]
        return matrix[torch.tensor(self.rows)]


@dataclass(frozen=True, kw_only=True)
class PlacedModel:
    """Where every tensor of a checkpoint, or every module of an adapter, belongs.

    Attributes:
        placements: By stack, layer, role and part; no two fill the same part of a slot.
        ignored: Known to be no slot: embeddings, heads, norms, routers, convolutions, ….
        unknown: Matrices inside numbered layers that no rule places.
    """

    placements: tuple[Placement, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]

    def require_known(self) -> None:
        """Raise `unknown-architecture`, naming them, if some layer matrices are unknown."""
        if self.unknown:
            raise ModelError(
                "unknown-architecture",
                f"cannot place {name_some(self.unknown)}: expected layer matrices named as "
                "transformers names them; such an architecture is not supported yet",
            )

    def by_tensor(self) -> dict[str, list[Placement]]:
        """The placements by stored tensor, or by module of an adapter, in order."""
        placements: dict[str, list[Placement]] = {}
        for placement in self.placements:
            placements.setdefault(placement.tensor, []).append(placement)
        return placements

    @cached_property
    def by_key(self) -> Mapping[Key, Placement]:
        """The placements by slot and part, in order."""
        return {placement.key: placement for placement in self.placements}

    @cached_property
    def by_module(self) -> Mapping[str, Placement]:
        """The first placement of every module."""
        return {placement.module: placement for placement in reversed(self.placements)}

    @cached_property
    def longest_module(self) -> int:
        """Characters of the longest module path."""
        return max(map(len, self.by_module), default=0)


def sort_key(placement: Placement) -> tuple[str, int, int, str, int]:
    """Order of placements: stack, layer, role as printed, part with its number."""
    slot = placement.slot
    part = placement.part.rstrip("0123456789")
    number = int(placement.part[len(part) :] or -1)
    return slot.stack, slot.layer, ROLES.index(slot.role), part, number


def require_same_layers(child: PlacedModel, base: PlacedModel) -> None:
    """Pass if both fill the same parts of the same slots with matrices of equal shape.

    Embeddings, heads and prefixes are free to differ.
    """
    ours, theirs = child.by_key, base.by_key
    missing = [placement for key, placement in theirs.items() if key not in ours]
    added = [placement for key, placement in ours.items() if key not in theirs]
    if missing or added:
        raise ModelError("layer-mismatch", _differences(missing, added, len(theirs)))
    _require_equal_shapes(child, base)


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
    _require_equal_shapes(adapter, base)


def _require_equal_shapes(child: PlacedModel, base: PlacedModel) -> None:
    unequal = [p for p in child.placements if p.shape != base.by_key[p.key].shape]
    if unequal:
        first, expected = unequal[0], base.by_key[unequal[0].key]
        more = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
        raise ModelError(
            "shape-mismatch",
            f"tensor {first.tensor!r} gives {_label(first)} the shape {first.shape}, the base "
            f"has {expected.shape}{more}; index it with its own base",
        )


def _differences(missing: Sequence[Placement], added: Sequence[Placement], n: int) -> str:
    differences = []
    if missing:
        lost = f"{len(missing)} of the base's {n} layer matrices"
        differences.append(f"lacks {lost}: {_slots(missing)}")
    if added:
        differences.append(f"has {len(added)} that the base lacks: {_slots(added)}")
    if any(p.slot.role == "qkv" for p in (*missing, *added)):
        differences.append("one config.json does not say how a fused q/k/v matrix is laid out")
    return "; ".join(differences) + "; index it with its own base"


def _slots(placements: Sequence[Placement]) -> str:
    return name_some([_label(p) for p in placements]).replace("'", "")


def _label(placement: Placement) -> str:
    return f"{placement.slot}.{placement.part}" if placement.part else str(placement.slot)
