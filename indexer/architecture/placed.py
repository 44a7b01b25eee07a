"""A model whose tensors have been given their slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ModelError
from ...records import ROLES, Slot
from .placement import Placement

NAMED = 5
"""Tensors that an error names before it only counts the rest."""
LONGEST = 120
"""Characters of a name that an error shows."""

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


def name_some(names: Sequence[str]) -> str:
    """Up to five names, quoted, and how many more there are."""
    shown = ", ".join(repr(_shortened(name)) for name in names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST else name[:LONGEST] + "…"


def sort_key(placement: Placement) -> tuple[str, int, int, str, int]:
    """Order of placements: stack, layer, role as printed, part with its number."""
    slot = placement.slot
    part = placement.part.rstrip("0123456789")
    number = int(placement.part[len(part) :] or -1)
    return slot.stack, slot.layer, ROLES.index(slot.role), part, number
