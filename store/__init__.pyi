from .care.backup import Backup, back_up
from .care.content_hash import content_sha256
from .care.doctor import Finding, examine
from .care.export import write_parquet, write_safetensors, write_tables
from .care.merging import Merged, merge_catalogs
from .catalog import Catalog
from .derived.index import SearchIndex
from .derived.sketch_file import SketchFiles
from .derived.sketch_matrix import SketchMatrix
from .derived.trait_file import TraitFile
from .family import FamilyView
from .files import make_folder, write_atomically, write_user_file
from .model_rows import block_dims
from .opening import Create
from .parts import Part, PartFolder, commit_part, save_family
from .published.attached_index import (
    AttachedIndex,
    AttachedIndexes,
    attached_folder,
    published_copy,
)
from .published.card import is_licence
from .published.fetching import FolderSource, IndexSource, delete_unused, fetch_index
from .published.manifest import CARD, MANIFEST, Manifest, NullScale, PublishedFile, parse_manifest
from .published.plain_text import may_be_public
from .published.publication import Publication, Published, publish_index
from .published.statistics import Statistics
from .qdrant.engine_choice import use_exported
from .qdrant.exporting import Exported, export_vectors
from .qdrant.target import is_target, parse_target
from .sketch_codes import encode_sketch, sketch_bytes, true_cosines
from .sql import QueryResult, query_catalog
from .tables.attachments import Attachment
from .tables.bases import BaseRecord
from .tables.filters import Filters, ModelFilter
from .tables.models import Known, Label, Labels, ModelRow, Page, Stored, may_record

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
