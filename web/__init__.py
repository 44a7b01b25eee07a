"""Pages for a browser: the map of a family."""

from .family_map import MapPoint, write_map

__all__ = ["MapPoint", "write_map"]
