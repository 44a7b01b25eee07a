"""Checks of a catalog and of everything derived from it; what is derived is repaired."""

from .checks import Finding
from .examine import examine

__all__ = ["Finding", "examine"]
