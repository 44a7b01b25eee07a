"""A published index: written into a folder, new parts, then the manifest, so that a publication
that is killed leaves the former index; and attached, fetched file by file, each compared with its
hash, to a folder beside a catalog, which nothing else writes."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import xxhash
from filelock import FileLock, Timeout

from ...arrays import Bool, Float32, Int64
from ...errors import BadIndex, RequestError, StoreFull, StoreLocked
from ...records import GATED_NOTE, PRIVATE_NOTE, Footprint, Recipe
from ...results import count, size
from ..catalog import Catalog
from ..derived.row_files import SketchMatrix, TraitFile, fetch_matrix
from ..exchange import LARGEST_MANIFEST, MOST_IN_A_FILE, ListedFile, is_whole, sha256_of
from ..family import FamilyView, Members, Moment
from ..files import (
    abandoned,
    atomic_file,
    beside,
    make_folder,
    refused_as,
    sync_folder,
    write_atomically,
)
from ..model_rows import block_dims
from ..session import Session, Track
from ..tables.documents import Attachment, Attachments
from ..tables.filters import Filters, matching
from ..tables.models import ModelLabels
from ..tables.outcomes import CLOSE, fetch_vectors_of, select_sketched_slots
from ..tables.recipes import select_base, tables
from .manifest import (
    BYTES_BESIDE,
    CARD,
    COUNTS,
    MANIFEST,
    TEXTS,
    Manifest,
    PublishedPart,
    SketchForm,
    encode_vectors,
    may_be_public,
    parse_manifest,
    removal_hash,
    widths,
    write_part,
)

Lengths = Callable[[Sequence[str], int], Mapping[str, int]]
"""Numbers of each block of a slot that are published, by the kinds of the models and how many slots
they have."""

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
        lengths: Of the sketches; None publishes none.
    """

    base: str
    named: str
    recipe: Recipe
    exclude: frozenset[str]
    with_gated: bool
    licence: str
    where: str
    deltadex: str
    lengths: Lengths | None


def _card_text(
    what: Publication, manifest: Manifest, licences: Sequence[str | None], kinds: Sequence[str]
) -> str:
    """The card, with the front matter of a dataset on the Hub."""
    counted = Counter(licence or "not stated" for licence in licences)
    rows = [(_cell(name), n) for name, n in counted.most_common(FEW)]
    if (more := len(counted) - FEW) > 0:
        rows.append((count(more, "other"), sum(n for _, n in counted.most_common()[FEW:])))
    front = {
        "license": what.licence,
        **({"license_name": "see-each-model"} if what.licence == "other" else {}),
        "tags": ["deltadex", "model-fingerprints"],
        "pretty_name": f"deltadex index of {what.named}",
        "configs": [{"config_name": "models", "data_files": "models-*.parquet"}],
    }
    sketches, form = "", manifest.sketches
    if form is not None:
        n_numbers = sum(form.blocks.values())
        sketches = (
            f", and {n_numbers} numbers of two bits for each of {len(form.slots)} weight matrices"
        )
    template = (files(__package__) / "card.md").read_text("utf-8")
    return Template(template).substitute(
        front="\n".join(f"{name}: {json.dumps(value)}" for name, value in front.items()),
        base=_cell(what.named),
        models=len(kinds),
        kinds=", ".join(f"{n} {kind}" for kind, n in sorted(Counter(kinds).items())),
        created=manifest.created,
        where=what.where,
        dim=what.recipe.dim,
        recipe=what.recipe.id,
        sketches=sketches,
        revision=_cell(manifest.base_revision or "not recorded"),
        bytes=round(manifest.size_bytes / max(1, len(kinds))),
        size=size(manifest.size_bytes),
        licence=what.licence,
        licences="".join(f"| {name} | {n} |\n" for name, n in rows),
    )


