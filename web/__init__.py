"""Pages for a browser: the map of a family."""

from .draw import map_family
from .family_map import MapPoint, write_map

__all__ = ["MapPoint", "map_family", "write_map"]
