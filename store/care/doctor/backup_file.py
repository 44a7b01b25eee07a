"""A check of a backup: whether the file is still what its manifest says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...schema import SCHEMA_VERSION
from ..manifest import Manifest, manifest_path, read_manifest
from ..raw_file import read_in_child
from .checks import CheckContext, Finding, counted

ANOTHER_COPY = "take another copy of the backup; keep this one until that is done"


@dataclass(frozen=True, slots=True)
class ManifestCheck:
    """A file and its manifest, before the file was opened.

    Attributes:
        manifest: As it was written; None where it cannot be read.
        is_same: Whether the file has its SHA-256.
    """

    path: Path
    manifest: Manifest | None
    is_same: bool

    @classmethod
    def of(cls, path: Path) -> ManifestCheck | None:
        """As of now; None for a file without manifest."""
        try:
            manifest = read_manifest(path)
            if manifest is None:
                return None
            return cls(path, manifest, read_in_child("sha256", path) == manifest.sha256)
        except (ValueError, OSError):
            return cls(path, None, False)

    def finding(self, context: CheckContext | None) -> Finding:
        """The finding, once the catalog was opened; None: it could not be."""
        manifest = self.manifest
        if manifest is None:
            name = manifest_path(self.path).name
            detail = f"{name} cannot be read, or its file cannot"
            return Finding("manifest", "problem", detail, ANOTHER_COPY)
        of_then = f"the backup of {manifest.made_at}"
        if self.is_same:
            models = counted(manifest.models, "model")
            return Finding("manifest", "ok", f"{of_then}: {models}, SHA-256 as written")
        if context is not None and (
            context.n_commits() > manifest.commits or manifest.schema_version < SCHEMA_VERSION
        ):
            return Finding("manifest", "note", f"{of_then}, changed since by deltadex")
        detail = f"not {of_then}: its SHA-256 is another"
        return Finding("manifest", "problem", detail, ANOTHER_COPY)