def _cell(text: str) -> str:
    """Text of unknown authors, without what Markdown would obey."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~])", r"\\\1", text)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicModels:
    """Models in the order of their records: their keys in the catalog, a row each without
    vectors; how many are not published, by reason."""

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
        "WHERE m.base = ? AND m.status = 'indexed' ORDER BY m.key",
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


PART_MODELS = 2_048
"""Models of a part on average: 32 MB, about what a change of one model rewrites."""

LARGEST_PART = 192 << 20
"""Bytes of a part at most: 12,000 models of the default recipe, and less than is read of a file."""

LOCK = ".publish.lock"

_OWN_FILE = re.compile(r"models-[0-9a-f]{16}\.parquet")


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
    written: tuple[ListedFile, ...]
    deleted: tuple[str, ...]
    left_out: dict[str, int]
    added: int
    dropped: int
    changed: bool


def publish_index(catalog: Catalog, folder: Path, what: Publication, track: Track) -> Published:
    """Bring the index in a folder up to date with a family, at one moment of the catalog.

    Peak: the texts of all models, and vectors and sketches of one part.

    Raises:
        RequestError: the folder holds an index of another family, or no model may be published.
        BadIndex: the index that is there is damaged.
        StoreFull: the system refuses.
    """
    make_folder(folder)
    try:
        with FileLock(folder / LOCK, timeout=0):
            return _publish(catalog, folder, what, track)
    except Timeout:
        raise StoreLocked(f"{folder}: another process publishes here; wait until it ends") from None


def _publish(catalog: Catalog, folder: Path, what: Publication, track: Track) -> Published:
    for leftover in abandoned(folder, ""):
        leftover.unlink(missing_ok=True)
    before = read_manifest(folder) or Manifest(
        index=uuid.uuid4().hex, deltadex=what.deltadex, base=what.named, recipe=what.recipe
    )
    if (before.base, before.recipe.id) != (what.named, what.recipe.id):
        raise RequestError(
            f"{folder} holds an index of {before.base} under {before.recipe.id}, not of "
            f"{what.named} under {what.recipe.id}; choose another folder"
        )
    removed = {*before.removed, *(removal_hash(what.named, id) for id in what.exclude)}
    with catalog.snapshot():
        models = select_public(catalog, what, removed)
        if not len(models.keys):
            raise RequestError(f"no model of {what.base} may be published under {what.recipe.id}")
        form = _sketch_form(catalog, what, models.table["kind"].to_pylist())
        parts = _write_parts(catalog, folder, what.recipe, models, form, track)
        known = select_base(catalog, what.base)
    # serial and time are those of the former index
    manifest = replace(
        before,
        deltadex=what.deltadex,
        base_revision=known.revision,
        architecture=known.architecture,
        shapes=dict(known.shapes),
        layout=known.layout,
        sketches=form,
        parts=tuple(sorted(parts, key=lambda file: file.name)),
        removed=tuple(sorted(removed)),
        models=len(models.keys),
    )
    if changed := manifest != before:
        manifest = _finish(folder, manifest, what, models)
    former = {file.name for file in before.parts}
    gone = _former_ids(folder, before, manifest)
    new = {id for file, ids in parts.items() if file.name not in former for id in ids}
    return Published(
        manifest=manifest,
        sha256=sha256_of(manifest.content()),
        written=tuple(file for file in manifest.parts if file.name not in former),
        # those of former indexes, among them those of removed models
        deleted=delete_unused(folder, {file.name for file in manifest.parts}, _OWN_FILE),
        left_out=models.left_out,
        added=len(new - gone),
        dropped=len(gone - new),
        changed=changed,
    )


def _sketch_form(session: Session, what: Publication, kinds: Sequence[str]) -> SketchForm | None:
    slots = sorted(select_sketched_slots(session, what.base, what.recipe.id, -1))
    if what.lengths is None or not slots or not block_dims(what.recipe):
        return None
    return SketchForm(what.lengths(kinds, len(slots)), tuple(slots))


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where there is none. Raises `BadIndex` if it is damaged."""
    try:
        return parse_manifest((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as err:
        raise BadIndex(f"{folder / MANIFEST}: cannot be read: {err.strerror}") from None


def _write_parts(
    session: Session,
    folder: Path,
    recipe: Recipe,
    models: PublicModels,
    sketches: SketchForm | None,
    track: Track,
) -> dict[ListedFile, list[str]]:
    """Every part of the index with the ids in it; those that are there already stay."""
    parts = {}
    row = sum(widths(recipe.dim, sketches).values()) + BYTES_BESIDE
    chunks = _chunks(models.table["id"].to_pylist(), min(MOST_IN_A_FILE, LARGEST_PART // row))
    for start, stop in track(chunks, "parts"):
        keys, table = models.keys[start:stop], models.table.slice(start, stop - start)
        present, vectors = fetch_vectors_of(session, recipe, keys)
        columns = {"vector": encode_vectors(vectors[np.searchsorted(present, keys)])}
        if sketches is not None:
            matrix = fetch_matrix(session, keys.tolist(), recipe, sketches.slots)
            columns["sketch"] = sketches.encode(matrix)
        for name, content in columns.items():
            type, buffers = pa.binary(content.shape[1]), [None, pa.py_buffer(content)]
            column = pa.Array.from_buffers(type, len(content), buffers)
            table = table.append_column(pa.field(name, type, nullable=False), column)
        parts[write_part(folder, table)] = table["id"].to_pylist()
    return parts


def _chunks(ids: Sequence[str], most: int) -> list[tuple[int, int]]:
    """Where parts begin and end. Ids say where: a model that is added or removed changes one part,
    and the others stay the same files."""
    ends = [
        row
        for row, id in enumerate(ids, 1)
        if not xxhash.xxh3_64_intdigest(id.encode()) % PART_MODELS
    ]
    cuts = sorted({0, *ends, len(ids)})
    return [
        (place, min(place + most, stop))
        for start, stop in pairwise(cuts)
        for place in range(start, stop, most)
    ]


def _former_ids(folder: Path, before: Manifest, now: Manifest) -> set[str]:
    """The ids in the parts of the former index that are not of this one."""
    gone: set[str] = set()
    for file in set(before.parts) - set(now.parts):
        with suppress(BadIndex):
            part = PublishedPart(folder / file.name, file, before)
            gone.update(part.models()["id"].to_pylist())
    return gone


def _finish(folder: Path, manifest: Manifest, what: Publication, models: PublicModels) -> Manifest:
    """Write the card, then the manifest, which makes the new index the index."""
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = replace(manifest, serial=manifest.serial + 1, created=created)
    licences, kinds = (models.table[name].to_pylist() for name in ("license", "kind"))
    sync_folder(folder)
    write_atomically(folder / CARD, _card_text(what, manifest, licences, kinds).encode())
    write_atomically(folder / MANIFEST, manifest.content())
    return manifest


def delete_unused(
    folder: Path, used: Collection[str] = (), named: re.Pattern[str] = re.compile("(?s).*")
) -> tuple[str, ...]:
    """Delete the files of a folder that are not used, of the names that a pattern describes, and
    the folder where none is used; what was deleted."""
    unused = []
    with refused_as(StoreFull, f"{folder}: cannot be deleted"):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name not in used and named.fullmatch(path.name):
                path.unlink(missing_ok=True)
                unused.append(path.name)
        if not used and folder.is_dir():
            folder.rmdir()
    return tuple(unused)


# attached indexes


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
        self._open: dict[Attachment, AttachedIndex] = {}

    def of(self, catalog: Path, attachments: Attachments) -> list[AttachedIndex]:
        """The indexes that are registered now, by name; raises `BadIndex` if one is missing or
        damaged."""
        opened = {}
        for attachment, _ in attachments.all():
            index = self._open.get(attachment)
            if index is None or index.is_damaged:
                folder = attached_folder(catalog, attachment.name)
                index = AttachedIndex(folder, attachment.manifest, attachment.name)
            opened[attachment] = index
        self._open = opened
        return list(opened.values())

    def close(self) -> None:
        self._open = {}


class AttachedIndex:
    """An index in a folder that nothing else writes. Its models are known by row. It `is_damaged`
    where a file was found to be another than was fetched."""

    def __init__(self, folder: Path, sha256: str, name: str = "") -> None:
        """Open the index that has this manifest; raises `BadIndex` if a file is missing, or is
        another than it was."""
        self.name, self.sha256, self._folder = name, sha256, folder
        self.is_damaged = False
        path = manifest_path(folder, sha256)
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_MANIFEST + 1)
        except OSError as err:
            raise self._damaged(path.name, err.strerror) from None
        if sha256_of(content) != sha256:
            raise self._damaged(path.name, "SHA-256")
        self.manifest = parse_manifest(content)
        self.base, self.recipe = self.manifest.base, self.manifest.recipe

    @property
    def files(self) -> set[str]:
        """Names of its files, of the manifest's too."""
        listed = {file.name for file in self.manifest.parts}
        return listed | {manifest_path(self._folder, self.sha256).name}

    def check(self) -> None:
        """Read everything once; raises `BadIndex` if a file is not what the manifest says, an id is
        there twice, or one is listed as removed."""
        n_ids = len(self.models)
        _ = self.kinds
        if len(self.row_of) != n_ids:
            raise BadIndex(f"{count(n_ids - len(self.row_of), 'id')} listed twice")
        removed = {*self.manifest.removed}
        if n := sum(removal_hash(self.base, id) in removed for id in self.ids):
            raise BadIndex(f"{count(n, 'model')} listed as removed")
        for _ in self.vectors():
            pass

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
        if not set(kinds) <= {"adapter", "full"}:
            raise BadIndex("models of a kind that deltadex does not know")
        return kinds

    def vectors(self) -> Iterator[Float32[np.ndarray, "rows dim"]]:
        """The vectors of all rows in order, some at a time; of unit length. Raises `BadIndex` if a
        file is damaged."""
        for part in self._parts:
            yield from part.vectors()

    def vectors_at(self, rows: Int64[np.ndarray, " rows"]) -> Float32[np.ndarray, "rows dim"]:
        found = np.empty((len(rows), self.recipe.dim), dtype=np.float32)
        for part, here, own in self._by_part(rows):
            found[here] = part.vectors_at(own)
        return found

    def sketches_at(self, rows: Int64[np.ndarray, " rows"]) -> SketchMatrix:
        """The sketches of the models at some rows; of no slots where none are published."""
        form = self.manifest.sketches
        if form is None:
            return SketchMatrix.empty(block_dims(self.recipe), (), len(rows))
        data = np.empty((len(rows), form.n_bytes), dtype=np.uint8)
        for part, here, own in self._by_part(rows):
            data[here] = part.stored_at("sketch", own)
        return form.decode(data)

    def _by_part(
        self, rows: Int64[np.ndarray, " rows"]
    ) -> Iterator[tuple[PublishedPart, Bool[np.ndarray, " rows"], Int64[np.ndarray, " own"]]]:
        """The parts that hold some rows, which of these, and their rows there."""
        start = 0
        for part, file in zip(self._parts, self.manifest.parts, strict=True):
            here = (rows >= start) & (rows < start + file.models)
            if here.any():
                yield part, here, rows[here] - start
            start += file.models

    @cached_property
    def family(self) -> PublishedFamily:
        """Its models as a family, to be searched as the catalog's."""
        return PublishedFamily(self, self._folder)

    @cached_property
    def _parts(self) -> Sequence[PublishedPart]:
        """Open, so that a later refresh takes nothing away from this."""
        damaged = self._damaged if self.name else None
        return [
            PublishedPart(self._folder / file.name, file, self.manifest, damaged)
            for file in self.manifest.parts
        ]

    def _damaged(self, file: str, what: str | None) -> BadIndex:
        self.is_damaged = True
        named = f"attached index {self.name}: " if self.name else ""
        return BadIndex(
            f"{named}{file}: missing, or changed since it was fetched ({what}); "
            "`deltadex attach --refresh` fetches it again"
        )


class PublishedFamily(FamilyView):
    """The models of an attached index; a model's key is its row."""

    def __init__(self, index: AttachedIndex, folder: Path) -> None:
        members = Members(
            keys=np.arange(len(index.ids)), ids=index.ids, kinds=index.kinds, row_of=index.row_of
        )
        names = ("dataset", "author", "run", "label_source")
        datasets, authors, runs, sources = (
            tuple(index.models.column(name).to_pylist()) for name in names
        )
        are_guessed = tuple(source == "name" for source in sources)
        labels = ModelLabels(datasets, authors, runs, are_guessed)
        self._moment = Moment(changes=index.sha256, members=members, labels=labels)
        self._members, self._index, self._folder = members, index, folder
        self._turn = nullcontext
        self.base, self.recipe = index.base, index.recipe
        self.keys, self.ids, self.kinds = members.keys, members.ids, members.kinds

    @property
    def is_current(self) -> bool:
        return True

    @property
    def is_exact(self) -> bool:
        return True

    def rows_where(self, filters: Filters) -> Int64[np.ndarray, " rows"]:
        return matching(self._index.models, self.base, filters.conditions())

    def vectors(
        self, keys: Int64[np.ndarray, " keys"] | None = None
    ) -> Float32[np.ndarray, "models dim"]:
        return self._index.vectors_at(self.keys if keys is None else keys)

    def sketches(self, keys: Int64[np.ndarray, " keys"]) -> SketchMatrix:
        return self._index.sketches_at(keys)

    def footprints(self, keys: Int64[np.ndarray, " keys"]) -> list[Footprint | None]:
        return [None] * len(keys)

    def trait_file(self, depends_on: bytes, n_numbers: int) -> TraitFile:
        return TraitFile(self._folder / "family", depends_on, n_numbers)

    def _nearest(
        self,
        query: Float32[np.ndarray, " dim"],
        n: int,
        groups: Sequence[Int64[np.ndarray, " _"] | None],
    ) -> Int64[np.ndarray, " candidates"]:
        """All vectors are read once, and none is held."""
        products = np.concatenate([vectors @ query for vectors in self._index.vectors()])
        near = [self.keys[:0]]
        for group in groups:
            rows = self.keys if group is None else group
            if k := min(n, len(rows)):
                least = np.partition(products[rows], -k)[-k]
                near.append(rows[products[rows] >= least - CLOSE])
        return np.concatenate(near)


PIECE = 1 << 20


@runtime_checkable
class IndexSource(Protocol):
    """Where a published index is; its name is as the user gave it."""

    name: str

    def read(self, file: str, limit: int) -> bytes:
        """A small file's content, of at most that many bytes; raises `BadIndex` if there is no such
        file, or it is larger."""

    def stream(self, file: str, size: int) -> Iterator[bytes]:
        """The bytes of a file of that size; raises as `read`."""


class FolderSource:
    """An index in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder

    def read(self, file: str, limit: int) -> bytes:
        content = b"".join(self.stream(file, limit))
        if len(content) > limit:
            raise BadIndex(f"{self._folder / file}: more than {limit} bytes")
        return content

    def stream(self, file: str, size: int) -> Iterator[bytes]:
        path = self._folder / file
        with refused_as(BadIndex, f"{path}: cannot be read"):
            if not path.is_file():  # no pipe or device
                raise BadIndex(f"{path}: no such file; is this a published index?")
            left = size + 1  # what is longer shows that it is
            with path.open("rb") as opened:
                while left > 0 and (piece := opened.read(min(PIECE, left))):
                    left -= len(piece)
                    yield piece


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
        files = [f for f in manifest.parts if not is_whole(folder / f.name, f)]
        for file in track(files, "files"):
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


def _fetch(source: IndexSource, file: ListedFile, folder: Path) -> int:
    """Fetch one file, of no more than its listed size; returns how many bytes came."""
    fetched, whole = 0, hashlib.sha256()
    with atomic_file(folder / file.name) as temporary:
        with temporary.open("wb") as opened:
            for piece in source.stream(file.name, file.bytes):
                fetched += len(piece)
                if fetched > file.bytes:
                    raise BadIndex(f"{source.name}: {file.name} is longer than the manifest says")
                whole.update(piece)
                opened.write(piece)
        if (fetched, whole.hexdigest()) != (file.bytes, file.sha256):
            raise BadIndex(
                f"{source.name}: {file.name} is not the file that the manifest lists (SHA-256 "
                "differs): it is damaged, was exchanged, or was published meanwhile; try again"
            )
    return fetched
