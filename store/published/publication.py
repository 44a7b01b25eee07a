"""An index is published into a folder: new parts, then the manifest, so that a publication that is
killed leaves the former index. Which models may be published, and the card of the index."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from ...arrays import Float32, Int64, UInt8
from ...errors import BadIndex, RequestError, StoreFull, StoreLocked
from ...records import GATED_NOTE, PRIVATE_NOTE, Recipe
from ..catalog import Catalog
from ..files import abandoned, make_folder, sync_folder, write_atomically
from ..session import Session
from ..tables.outcomes import fetch_vectors_of
from ..tables.recipes import select_base, tables
from .manifest import (
    CARD,
    COUNTS,
    MANIFEST,
    TEXTS,
    Manifest,
    Measure,
    PublishedFile,
    PublishedPart,
    decode_vectors,
    encode_vectors,
    form_for,
    is_whole,
    may_be_public,
    parse_manifest,
    read_listed,
    read_removals,
    removal_hash,
    sha256_of,
    with_vectors,
    write_content,
    write_means,
    write_named,
)

_LICENCE = re.compile(r"[a-z0-9.+-]{1,40}")

FEW = 12
"""Licences of models that a card counts one by one."""


def is_licence(text: str) -> bool:
    """Whether a text can be the `license` of a dataset card."""
    return _LICENCE.fullmatch(text) is not None


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


def _card_text(
    what: Publication, manifest: Manifest, licences: Sequence[str | None], kinds: Sequence[str]
) -> str:
    """The card, with the front matter of a dataset on the Hub."""
    recipe, licence = what.recipe, what.licence
    n_bytes = sum(file.bytes for file in manifest.data_files)
    counted = Counter(licence or "not stated" for licence in licences)
    shown = "".join(f"| {_cell(name)} | {n} |\n" for name, n in counted.most_common(FEW))
    more = len(counted) - FEW
    rest = f"| {more} others | {sum(n for _, n in counted.most_common()[FEW:])} |\n"
    by_kind = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(kinds).items()))
    front = [
        f"license: {licence}",
        *(["license_name: see-each-model"] if licence == "other" else []),
        "tags:",
        "- deltadex",
        "- model-fingerprints",
        f"pretty_name: {json.dumps(f'deltadex index of {what.named}')}",
        "configs:",
        "- config_name: models",
        "  data_files: models-*.parquet",
    ]
    return (
        "---\n" + "\n".join(front) + "\n---\n\n"
        f"# An index of the fine-tunes of {_cell(what.named)}\n\n"
        f"{len(kinds)} models ({by_kind}), published {manifest.created} by "
        "deltadex. A fine-tune of the same base is compared with them by its weights alone.\n\n"
        f"```\ndeltadex attach {what.where}\ndeltadex find-similar some/model\n```\n\n"
        "## What it holds\n\n"
        "For each model: its id, labels, author, licence, revision and hash as the Hub or its "
        "card state them, and a fingerprint of its weight update. A fingerprint is "
        f"{recipe.dim} numbers (recipe `{recipe.id}`); weights cannot be restored from it. No "
        "weights, texts, local paths or tokens are in these files.\n\n"
        f"* Base: {_cell(what.named)}, "
        f"revision {_cell(manifest.base_revision or 'not recorded')}.\n"
        f"* {n_bytes / max(1, len(kinds)):.0f} bytes per model, {n_bytes / 1e6:.2f} MB.\n"
        "* `deltadex-index.json` lists every file with its SHA-256. Parts are never changed: "
        "a later publication adds parts and replaces those of removed models.\n\n"
        "## Licences\n\n"
        f"The index: `{licence}`. Every model keeps its own licence; the column `license` has it "
        "as its author states it.\n\n| licence of models | models |\n| --- | --- |\n"
        f"{shown}{rest if more > 0 else ''}\n"
        "## Removal\n\n"
        "To have a model removed, ask the owner of this repository (on the Hub: Community → New "
        "discussion) and name the model. `deltadex publish --exclude` rewrites the files that "
        "hold it, and remembers a hash of its name, so that it does not come back.\n"
    )


def _cell(text: str) -> str:
    """Text of unknown authors, without what Markdown would obey."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~])", r"\\\1", text)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicModels:
    """Models in order of id: their keys in the catalog, a row each without vectors; how many are
    not published, by reason."""

    keys: Int64[np.ndarray, " models"]
    table: pa.Table
    left_out: dict[str, int]


