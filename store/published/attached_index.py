"""A published index beside the catalog: fetched file by file, each compared with its hash; its
models, their labels and vectors. Read-only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from ...arrays import Bool, Float32, Int64
from ...errors import BadIndex, StoreFull
from ..files import (
    beside,
    file_size,
    flush,
    make_folder,
    open_at,
    sync_folder,
    write_atomically,
)
from ..tables.documents import Attachment, Attachments
from ..tables.filters import Filters, matching
from ..tables.models import Label
from .manifest import (
    LARGEST_MANIFEST,
    MANIFEST,
    SUMS,
    CheckedFile,
    Manifest,
    PublishedFile,
    PublishedPart,
    Statistics,
    is_whole,
    parse_manifest,
    read_listed,
    read_removals,
    read_statistics,
    removal_hash,
    sha256_of,
)


def manifest_path(folder: Path, sha256: str) -> Path:
    """Where the manifest of an attached index is."""
    return folder / f"manifest-{sha256[:16]}.json"


def attached_folder(catalog: Path, name: str = "") -> Path:
    """Where the files of the attached indexes of a catalog are, or of one of them."""
    return beside(catalog, ".attached") / name


def published_copy(catalog: Path, target: str) -> Path:
    """Where the copy of an index that is published elsewhere is."""
    name = hashlib.sha256(target.encode()).hexdigest()[:16]
    return beside(catalog, ".published") / name


class AttachedIndexes:
    """The attached indexes of one open catalog, open for as long as they are the same."""

    def __init__(self) -> None:
        self._open: dict[Attachment, tuple[frozenset[str], AttachedIndex]] = {}

    def of(self, catalog: Path, attachments: Attachments) -> list[AttachedIndex]:
        """The indexes that are registered now, by name; raises `BadIndex` if one is missing or
        damaged."""
        registered = [attachment for attachment, _ in attachments.all()]
        opened = {}
        for attachment in registered:
            hidden = attachments.removed(attachment.index_id)
            before = self._open.get(attachment)
            if before is None or before[0] != hidden or before[1].is_damaged:
                folder = attached_folder(catalog, attachment.name)
                index = AttachedIndex(folder, attachment.manifest, attachment.name, hidden)
                before = hidden, index
            opened[attachment] = before
        self._open = opened
        return [opened[attachment][1] for attachment in registered]

    def close(self) -> None:
        self._open = {}


class AttachedIndex:
    """An index in a folder that nothing else writes. Its models are known by row. It `is_damaged`
    where a file was found to be another than was fetched."""

    def __init__(
        self, folder: Path, sha256: str, name: str = "", hidden: frozenset[str] = frozenset()
    ) -> None:
        """Open the index that has this manifest; `hidden` are hashes of models that another copy of
        it lists as removed. Raises `BadIndex` if a file is missing, or is another than it was."""
        self.name, self.sha256, self._folder = name, sha256, folder
        self.is_damaged = False
        path = manifest_path(folder, sha256)
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_MANIFEST + 1)
        except OSError as err:
            raise self._missing(path, err.strerror) from None
        if sha256_of(content) != sha256:
            raise self._missing(path, "changed since it was fetched")
        self.manifest = parse_manifest(content)
        self.base, self.recipe = self.manifest.base, self.manifest.recipe
        self._hidden = hidden

    def check(self) -> None:
        """Read everything once; raises `BadIndex` if a file is not what the manifest says, an id is
        there twice, or one is listed as removed."""
        n_ids = len(self.models)
        _ = self.kinds, self.statistics
        if len(self.row_of) != n_ids:
            raise BadIndex(f"{n_ids - len(self.row_of)} ids are there twice")
        if not self.is_shown.all():
            raise BadIndex(f"{int((~self.is_shown).sum())} models are listed as removed")
        for _ in self.vectors():
            pass

    @cached_property
    def removed(self) -> frozenset[str]:
        """Hashes of the models that the index leaves out for good."""
        return read_removals(self._content(self.manifest.removed))

    @cached_property
    def statistics(self) -> Statistics:
        """What scores are normalised with."""
        return read_statistics(self._content(self.manifest.means), self.manifest)

    @cached_property
    def models(self) -> pa.Table:
        """Texts and counts of every model, by row."""
        return pa.concat_tables([part.models() for part in self._parts]).combine_chunks()

    @cached_property
    def ids(self) -> Sequence[str]:
        ids: list[str] = self.models.column("id").to_pylist()
        return ids

    @cached_property
    def row_of(self) -> dict[str, int]:
        return {id: row for row, id in enumerate(self.ids)}

    @cached_property
    def kinds(self) -> Sequence[str]:
        """`adapter` or `full`, by row."""
        kinds: list[str] = self.models.column("kind").to_pylist()
        if not set(kinds) <= set(self.manifest.scale.kinds):
            raise BadIndex("models of a kind without statistics")
        return kinds

    @cached_property
    def is_shown(self) -> Bool[np.ndarray, " models"]:
        """Whether a model is not listed as removed, here or in a later copy."""
        removed = self.removed | self._hidden
        if not removed:
            return np.ones(len(self.ids), dtype=np.bool_)
        is_shown = [removal_hash(self.base, id) not in removed for id in self.ids]
        return np.array(is_shown, dtype=np.bool_)

    def label(self, row: int) -> Label:
        """What a model was trained on, by whom, in which run."""
        names = ("dataset", "author", "run")
        return Label(*(self.models.column(name)[row].as_py() for name in names))

    def allowed(self, filters: Filters) -> Bool[np.ndarray, " models"]:
        """Which models pass the filters and are not removed; raises `BadFilter` if their condition
        is not understood."""
        conditions = filters.conditions()
        if not conditions:
            return self.is_shown
        return np.asarray(self.is_shown & matching(self.models, self.base, conditions))

    def vectors(self) -> Iterator[Float32[np.ndarray, "rows dim"]]:
        """The vectors of all rows in order, some at a time; of unit length. Raises `BadIndex` if a
        file is damaged."""
        for part in self._parts:
            yield from part.vectors()

    def vectors_at(self, rows: Int64[np.ndarray, " rows"]) -> Float32[np.ndarray, "rows dim"]:
        found = np.empty((len(rows), self.recipe.dim), dtype=np.float32)
        start = 0
        for part in self._parts:
            for group, size in enumerate(part.group_sizes):
                here = np.flatnonzero((rows >= start) & (rows < start + size))
                if len(here):
                    found[here] = part.vectors_of(group)[rows[here] - start]
                start += size
        return found

    @cached_property
    def _parts(self) -> Sequence[PublishedPart]:
        """Open, so that a later refresh takes nothing away from this."""
        dim, form = self.recipe.dim, self.manifest.vectors
        parts = []
        for file in self.manifest.parts:
            path = self._folder / file.name
            source = CheckedFile(path, file, partial(self._missing, path))
            parts.append(PublishedPart(source, file, dim, form))
        return parts

    def _content(self, file: PublishedFile) -> bytes:
        path = self._folder / file.name
        content = read_listed(path, file)
        if content is None:
            raise self._missing(path, "missing, or changed since it was fetched")
        return content

    def _missing(self, path: Path, what: str | None) -> BadIndex:
        self.is_damaged = True
        named = f"attached index {self.name}: " if self.name else ""
        return BadIndex(f"{named}{path.name}: {what}; `deltadex attach --refresh` fetches it again")


PIECE = 1 << 20

Track = Callable[[Iterable[PublishedFile], str, int], Iterator[PublishedFile]]
"""Passes files on, and shows how far they are; of so many."""


@runtime_checkable
class IndexSource(Protocol):
    """Where a published index is; its name is as the user gave it."""

    name: str

    def read(self, file: str, limit: int) -> bytes:
        """A small file's content, of at most that many bytes; raises `BadIndex` if there is no such
        file, or it is larger."""

    def stream(self, file: str, start: int, size: int) -> Iterator[bytes]:
        """The bytes of a file of that size from a place on; raises as `read`."""


class FolderSource:
    """An index in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder

    def read(self, file: str, limit: int) -> bytes:
        content = b"".join(self.stream(file, 0, limit + 1))
        if len(content) > limit:
            raise BadIndex(f"{self._folder / file}: more than {limit} bytes")
        return content

    def stream(self, file: str, start: int, size: int) -> Iterator[bytes]:
        path = self._folder / file
        try:
            if not path.is_file():  # no pipe or device
                raise BadIndex(f"{path}: no such file; is this a published index?")
            with path.open("rb") as opened:
                opened.seek(start)
                while start < size and (piece := opened.read(min(PIECE, size - start))):
                    start += len(piece)
                    yield piece
        except OSError as err:
            raise BadIndex(f"{path}: cannot be read: {err.strerror}") from None


