"""Pages for a browser: the map of a family."""

from .draw import map_family

__all__ = ["map_family"]
