"""Several catalogs merged into one."""

from .merge import Merged, merge_catalogs

__all__ = ["Merged", "merge_catalogs"]
