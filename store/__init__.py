"""The one source of truth (DuckDB) and the index that is derived from it (FAISS)."""

from .catalog import Catalog
from .index import RESCORED, VectorIndex
from .reading import SlotSketches
from .rows import Family, Known, Labelled, ModelRow

__all__ = [
    "RESCORED",
    "Catalog",
    "Family",
    "Known",
    "Labelled",
    "ModelRow",
    "SlotSketches",
    "VectorIndex",
]