def fetch_index(source: IndexSource, folder: Path, track: Track) -> tuple[AttachedIndex, int]:
    """Copy what a folder lacks of an index, and open it; nothing is deleted. Returns the index, and
    how many bytes were fetched.

    Raises:
        BadIndex: it is not there, is damaged, or is not what its manifest says.
        StoreFull: the system refuses.
    """
    content = source.read(MANIFEST, LARGEST_MANIFEST)
    fetched, sha256 = len(content), sha256_of(content)
    try:
        manifest = parse_manifest(content)
        make_folder(folder)
        files = [f for f in manifest.data_files if not is_whole(folder / f.name, f)]
        for file in track(files, "files", len(files)):
            fetched += _fetch(source, file, folder)
        sync_folder(folder)
        write_atomically(manifest_path(folder, sha256), content)
        index = AttachedIndex(folder, sha256)
        index.check()
    except BadIndex as err:
        if source.name in str(err):
            raise
        raise BadIndex(f"{source.name}: {err}") from None
    return index, fetched


def delete_unused(folder: Path, manifest: Manifest | None, sha256: str = "") -> None:
    """Delete what a folder of an attached index holds beside one index, or all of it."""
    used = set()
    if manifest is not None:
        used = {file.name for file in manifest.data_files}
        used |= {part.name + SUMS for part in manifest.parts}
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
        start, fetched = file_size(partial), 0
        if start > file.bytes:
            start = 0
        with open_at(partial, start) as opened:
            opened.truncate()
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
