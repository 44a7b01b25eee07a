"""Many models' sketches side by side, from the catalog or from a file derived from it."""

from .file import SketchFile, SketchFiles, read_layout, read_notes
from .matrix import NO_LENGTH, Layout, SketchMatrix, fetch_matrix, index_bytes

__all__ = [
    "NO_LENGTH",
    "Layout",
    "SketchFile",
    "SketchFiles",
    "SketchMatrix",
    "fetch_matrix",
    "index_bytes",
    "read_layout",
    "read_notes",
]
