"""Several catalogs made one: who is right about a model that both know."""

from .merge import Merged, merge_catalogs

__all__ = ["Merged", "merge_catalogs"]
