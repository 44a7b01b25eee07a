"""A published index beside the catalog: its models, their labels and vectors. Read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...arrays import Bool, Float32, Int64
from ...errors import BadIndex
from ...records import Recipe
from ..files import beside
from ..tables.attachments import Attachment, Attachments
from ..tables.filters import Filters
from ..tables.models import Label
from .checked_file import CheckedFile
from .filtering import matching
from .manifest import LARGEST_MANIFEST, Manifest, PublishedFile, parse_manifest, sha256_of
from .parts import PublishedPart, read_listed
from .public_models import read_removals, removal_hash
from .statistics import Statistics, read_statistics


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
        """The indexes that are registered now, by name.

        Raises:
            BadIndex: one is missing or damaged.
        """
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
    """An index in a folder that nothing else writes. Its models are known by row.

    Attributes:
        name: What the user calls it.
        manifest: Checked.
        sha256: Of the manifest.
        is_damaged: Whether a file was found to be another than was fetched.
    """

    def __init__(
        self, folder: Path, sha256: str, name: str = "", hidden: frozenset[str] = frozenset()
    ) -> None:
        """Open the index that has this manifest.

        Args:
            hidden: Hashes of models that another copy of the index lists as removed.

        Raises:
            BadIndex: a file is missing, or is another than it was when it was fetched.
        """
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
        self.manifest: Manifest = parse_manifest(content)
        self._hidden = hidden

    @property
    def base(self) -> str:
        """The base as the index names it."""
        return self.manifest.base

    @property
    def recipe(self) -> Recipe:
        """How the vectors were made."""
        return self.manifest.recipe

    def check(self) -> None:
        """Read everything once.

        Raises:
            BadIndex: a file is not what the manifest says, an id is there twice, or one is listed
                as removed.
        """
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
        tables = [part.models() for part in self._parts]
        return pa.concat_tables(tables).combine_chunks()

    @cached_property
    def ids(self) -> Sequence[str]:
        """By row."""
        ids: list[str] = self.models.column("id").to_pylist()
        return ids

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each id."""
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
        shown: Bool[np.ndarray, " models"] = np.array(
            [removal_hash(self.base, id) not in removed for id in self.ids], dtype=np.bool_
        )
        return shown

    def label(self, row: int) -> Label:
        """What a model was trained on, by whom, in which run."""
        names = ("dataset", "author", "run")
        return Label(*(self.models.column(name)[row].as_py() for name in names))

    def allowed(self, filters: Filters) -> Bool[np.ndarray, " models"]:
        """Which models pass the filters and are not removed.

        Raises:
            BadFilter: their condition is not understood.
        """
        conditions = filters.conditions()
        if not conditions:
            return self.is_shown
        chosen: Bool[np.ndarray, " models"] = np.logical_and(
            self.is_shown, matching(self.models, self.base, conditions)
        )
        return chosen

    def vectors(self) -> Iterator[Float32[np.ndarray, "rows dim"]]:
        """The vectors of all rows in order, some at a time; of unit length.

        Raises:
            BadIndex: a file is damaged.
        """
        for part in self._parts:
            yield from part.vectors()

    def vectors_at(self, rows: Int64[np.ndarray, " rows"]) -> Float32[np.ndarray, "rows dim"]:
        """The vectors of a few rows."""
        found = np.empty((len(rows), self.recipe.dim), dtype=np.float32)
        start = 0
        for part in self._parts:
            for group in range(part.n_groups):
                size = part.group_size(group)
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
        """The content of a small file."""
        path = self._folder / file.name
        content = read_listed(path, file)
        if content is None:
            raise self._missing(path, "missing, or changed since it was fetched")
        return content

    def _missing(self, path: Path, what: str | None) -> BadIndex:
        self.is_damaged = True
        named = f"attached index {self.name}: " if self.name else ""
        return BadIndex(f"{named}{path.name}: {what}; `deltadex attach --refresh` fetches it again")
