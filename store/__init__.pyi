from .care.backup import Backup, back_up
from .care.doctor import Finding, examine
from .care.export import write_parquet, write_safetensors, write_tables
from .care.merging import Merged, merge_catalogs
from .catalog import Catalog
from .derived.index import SearchIndex
from .derived.sketch_file import SketchFiles
from .derived.sketch_matrix import SketchMatrix, block_dims
from .derived.trait_file import TraitFile
from .family import FamilyView
from .files import write_atomically
from .parts import Part, PartFolder, commit_part, save_family
from .qdrant.engine_choice import use_exported
from .qdrant.exporting import Exported, export_vectors
from .qdrant.target import is_target, parse_target
from .sketch_codes import encode_sketch, sketch_bytes, true_cosines
from .sql import QueryResult, query_catalog
from .tables.bases import BaseRecord
from .tables.filters import ModelFilter
from .tables.models import Known, Label, Labels, ModelRow, Page, Stored, may_record

__all__ = [
    "Backup",
    "BaseRecord",
    "Catalog",
    "Exported",
    "FamilyView",
    "Finding",
    "Known",
    "Label",
    "Labels",
    "Merged",
    "ModelFilter",
    "ModelRow",
    "Page",
    "Part",
    "PartFolder",
    "QueryResult",
    "SearchIndex",
    "SketchFiles",
    "SketchMatrix",
    "Stored",
    "TraitFile",
    "back_up",
    "block_dims",
    "commit_part",
    "encode_sketch",
    "examine",
    "export_vectors",
    "is_target",
    "may_record",
    "merge_catalogs",
    "parse_target",
    "query_catalog",
    "save_family",
    "sketch_bytes",
    "true_cosines",
    "use_exported",
    "write_atomically",
    "write_parquet",
    "write_safetensors",
    "write_tables",
]
