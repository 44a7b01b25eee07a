"""Where the files that are derived from a catalog are."""

from __future__ import annotations

import hashlib
from pathlib import Path


def index_folder(catalog: Path) -> Path:
    """The folder of everything that can be made again from the catalog."""
    return catalog.with_name(catalog.name + ".index")


def derived_path(catalog: Path, base: str, recipe: str, ending: str = "") -> Path:
    """A file of one family under one recipe."""
    name = hashlib.sha256(f"{base}\n{recipe}".encode()).hexdigest()[:16]
    return index_folder(catalog) / (name + ending)
