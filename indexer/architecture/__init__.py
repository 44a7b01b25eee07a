"""Which slot a tensor fills, whatever its model calls it and however it is fused."""

from .align import require_same_layers, require_within_base
from .place import place, place_modules
from .placed import PlacedModel
from .placement import Placement

__all__ = [
    "PlacedModel",
    "Placement",
    "place",
    "place_modules",
    "require_same_layers",
    "require_within_base",
]
