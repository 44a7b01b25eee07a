"""A folder whose files and folders are data sets of their own."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ...errors import DataError
from ...text_files.text_stream import translated_errors
from .data_files import FORMATS, OTHER_JSON, is_data_file

log = logging.getLogger(__name__)


def data_sets_in(folder: Path) -> tuple[Path, ...]:
    """Each data file in a folder, and each folder in it, by name; hidden ones are left out.

    Raises:
        DataError: it is no folder, or has neither.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; several data sets are the files of a folder")
    with translated_errors(folder):
        entries = sorted(folder.iterdir())
    entries = [path for path in entries if not path.name.startswith((".", "_"))]
    found = tuple(
        path
        for path in entries
        if path.is_dir() or (is_data_file(path) and path.name not in OTHER_JSON)
    )
    if not found:
        raise DataError(f"{folder}: no data file in it ({', '.join(FORMATS)})")
    left_out = [path.name for path in entries if path not in found and path.name not in OTHER_JSON]
    if left_out:
        log.info("%s: left out, no data files by their names: %s", folder, ", ".join(left_out))
    return found


def data_set_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """The data sets' names: of files without their endings where these tell them apart, else in
    full; paths of equal names by their folders too."""
    stems = [path.name.split(".")[0] or path.name for path in paths]
    names = [path.name for path in paths]
    return tuple(
        stem
        if Counter(stems)[stem] == 1
        else path.name
        if Counter(names)[path.name] == 1
        else path.as_posix()
        for stem, path in zip(stems, paths, strict=True)
    )
