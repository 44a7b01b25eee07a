"""The catalog that a command reads, and what a user may name a model by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store import Catalog


def open_catalog(db: Path) -> Catalog:
    """The catalog, for reading.

    Raises:
        EmptyCatalog: there is none.
        StoreError: it cannot be opened.
    """
    from ..store import Catalog

    return Catalog.open(db, read_only=True, create=False)


def is_model_path(model: str) -> bool:
    """Whether a model that is not in the catalog may be a folder or a Hub id."""
    return Path(model).is_dir() or "/" in model
