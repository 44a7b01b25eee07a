"""The last complete export of a family, noted beside the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import derived_path, make_folder, write_atomically

NOTE_ENDING = ".qdrant"


def write_note(catalog: Path, base: str, recipe: str, note: Mapping[str, Any]) -> None:
    """Note a complete export beside the catalog; a folder that cannot be written has none.

    Raises:
        StoreFull: the system refuses.
    """
    path = derived_path(catalog, base, recipe, NOTE_ENDING)
    make_folder(path.parent)
    write_atomically(path, json.dumps(dict(note), indent=1).encode())


def read_note(catalog: Path, base: str, recipe: str) -> dict[str, Any] | None:
    """The last complete export of a family; None where none is noted."""
    try:
        note = json.loads(derived_path(catalog, base, recipe, NOTE_ENDING).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return dict(note) if isinstance(note, dict) and isinstance(note.get("target"), str) else None
