"""Which slot a tensor fills, whatever its model calls it and however it is fused."""

from .align import require_same_layers, require_within_base
from .place import place, place_modules
from .placement import PlacedModel, Placement

__all__ = [
    "PlacedModel",
    "Placement",
    "place",
    "place_modules",
    "require_same_layers",
    "require_within_base",
]
