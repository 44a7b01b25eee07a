"""Many models' sketches side by side, from the catalog or from a file derived from it."""

from .file import NOTE, SketchFile, sketch_files
from .matrix import NO_LENGTH, Layout, SketchMatrix, fetch_matrix, index_bytes

__all__ = [
    "NOTE",
    "NO_LENGTH",
    "Layout",
    "SketchFile",
    "SketchMatrix",
    "fetch_matrix",
    "index_bytes",
    "sketch_files",
]
