"""Maps of families, as pages for a browser and as pictures; `service` answers over HTTP."""

from .map_document import (
    Colour,
    PlacedModels,
    check_ending,
    map_document,
    write_map,
)

__all__ = [
    "Colour",
    "PlacedModels",
    "check_ending",
    "map_document",
    "write_map",
]
