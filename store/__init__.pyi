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
from .sketch_codes import encode_sketch, sketch_bytes, true_cosines
from .sql import QueryResult, query_catalog
from .tables.attachments import Attachment
from .tables.bases import BaseRecord
from .tables.filters import ModelFilter
from .tables.models import Known, Label, Labels, ModelRow, Page, Stored

__all__ = [
    "CARD",
    "MANIFEST",
    "AttachedIndex",
    "AttachedIndexes",
    "Attachment",
    "Backup",
    "BaseRecord",
    "Catalog",
    "FamilyView",
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
    "delete_unused",
    "encode_sketch",
    "examine",
    "fetch_index",
    "is_licence",
    "may_be_public",
    "merge_catalogs",
    "parse_manifest",
    "publish_index",
    "published_copy",
    "query_catalog",
    "sketch_bytes",
    "true_cosines",
    "write_atomically",
    "write_parquet",
    "write_safetensors",
    "write_tables",
]
