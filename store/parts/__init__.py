"""Models that were read elsewhere, as immutable Parquet files, and their way into a catalog."""

from .committing import commit_part, save_family
from .part_folder import PartFolder
from .part_rows import Part

__all__ = ["Part", "PartFolder", "commit_part", "save_family"]
