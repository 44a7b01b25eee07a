"""Many models' sketches side by side, from the catalog or from a file derived from it."""

from .file import SketchFile, sketch_files
from .matrix import NO_LENGTH, Layout, SketchMatrix, fetch_matrix

__all__ = ["NO_LENGTH", "Layout", "SketchFile", "SketchMatrix", "fetch_matrix", "sketch_files"]
