from .backup import Backup, back_up
from .catalog import Catalog
from .copies import copy_outcome
from .doctor import Finding, examine
from .filters import ModelFilter
from .index import RESCORED, VectorIndex
from .merging import Merged, merge_catalogs
from .reading import Page, SlotSketches
from .rows import Family, Known, Labelled, ModelRow
from .sketches import NO_LENGTH, Layout, SketchFiles, SketchMatrix
from .sql import QueryResult, query_catalog

__all__ = [
    "NO_LENGTH",
    "RESCORED",
    "Backup",
    "Catalog",
    "Family",
    "Finding",
    "Known",
    "Labelled",
    "Layout",
    "Merged",
    "ModelFilter",
    "ModelRow",
    "Page",
    "QueryResult",
    "SketchFiles",
    "SketchMatrix",
    "SlotSketches",
    "VectorIndex",
    "back_up",
    "copy_outcome",
    "examine",
    "merge_catalogs",
    "query_catalog",
]
