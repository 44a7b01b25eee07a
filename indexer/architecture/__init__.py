"""Which slot a tensor fills, whatever its model calls it and however it is fused."""

from .place import place, place_modules
from .placement import Key, PlacedModel, Placement, require_same_layers, require_within_base

__all__ = [
    "Key",
    "PlacedModel",
    "Placement",
    "place",
    "place_modules",
    "require_same_layers",
    "require_within_base",
]
