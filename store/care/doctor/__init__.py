"""Is a catalog well, and everything derived from it? What is derived is mended."""

from .examine import examine
from .finding import Finding

__all__ = ["Finding", "examine"]
