"""An index is published into a folder: new parts, then the manifest, so that a publication that is
killed leaves the former index."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from ...arrays import Float32, Int64, UInt8
from ...errors import BadIndex, RequestError, StoreFull, StoreLocked
from ...records import Recipe
from ..catalog import Catalog
from ..files import abandoned, make_folder, sync_folder, write_atomically
from ..session import Session
from ..tables.bases import BaseRecord, select_base
from ..tables.vectors import fetch_vectors_of
from .card import card_text
from .manifest import CARD, MANIFEST, Manifest, PublishedFile, parse_manifest, sha256_of
from .parts import (
    PublishedPart,
    is_whole,
    read_listed,
    with_vectors,
    write_content,
    write_part,
)
from .public_models import PublicModels, read_removals, removal_hash, select_public
from .statistics import Measure, write_means
from .vector_codes import decode_vectors, encode_vectors, form_for

PART_MODELS = 4_096
"""Models of a part: 20 MB, the least that a change of one model rewrites."""

SMALL_PARTS = 16
"""Parts of fewer than a quarter of `PART_MODELS` from which they are put together."""

LOCK = ".publish.lock"

NO_KEYS = np.zeros(0, dtype=np.int64)

_OWN_FILE = re.compile(r"(?:models|means|removed)-[0-9a-f]{16}\.(?:parquet|txt)")

Track = Callable[[Iterable[int], str, int], Iterator[int]]
"""Passes things on, and shows how far they are; of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What is published.

    Attributes:
        base: In the catalog.
        named: What the index calls it.
        exclude: Ids that are removed for good.
        licence: Of the index itself.
        where: What the card says that `attach` is given.
    """

    base: str
    named: str
    recipe: Recipe
    exclude: frozenset[str]
    with_gated: bool
    licence: str
    where: str
    deltadex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publication did.

    Attributes:
        written: Files that were not there before.
        deleted: Files that are there no more.
        left_out: How many models are not published, by reason.
        changed: Whether anything differs from the former index.
    """

    manifest: Manifest
    sha256: str
    written: tuple[PublishedFile, ...]
    deleted: tuple[str, ...]
    left_out: dict[str, int]
    added: int
    dropped: int
    changed: bool


def publish_index(
    catalog: Catalog, folder: Path, what: Publication, measure: Measure, track: Track
) -> Published:
    """Bring the index in a folder up to date with a family, at one moment of the catalog.

    Peak: the texts of all models, and the vectors of one part.

    Raises:
        RequestError: the folder holds an index of another family, or no model may be published.
        BadIndex: the index that is there is damaged.
        StoreFull: the system refuses.
    """
    make_folder(folder)
    try:
        with FileLock(folder / LOCK, timeout=0):
            return _publish(catalog, folder, what, measure, track)
    except Timeout:
        raise StoreLocked(f"{folder}: another process publishes here; wait until it ends") from None