def select_public(session: Session, what: Publication, removed: Collection[str]) -> PublicModels:
    """The models of a family with a vector under a recipe that may be published; `removed` are
    hashes of ids that are left out."""
    vectors = dict(tables(session)).get(what.recipe.id)
    listed = ", ".join(f"m.{name}" for name in (*TEXTS, *COUNTS))
    table = session.arrow(
        f"SELECT m.key, {listed}, m.notes, v.norm FROM {vectors} v "
        "JOIN models m ON m.key = v.model "
        "WHERE m.base = ? AND m.status = 'indexed' ORDER BY m.id",
        [what.base],
    )
    left_out = {"removed": 0, "private": 0, "gated": 0, "a path or token as id": 0}
    kept = []
    ids, notes = table.column("id").to_pylist(), table.column("notes").to_pylist()
    for row, (id, of_model) in enumerate(zip(ids, notes, strict=True)):
        reason = None
        if removal_hash(what.named, id) in removed:
            reason = "removed"
        elif PRIVATE_NOTE in (of_model or ()):
            reason = "private"
        elif GATED_NOTE in (of_model or ()) and not what.with_gated:
            reason = "gated"
        elif not may_be_public(id):
            reason = "a path or token as id"
        if reason is None:
            kept.append(row)
        else:
            left_out[reason] += 1
    table = table.take(pa.array(kept, pa.int64()))
    columns = {}
    for name in TEXTS:
        shown = [t if may_be_public(t) else None for t in table.column(name).to_pylist()]
        columns[name] = pa.array(shown, pa.string())
    for name in COUNTS:
        columns[name] = table.column(name).cast(pa.int64())
    columns["norm"] = table.column("norm").cast(pa.float32())
    return PublicModels(
        keys=table.column("key").to_numpy(),
        table=pa.table(columns),
        left_out={reason: n for reason, n in left_out.items() if n},
    )


PART_MODELS = 4_096
"""Models of a part: 20 MB, the least that a change of one model rewrites."""

SMALL_PARTS = 16
"""Parts of fewer than a quarter of `PART_MODELS` from which they are put together."""

LOCK = ".publish.lock"

_OWN_FILE = re.compile(r"(?:models|means|removed)-[0-9a-f]{16}\.(?:parquet|txt)")

Track = Callable[[Iterable[int], str, int], Iterator[int]]
"""Passes things on, and shows how far they are; of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publication did.

    Attributes:
        written, deleted: Files that were not there before, and that are there no more.
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
        models = select_public(session, what, removed)
        if not len(models.keys):
            raise RequestError(f"no model of {what.base} may be published under {what.recipe.id}")
        writer = _Writer(session, folder, what.recipe, models, track)
        parts = writer.write(before)
        columns = ("id", "kind", "dataset")
        ids, kinds, datasets = (models.table[name].to_pylist() for name in columns)
        statistics = measure(ids, kinds, datasets, writer.vectors_at)
        known = select_base(session, what.base)
    listed = "".join(f"{digest}\n" for digest in sorted(removed)).encode()
    # serial, time and card are those of the former index
    manifest = Manifest(
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
        parts=tuple(sorted(parts, key=lambda part: part.name)),
        means=write_means(folder, statistics),
        removed=write_content(folder, "removed", "txt", listed),
        models=len(models.keys),
        scale=statistics.scale,
    )
    changed = manifest != before
    manifest = _finish(folder, manifest, what, models) if before is None or changed else before
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
    """The manifest of a folder; None where there is none. Raises `BadIndex` if it is damaged."""
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
            part = with_vectors(table, self._stored(rows))
            kept.append(write_named(self._folder, "models", part, rows=part.num_rows))
        return kept

    def _compare(
        self, file: PublishedFile, row_of: dict[str, int]
    ) -> tuple[Int64[np.ndarray, " rows"], bool]:
        """The rows of a part's models, −1 where one is gone; and whether all are there and the
        same."""
        part = PublishedPart(self._folder / file.name, file, self._recipe.dim, self._form)
        then = part.models()
        rows = np.array([row_of.get(id, -1) for id in then["id"].to_pylist()], dtype=np.int64)
        # downloads may differ
        compared = [*TEXTS, "norm", "bytes_total"]
        now = self._models.table.select(compared).take(pa.array(np.maximum(rows, 0)))
        if (rows < 0).any() or not then.select(compared).equals(now):
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


def _finish(folder: Path, manifest: Manifest, what: Publication, models: PublicModels) -> Manifest:
    """Write the card, then the manifest, which makes the new index the index."""
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = replace(manifest, serial=manifest.serial + 1, created=created)
    licences, kinds = (models.table[name].to_pylist() for name in ("license", "kind"))
    card = _card_text(what, manifest, licences, kinds).encode()
    file = PublishedFile(name=CARD, sha256=sha256_of(card), bytes=len(card))
    manifest = replace(manifest, card=file)
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
