from .care.backup import Backup, back_up
from .care.doctor import Finding, examine
from .care.export import content_sha256, write_parquet, write_safetensors, write_tables
from .care.merging import Merged, merge_catalogs
from .catalog import Catalog
from .derived.index import SearchIndex
from .derived.row_files import SketchFiles, SketchMatrix, TraitFile
from .family import FamilyView
from .files import make_folder, write_atomically, write_user_file
from .model_rows import block_dims
from .opening import Create
from .parts import Part, PartFolder, commit_part, save_family
from .published.attached_index import (
    AttachedIndex,
    AttachedIndexes,
    FolderSource,
    IndexSource,
    attached_folder,
    delete_unused,
    fetch_index,
    published_copy,
)
from .published.manifest import (
    CARD,
    MANIFEST,
    Manifest,
    NullScale,
    PublishedFile,
    may_be_public,
    parse_manifest,
)
from .published.parts import Statistics
from .published.publication import Publication, Published, is_licence, publish_index
from .qdrant.exporting import Exported, export_vectors, use_exported
from .qdrant.points import is_target, parse_target
from .sketch_codes import encode_sketch, sketch_bytes, true_cosines
from .sql import QueryResult, query_catalog
from .tables.documents import Attachment
from .tables.filters import Filters, ModelFilter
from .tables.models import Known, Label, Labels, ModelRow, Page, Stored, may_record
from .tables.recipes import BaseRecord

__all__ = [
    "CARD",
    "MANIFEST",
    "AttachedIndex",
    "AttachedIndexes",
    "Attachment",
    "Backup",
    "BaseRecord",
    "Catalog",
    "Create",
    "Exported",
    "FamilyView",
    "Filters",
    "Finding",
    "FolderSource",
    "IndexSource",
    "Known",
    "Label",
    "Labels",
    "Manifest",
    "Merged",
    "ModelFilter",
    "ModelRow",
    "NullScale",
    "Page",
    "Part",
    "PartFolder",
    "Publication",
    "Published",
    "PublishedFile",
    "QueryResult",
    "SearchIndex",
    "SketchFiles",
    "SketchMatrix",
    "Statistics",
    "Stored",
    "TraitFile",
    "attached_folder",
    "back_up",
    "block_dims",
    "commit_part",
    "content_sha256",
    "delete_unused",
    "encode_sketch",
    "examine",
    "export_vectors",
    "fetch_index",
    "is_licence",
    "is_target",
    "make_folder",
    "may_be_public",
    "may_record",
    "merge_catalogs",
    "parse_manifest",
    "parse_target",
    "publish_index",
    "published_copy",
    "query_catalog",
    "save_family",
    "sketch_bytes",
    "true_cosines",
    "use_exported",
    "write_atomically",
    "write_parquet",
    "write_safetensors",
    "write_tables",
    "write_user_file",
]