def _publish(
    catalog: Catalog, folder: Path, what: Publication, measure: Measure, track: Track
) -> Published:
    for leftover in abandoned(folder, ""):
        leftover.unlink(missing_ok=True)
    before = read_manifest(folder)
    if before is not None and (before.base, before.recipe.id) != (what.named, what.recipe.id):
        raise RequestError(
            f"{folder} holds an index of {before.base} under {before.recipe.id}, not of "
            f"{what.named} under {what.recipe.id}; choose another folder"
        )
    removed = _removed(folder, before.removed) if before else frozenset()
    removed |= {removal_hash(what.named, id) for id in what.exclude}
    with closing(Session(catalog.access)) as session, session.snapshot():
        models = select_public(
            session,
            what.base,
            what.recipe,
            named=what.named,
            removed=removed,
            with_gated=what.with_gated,
        )
        if not len(models.keys):
            raise RequestError(f"no model of {what.base} may be published under {what.recipe.id}")
        writer = _Writer(session, folder, what.recipe, models, track)
        parts = writer.write(before)
        statistics = measure(
            models.table.column("id").to_pylist(),
            models.table.column("kind").to_pylist(),
            models.table.column("dataset").to_pylist(),
            writer.vectors_at,
        )
        known = select_base(session, what.base)
    listed = "".join(f"{digest}\n" for digest in sorted(removed)).encode()
    manifest = _manifest(
        what,
        known,
        before,
        parts=tuple(sorted(parts, key=lambda part: part.name)),
        means=write_means(folder, statistics),
        removed=write_content(folder, "removed", "txt", listed),
        models=len(models.keys),
        scale=statistics.scale,
    )
    changed = (
        before is None
        or replace(
            manifest, **{name: getattr(before, name) for name in ("serial", "created", "card")}
        )
        != before
    )
    if before is not None and not changed:
        manifest = before
    else:
        manifest = _finish(folder, manifest, what, models)
    former = {file.name for file in before.data_files} if before else set()
    return Published(
        manifest=manifest,
        sha256=sha256_of(manifest.content()),
        written=tuple(file for file in manifest.data_files if file.name not in former),
        deleted=_delete_unused(folder, manifest),
        left_out=models.left_out,
        added=writer.added,
        dropped=writer.dropped,
        changed=changed,
    )


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where there is none.

    Raises:
        BadIndex: it is damaged.
    """
    try:
        return parse_manifest((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as err:
        raise BadIndex(f"{folder / MANIFEST}: cannot be read: {err.strerror}") from None


def _removed(folder: Path, file: PublishedFile) -> frozenset[str]:
    """The hashes of the models that an index leaves out for good."""
    content = read_listed(folder / file.name, file)
    if content is None:
        raise BadIndex(f"{folder / file.name}: missing or damaged; put it back, or fetch it again")
    return read_removals(content)


class _Writer:
    """Writes the parts that a family's index lacks.

    Attributes:
        added, dropped: Models that the former index did not have, and that this one has not.
    """

    def __init__(
        self, session: Session, folder: Path, recipe: Recipe, models: PublicModels, track: Track
    ) -> None:
        self._session, self._folder, self._recipe = session, folder, recipe
        self._track, self._models, self._form = track, models, form_for(recipe.dim)
        self.added, self.dropped = len(models.keys), 0

    def vectors_at(self, rows: Int64[np.ndarray, " rows"]) -> Float32[np.ndarray, "rows dim"]:
        """The vectors of some models as they are published."""
        return decode_vectors(self._stored(rows), self._recipe.dim, self._form)

    def write(self, before: Manifest | None) -> list[PublishedFile]:
        """The parts of the index; those that hold nothing else than now stay."""
        row_of = {id: row for row, id in enumerate(self._models.table.column("id").to_pylist())}
        kept, covered = [], np.zeros(len(row_of), dtype=np.bool_)
        files = before.parts if before else ()
        small = [file for file in files if file.models < PART_MODELS // 4]
        for file in files:
            if not is_whole(self._folder / file.name, file):
                continue
            rows, is_same = self._compare(file, row_of)
            self.added -= int((rows >= 0).sum())
            self.dropped += int((rows < 0).sum())
            is_merged = file in small and len(small) > SMALL_PARTS
            if is_same and not is_merged and not covered[rows].any():
                kept.append(file)
                covered[rows] = True
        missing = np.flatnonzero(~covered)
        starts = list(range(0, len(missing), PART_MODELS))
        for start in self._track(starts, "parts", len(starts)):
            rows = missing[start : start + PART_MODELS]
            table = self._models.table.take(pa.array(rows))
            kept.append(write_part(self._folder, with_vectors(table, self._stored(rows))))
        return kept

    def _compare(
        self, file: PublishedFile, row_of: dict[str, int]
    ) -> tuple[Int64[np.ndarray, " rows"], bool]:
        """The rows of a part's models, −1 where one is gone; and whether all are there and the
        same."""
        part = PublishedPart(self._folder / file.name, file, self._recipe.dim, self._form)
        then = PublicModels(keys=NO_KEYS, table=part.models(), left_out={})
        ids = then.table.column("id").to_pylist()
        rows = np.array([row_of.get(id, -1) for id in ids], dtype=np.int64)
        if (rows < 0).any():
            return rows, False
        now = replace(then, table=self._models.table.take(pa.array(rows)))
        if then.digests() != now.digests():
            return rows, False
        done = 0
        for group in range(part.n_groups):
            stored = part.stored(group)
            if not np.array_equal(stored, self._stored(rows[done : done + len(stored)])):
                return rows, False
            done += len(stored)
        return rows, True

    def _stored(self, rows: Int64[np.ndarray, " rows"]) -> UInt8[np.ndarray, "rows bytes"]:
        keys = self._models.keys[rows]
        present, vectors = fetch_vectors_of(self._session, self._recipe, keys)
        return encode_vectors(vectors[np.searchsorted(present, keys)], self._form)


def _manifest(
    what: Publication, known: BaseRecord, before: Manifest | None, **found: Any
) -> Manifest:
    """The manifest, whose serial, time and card are those of the former index."""
    return Manifest(
        index=before.index if before else uuid.uuid4().hex,
        serial=before.serial if before else 0,
        created=before.created if before else "",
        card=before.card if before else PublishedFile(name=CARD, sha256="0" * 64, bytes=0),
        deltadex=what.deltadex,
        base=what.named,
        base_revision=known.revision,
        architecture=known.architecture,
        recipe=what.recipe,
        shapes=dict(known.shapes),
        layout=known.layout,
        vectors=form_for(what.recipe.dim),
        **found,
    )


def _finish(folder: Path, manifest: Manifest, what: Publication, models: PublicModels) -> Manifest:
    """Write the card, then the manifest, which makes the new index the index."""
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    card = card_text(
        base=what.named,
        base_revision=manifest.base_revision,
        recipe=what.recipe,
        licences=models.table.column("license").to_pylist(),
        kinds=models.table.column("kind").to_pylist(),
        n_bytes=sum(file.bytes for file in manifest.data_files),
        created=created,
        licence=what.licence,
        where=what.where,
    ).encode()
    manifest = replace(
        manifest,
        serial=manifest.serial + 1,
        created=created,
        card=PublishedFile(name=CARD, sha256=sha256_of(card), bytes=len(card)),
    )
    sync_folder(folder)
    write_atomically(folder / CARD, card)
    write_atomically(folder / MANIFEST, manifest.content())
    return manifest


def _delete_unused(folder: Path, manifest: Manifest) -> tuple[str, ...]:
    """Delete the files of former indexes, among them those of removed models."""
    used = {file.name for file in manifest.data_files}
    unused = [
        path
        for path in sorted(folder.iterdir())
        if _OWN_FILE.fullmatch(path.name) and path.name not in used
    ]
    for path in unused:
        try:
            path.unlink(missing_ok=True)
        except OSError as err:
            raise StoreFull(f"{path}: cannot be deleted: {err.strerror}") from err
    return tuple(path.name for path in unused)
