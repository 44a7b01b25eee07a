"""Where in a stored tensor a slot's matrix is, and a whole model in its slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from ...errors import ModelError
from ...records import Slot, role_order
from ..untrusted_text import name_some
from .names import NUMBER, has_factor

Key = tuple[Slot, str]
"""A slot and the part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One slot's matrix, or one part of it, inside a stored tensor. `part`: "" for the usual single
    matrix, else the piece ("expert.3", "shared", "q_a", …): parts of one slot are blocks of one
    update. `module`: name as in the base's own file, without prefix; `index`: where experts are
    stacked; `transposed`: stored in × out; `rows`: output rows that belong here, None for all, -1
    (in an adapter) for one that another module changes."""

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
        return self.slot, self.part

    @property
    def row_numbers(self) -> Sequence[int]:
        if self.rows is None:
            return range(self.shape[0])
        return range(self.rows.stop)[self.rows] if isinstance(self.rows, slice) else self.rows

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """This placement's (out, in) matrix as a view where possible, dtype kept."""
        return self.cut_matrix(tensor if self.index is None else tensor[self.index])

    def cut_matrix(self, matrix: torch.Tensor) -> torch.Tensor:
        """The same from the stored matrix at its index."""
        return self.cut_rows(matrix.T if self.transposed else matrix)

    def cut_rows(self, matrix: torch.Tensor) -> torch.Tensor:
        """The rows of an (out, …) matrix that belong here: a fused ΔW, or its left factor; zero for
        those that are another module's."""
        if self.rows is None:
            return matrix
        if isinstance(self.rows, slice):
            return matrix[self.rows]
        rows = torch.tensor(self.rows)
        cut = matrix[rows]
        cut[rows < 0] = 0
        return cut


@dataclass(frozen=True, kw_only=True)
class PlacedModel:
    """Where every tensor of a checkpoint, or every module of an adapter, belongs: placements by
    stack, layer, role and part; what is known to be no slot; `unread`: tensors in numbered layers
    that cannot be placed, and factors of adapters there. All tensors are in one of the three."""

    placements: tuple[Placement, ...]
    ignored: tuple[str, ...]
    unread: tuple[str, ...]

    def require_known(self) -> None:
        if self.unread:
            refuse_factors(self.unread)
            raise ModelError(
                "unknown-architecture",
                f"cannot place {name_some(self.unread)}: expected matrices, out × in, or one "
                "tensor of stacked experts",
            )

    def by_tensor(self) -> dict[str, list[Placement]]:
        placements: dict[str, list[Placement]] = {}
        for placement in self.placements:
            placements.setdefault(placement.tensor, []).append(placement)
        return placements

    @cached_property
    def by_key(self) -> Mapping[Key, Placement]:
        return {placement.key: placement for placement in self.placements}

    @cached_property
    def stacks(self) -> frozenset[str]:
        return frozenset(placement.slot.stack for placement in self.placements)

    @cached_property
    def by_module(self) -> Mapping[str, Placement]:
        return {placement.module: placement for placement in reversed(self.placements)}

    @cached_property
    def by_end(self) -> Mapping[str, frozenset[str]]:
        """Tensors by the path of their module from the number of its layer on."""
        names: dict[str, set[str]] = defaultdict(set)
        for placement in self.placements:
            number = NUMBER.search(placement.module)
            names[placement.module[number.start() if number else 0 :]].add(placement.tensor)
        return {module: frozenset(tensors) for module, tensors in names.items()}

    @cached_property
    def longest_module(self) -> int:
        return max(map(len, self.by_module), default=0)


def whole_modules(placed: PlacedModel) -> PlacedModel:
    """The same with a fused matrix as one placement: the slot of its first part, and as `part` the
    roles that it holds, `q+k+v`."""
    groups: dict[tuple[str, int | None], list[Placement]] = {}
    for placement in placed.placements:
        groups.setdefault((placement.tensor, placement.index), []).append(placement)
    return replace(placed, placements=tuple(map(as_one, groups.values())))


def as_one(group: Sequence[Placement]) -> Placement:
    first = group[0]
    if len(group) == 1:
        return first
    part = ".".join(filter(None, ("+".join(p.slot.role for p in group), first.part)))
    shape = sum(p.shape[0] for p in group), first.shape[1]
    return replace(first, part=part, rows=None, shape=shape)


def sort_key(placement: Placement) -> tuple[str, int, tuple[int, str], str, int]:
    slot = placement.slot
    part = placement.part.rstrip("0123456789")
    number = int(placement.part[len(part) :] or -1)
    return slot.stack, slot.layer, role_order(slot.role), part, number


def refuse_factors(names: Sequence[str]) -> None:
    """Refuse, as `not-read`, a checkpoint that holds factors of an adapter."""
    if factors := [name for name in names if has_factor(name)]:
        raise ModelError(
            "not-read",
            "an adapter beside the weights that it changes, as in the whole state dict of a PEFT "
            f"model: {name_some(factors)}; without its adapter_config.json its scale is not known: "
            "put that beside it, or merge it (merge_and_unload)",
        )


def label(placement: Placement) -> str:
    return f"{placement.slot}.{placement.part}" if placement.part else str(placement.slot)
