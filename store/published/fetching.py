"""A published index is copied beside the catalog, file by file, each compared with its hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from ...errors import BadIndex, StoreFull
from ..files import flush, make_folder, sync_folder, write_atomically
from .attached_index import AttachedIndex, manifest_path
from .checked_file import sums_name
from .manifest import (
    LARGEST_MANIFEST,
    MANIFEST,
    Manifest,
    PublishedFile,
    parse_manifest,
    sha256_of,
)
from .parts import is_whole

PIECE = 1 << 20

Track = Callable[[Iterable[PublishedFile], str, int], Iterator[PublishedFile]]
"""Passes files on, and shows how far they are; of so many."""


@runtime_checkable
class IndexSource(Protocol):
    """Where a published index is.

    Attributes:
        name: As the user gave it.
    """

    name: str

    def read(self, file: str, limit: int) -> bytes:
        """A small file's content, of at most that many bytes.

        Raises:
            BadIndex: there is no such file, or it is larger.
        """

    def stream(self, file: str, start: int, size: int) -> Iterator[bytes]:
        """The bytes of a file of that size from a place on; raises as `read`."""


class FolderSource:
    """An index in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder

    def read(self, file: str, limit: int) -> bytes:
        """A file's content."""
        content = b"".join(self._pieces(file, 0, limit + 1))
        if len(content) > limit:
            raise BadIndex(f"{self._folder / file}: more than {limit} bytes")
        return content

    def stream(self, file: str, start: int, size: int) -> Iterator[bytes]:
        """The bytes from a place on."""
        return self._pieces(file, start, size - start)

    def _pieces(self, file: str, start: int, left: int) -> Iterator[bytes]:
        path = self._folder / file
        try:
            if not path.is_file():  # no pipe or device
                raise BadIndex(f"{path}: no such file; is this a published index?")
            with path.open("rb") as opened:
                opened.seek(start)
                while left > 0 and (piece := opened.read(min(PIECE, left))):
                    left -= len(piece)
                    yield piece
        except OSError as err:
            raise BadIndex(f"{path}: cannot be read: {err.strerror}") from None


def fetch_index(source: IndexSource, folder: Path, track: Track) -> tuple[AttachedIndex, int]:
    """Copy what a folder lacks of an index, and open it; nothing is deleted.

    Returns the index, and how many bytes were fetched.

    Raises:
        BadIndex: it is not there, is damaged, or is not what its manifest says.
        StoreFull: the system refuses.
    """
    content = source.read(MANIFEST, LARGEST_MANIFEST)
    try:
        return _fetch_listed(source, folder, content, track)
    except BadIndex as err:
        if source.name in str(err):
            raise
        raise BadIndex(f"{source.name}: {err}") from None


def _fetch_listed(
    source: IndexSource, folder: Path, content: bytes, track: Track
) -> tuple[AttachedIndex, int]:
    """Copy the files that a manifest lists, and open the index."""
    manifest, sha256 = parse_manifest(content), sha256_of(content)
    make_folder(folder)
    fetched = len(content)
    files = [f for f in manifest.data_files if not is_whole(folder / f.name, f)]
    for file in track(files, "files", len(files)):
        fetched += _fetch(source, file, folder)
    sync_folder(folder)
    write_atomically(manifest_path(folder, sha256), content)
    index = AttachedIndex(folder, sha256)
    index.check()
    return index, fetched


def delete_unused(folder: Path, manifest: Manifest | None, sha256: str = "") -> None:
    """Delete what a folder of an attached index holds beside one index, or all of it."""
    used = set()
    if manifest is not None:
        used = {file.name for file in manifest.data_files}
        used |= {sums_name(part) for part in manifest.parts}
        used.add(manifest_path(folder, sha256).name)
    if not folder.is_dir():
        return
    try:
        for path in sorted(folder.iterdir()):
            if path.name not in used:
                path.unlink(missing_ok=True)
        if manifest is None:
            folder.rmdir()
    except OSError as err:
        raise StoreFull(f"{folder}: cannot be deleted: {err.strerror}") from err


def _fetch(source: IndexSource, file: PublishedFile, folder: Path) -> int:
    """Fetch one file; one that is begun is continued, and fetched again from its start where its
    bytes are not the listed ones. Returns how many bytes came."""
    partial, total = folder / f"{file.name}.partial", 0
    for _ in range(2):
        total += _continue(source, file, partial)
        with partial.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found == file.sha256 and partial.stat().st_size == file.bytes:
            flush(partial)
            os.replace(partial, folder / file.name)
            return total
        was_begun = total < file.bytes
        partial.unlink()
        if not was_begun:
            break
    raise BadIndex(
        f"{source.name}: {file.name} is not the file that the manifest lists (SHA-256 differs): "
        "it is damaged, was exchanged, or was published meanwhile; try again"
    )


def _continue(source: IndexSource, file: PublishedFile, partial: Path) -> int:
    """Append what is missing of a file; no more than its listed size."""
    try:
        start = partial.stat().st_size if partial.is_file() else 0
        if start > file.bytes:
            start = 0
        fetched = 0
        with partial.open("r+b" if partial.is_file() else "wb") as opened:
            opened.truncate(start)
            opened.seek(start)
            if start == file.bytes:
                return 0
            for piece in source.stream(file.name, start, file.bytes):
                fetched += len(piece)
                if start + fetched > file.bytes:
                    raise BadIndex(f"{source.name}: {file.name} is longer than the manifest says")
                opened.write(piece)
        return fetched
    except OSError as err:
        raise StoreFull(f"{partial}: {err.strerror}") from err
