"""A model whose tensors have been given their slots."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ModelError
from ...records import ROLES, Slot
from ..words import name_some
from .placement import Placement

Key = tuple[Slot, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedModel:
    """Where every tensor of a checkpoint, or every module of an adapter, belongs.

    Attributes:
        placements: By stack, layer, role and part; no two fill the same part of a slot.
        prefix: What stands before the layers' own names, as far as all stacks share it.
        ignored: Known to be no slot: embeddings, heads, norms, routers, convolutions, ….
        unknown: Matrices inside numbered layers that no rule places.
    """

    placements: tuple[Placement, ...]
    prefix: str
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]

    def require_known(self) -> None:
        """Pass, unless some layer matrices are unknown.

        Raises:
            ModelError: `unknown-architecture`, naming them.
        """
        if self.unknown:
            raise ModelError(
                "unknown-architecture",
                f"cannot place {name_some(self.unknown)}: expected layer matrices named as "
                "transformers names them; such an architecture is not supported yet",
            )

    def by_key(self) -> dict[Key, Placement]:
        """The placements by slot and part, in order."""
        return {(p.slot, p.part): p for p in self.placements}


def sort_key(placement: Placement) -> tuple[str, int, int, str, int]:
    """Order of placements: stack, layer, role as printed, part with its number."""
    slot = placement.slot
    part = placement.part.rstrip("0123456789")
    number = int(placement.part[len(part) :] or -1)
    return slot.stack, slot.layer, ROLES.index(slot.role), part, number
