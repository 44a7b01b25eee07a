"""The manifest of a published index, every file with its hash and what a query needs to know, and
the files: parts, some models with their vectors, eight bits a number, and sketches in one immutable
Parquet file.

It is read from unknown publishers: every field is checked before it is used. A file is compared
with its SHA-256 when it is fetched and when a process opens it; what is read of it later, with the
checksums of Parquet's pages.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ...arrays import Float32, Int64, UInt8
from ...errors import BadIndex
from ...records import Recipe, Slot
from ...results import agree, count
from .. import exchange
from ..derived.row_files import SketchMatrix
from ..files import write_atomically
from ..model_rows import block_dims
from ..sketch_codes import code_bytes, row_type

LONGEST_TEXT = 512
"""Characters of an id, a label, a licence or a base's name."""

_OWN_PATH = re.compile(r"^(?:[/~\\]|\.\.(?:[/\\]|$)|[A-Za-z]:[/\\]|file:)")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}")


def is_plain(text: object) -> bool:
    """Whether a text has a length that is kept, and only characters that a terminal shows."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_TEXT and text.isprintable()


def may_be_public(text: object) -> bool:
    """Whether a plain text names no place of a machine, and holds no token."""
    return is_plain(text) and not _OWN_PATH.match(str(text)) and not _TOKEN.search(str(text))


BLOCK = 64
"""Numbers that share a scale where eight bits are kept of each."""

LENGTH_TOLERANCE = 0.02
"""By which a stored vector's length may differ from 1."""

MANIFEST = "deltadex-index.json"
CARD = "README.md"

MOST_MODELS = 10_000_000
MOST_PARTS = 100_000
MOST_REMOVED = 150_000
MOST_SKETCH_BYTES = 1 << 16
"""What a manifest may state at most; the last, of a model."""

LARGEST_WEIGHT = 255
"""Of a slot's block as it is published: 1."""


@dataclass(frozen=True, slots=True)
class SketchForm:
    """What a row of sketches is: numbers of each block of a slot, and the slots; a byte for the
    weight of each block of each slot, then the codes, slot by slot."""

    blocks: Mapping[str, int]
    slots: tuple[Slot, ...]

    @property
    def _row(self) -> np.dtype[Any]:
        return row_type(self.blocks, (len(self.slots),), weights=np.dtype(np.uint8))

    @property
    def n_bytes(self) -> int:
        """Of a row."""
        return len(self.slots) * (len(self.blocks) + code_bytes(self.blocks))

    def to_json(self) -> dict[str, object]:
        return {"blocks": dict(self.blocks), "slots": [str(slot) for slot in self.slots]}

    def encode(self, sketches: SketchMatrix) -> UInt8[np.ndarray, "models bytes"]:
        """The rows of sketches of these slots; a weight differs by at most 1/510, and is 0 only if
        it was."""
        cut, rows = sketches.cut(self.blocks), np.empty(len(sketches), self._row)
        rows["weights"] = np.maximum(np.rint(cut.weights * LARGEST_WEIGHT), cut.weights > 0)
        rows["codes"] = cut.codes
        return rows.view(np.uint8).reshape(len(sketches), self.n_bytes)

    def decode(self, rows: UInt8[np.ndarray, "models bytes"]) -> SketchMatrix:
        """The sketches of some rows: any bytes are some."""
        stored = np.ndarray(len(rows), self._row, rows)
        weights = stored["weights"].astype(np.float32) / LARGEST_WEIGHT
        return SketchMatrix(self.blocks, self.slots, weights, stored["codes"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A published index; one without parts until it is published for the first time.

    Attributes:
        index: Its own name, the same in all that is published into one folder.
        serial: How often it was published.
        created: When, in UTC, ISO 8601.
        shapes: (out, in) of the slots that a query may have.
        layout: Of the family, for recipes that depend on it.
        sketches: What a model's sketches are; None without.
        removed: Hashes of ids that are left out for good.
    """

    format: int = exchange.FORMAT
    index: str
    serial: int = 0
    created: str = ""
    deltadex: str
    base: str
    base_revision: str | None = None
    architecture: str | None = None
    recipe: Recipe
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    layout: tuple[tuple[str, str, int], ...] = ()
    models: int = 0
    sketches: SketchForm | None = None
    parts: tuple[exchange.ListedFile, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def widths(self) -> dict[str, int]:
        """Bytes of a model's vector, and of its sketch, by column of a part."""
        return widths(self.recipe.dim, self.sketches)

    @property
    def size_bytes(self) -> int:
        """Of the parts."""
        return sum(part.bytes for part in self.parts)

    def content(self) -> bytes:
        """The manifest's file."""
        sketches = self.sketches and self.sketches.to_json()
        return exchange.manifest_bytes(
            {"recipe_id": self.recipe.id, **asdict(self), "sketches": sketches}
        )


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in a file's content; raises `BadIndex` if it is none, of another format, or
    states what cannot be."""
    return exchange.parsed_manifest(data, _manifest, lambda what: BadIndex(f"{MANIFEST}: {what}"))


def _manifest(raw: Mapping[str, Any]) -> Manifest:
    recipe = exchange.checked_recipe(raw["recipe"], LONGEST_TEXT)
    if raw["recipe_id"] != recipe.id:
        raise ValueError("recipe_id")
    models = exchange.checked_count(raw["models"], "models", MOST_MODELS)
    parts = tuple(
        exchange.checked_file(part, "models")
        for part in exchange.checked_list(raw["parts"], "parts", MOST_PARTS)
    )
    if sum(part.models for part in parts) != models or not models:
        raise ValueError("models")
    if len({part.name for part in parts}) < len(parts):
        raise ValueError("parts")
    sketches = _sketch_form(raw["sketches"], recipe)
    least = sum(widths(recipe.dim, sketches).values())
    if any(part.bytes < part.models * least for part in parts):
        raise ValueError("parts")
    texts: dict[str, Any] = {}
    for name in ("created", "deltadex", "base", "base_revision", "architecture"):
        may_lack = name in ("base_revision", "architecture") and raw[name] is None
        texts[name] = None if may_lack else _text(raw[name], name)
    removed = exchange.checked_list(raw["removed"], "removed", MOST_REMOVED)
    return Manifest(
        format=raw["format"],
        index=exchange.checked_match(raw["index"], "index", re.compile(r"[0-9a-f]{32}")),
        serial=exchange.checked_count(raw["serial"], "serial", 1 << 53),
        **texts,
        recipe=recipe,
        shapes=_shapes(raw["shapes"]),
        layout=exchange.checked_layout(raw["layout"], LONGEST_TEXT),
        models=models,
        sketches=sketches,
        parts=parts,
        removed=tuple(exchange.checked_sha256(digest, "removed") for digest in removed),
    )


def _sketch_form(raw: Mapping[str, Any] | None, recipe: Recipe) -> SketchForm | None:
    if raw is None:
        return None
    dims = block_dims(recipe)
    if not dims or set(raw["blocks"]) != set(dims):
        raise ValueError("blocks")
    lengths = {block: raw["blocks"][block] for block in dims}
    for block, length in lengths.items():
        if exchange.checked_count(length, "blocks", dims[block], least=8) % 8:
            raise ValueError("blocks")
    listed = exchange.checked_list(raw["slots"], "slots", MOST_SKETCH_BYTES, least=1)
    slots = tuple(Slot.parse(_text(slot, "slots")) for slot in listed)
    for slot in slots:
        exchange.checked_count(slot.layer, "slots", 1 << 20)
    form = SketchForm(lengths, slots)
    if len(set(slots)) < len(slots) or form.n_bytes > MOST_SKETCH_BYTES:
        raise ValueError("slots")
    return form


def _shapes(raw: object) -> dict[str, tuple[int, int]]:
    if not isinstance(raw, dict) or len(raw) > 100_000:
        raise ValueError("shapes")
    size = partial(exchange.checked_count, field="shapes", most=1 << 40)
    return {
        _text(slot, "shapes"): (size(rows), size(columns)) for slot, (rows, columns) in raw.items()
    }


def _text(value: object, field: str) -> str:
    return exchange.checked_text(value, field, LONGEST_TEXT)


def removal_hash(base: str, id: str) -> str:
    """What an index remembers of a model that is left out: SHA-256 of base and id."""
    return hashlib.sha256(f"{base}\n{id}".encode("utf-8", "surrogatepass")).hexdigest()


def _vector_type(dim: int) -> np.dtype[Any]:
    """What one stored vector is: a scale for each block, then the codes."""
    n_blocks = -(-dim // BLOCK)
    return np.dtype([("scales", "<f2", (n_blocks,)), ("codes", np.int8, (n_blocks, BLOCK))])


def vector_bytes(dim: int) -> int:
    """Bytes of one stored vector."""
    return _vector_type(dim).itemsize


def encode_vectors(vectors: Float32[np.ndarray, "models dim"]) -> UInt8[np.ndarray, "models bytes"]:
    """The bytes of unit vectors: a number differs by at most 1/250 of the largest of its `BLOCK`
    numbers, + 2⁻¹⁷."""
    n, dim = vectors.shape
    rows = np.empty(n, _vector_type(dim))
    blocks = np.zeros(rows["codes"].shape, dtype=np.float32)
    blocks.reshape(n, -1)[:, :dim] = vectors
    rows["scales"] = np.abs(blocks).max(axis=2) / 127
    divisors = np.where(rows["scales"] > 0, rows["scales"], 1).astype(np.float32)[:, :, None]
    rows["codes"] = np.clip(np.rint(blocks / divisors), -127, 127)
    return rows.view(np.uint8).reshape(n, -1)


def decode_vectors(
    rows: UInt8[np.ndarray, "models bytes"], dim: int
) -> Float32[np.ndarray, "models dim"]:
    """The vectors of some rows of bytes, of unit length; raises `BadIndex` if a number is not
    finite, or a vector's length is not 1."""
    stored = np.ndarray(len(rows), _vector_type(dim), np.ascontiguousarray(rows))
    with np.errstate(invalid="ignore"):
        blocks = stored["codes"] * stored["scales"].astype(np.float32)[:, :, None]
    vectors = np.ascontiguousarray(blocks.reshape(len(rows), -1)[:, :dim])
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.vecdot(vectors, vectors))
        is_unit = np.abs(lengths - 1.0) <= LENGTH_TOLERANCE
    if not is_unit.all():
        n = int((~is_unit).sum())
        raise BadIndex(f"{count(n, 'vector')} {agree(n, 'is')} not finite, or not of length 1")
    vectors /= lengths[:, None]
    return vectors


def widths(dim: int, sketches: SketchForm | None) -> dict[str, int]:
    """Bytes of a model in the columns of a part that are kept as bytes."""
    of_sketch = {} if sketches is None else {"sketch": sketches.n_bytes}
    return {"vector": vector_bytes(dim), **of_sketch}


TEXTS = (
    *("id", "kind", "method", "dataset", "label_source", "author", "run", "license", "task"),
    *("created_at", "revision", "content_sha256", "verified"),
)
"""Columns of text; only `id` and `kind` have a value in every row."""

COUNTS = ("downloads", "bytes_total")
REQUIRED = ("id", "kind")

ROWS_AT_ONCE = 64
"""Models of a row group, which is read whole for the sketch of one: 0.8 MB."""

GROUPS_AT_ONCE = 16
"""Row groups of which vectors are read at a time: 4 MB."""

BYTES_BESIDE = 2_048
"""Bytes of a row's texts at most, on average over a part."""

MOST_METADATA = 4 << 20
"""Bytes of a Parquet file's own description."""


def model_schema(widths: Mapping[str, int]) -> pa.Schema:
    """The columns of a part."""
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=name not in REQUIRED) for name in TEXTS),
            *(pa.field(name, pa.int64()) for name in COUNTS),
            pa.field("norm", pa.float32(), nullable=False),
            *(pa.field(name, pa.binary(width), nullable=False) for name, width in widths.items()),
        ]
    )


def write_part(folder: Path, table: pa.Table) -> exchange.ListedFile:
    """Write models into a file that is named by its content; one that is there already stays.
    Raises `StoreFull` if the system refuses."""
    data = exchange.parquet_bytes(
        table,
        plain=("vector", "sketch"),
        row_group_size=ROWS_AT_ONCE,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    file = exchange.listed_file(data, len(table))
    if not exchange.is_whole(folder / file.name, file):
        write_atomically(folder / file.name, data)
    return file


class PublishedPart:
    """An open part; everything that is read of it is checked. It stays what it is when another file
    gets its name."""

    def __init__(
        self,
        path: Path,
        file: exchange.ListedFile,
        manifest: Manifest,
        damaged: Callable[[str, str], BadIndex] | None = None,
    ) -> None:
        """Open a part and compare its columns with those of a part; raises `BadIndex` if it is not
        what the manifest says, as `damaged` makes it of the file's name and what is wrong."""
        self._name, self._damaged = file.name, damaged
        self._dim, self._widths = manifest.recipe.dim, manifest.widths
        # two threads that read one Parquet file end the process
        self._reading = threading.Lock()
        if not exchange.is_whole(path, file):
            raise self._bad("SHA-256")
        with self._read():
            self._file = parquet.ParquetFile(
                pa.OSFile(str(path)),
                read_dictionary=[name for name in TEXTS if name != "id"],
                thrift_string_size_limit=MOST_METADATA,
                thrift_container_size_limit=MOST_METADATA,
                page_checksum_verification=True,
            )
            metadata, schema = self._file.metadata, self._file.schema_arrow
        wanted = {field.name: field.type for field in model_schema(self._widths)}
        texts = {name: pa.dictionary(pa.int32(), pa.string()) for name in TEXTS if name != "id"}
        if {field.name: field.type for field in schema} != {**wanted, **texts} or (
            len(schema) != len(wanted)
        ):
            raise self._bad("columns")
        groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
        rows = [group.num_rows for group in groups]
        self._starts = np.cumsum([0, *rows])
        if metadata.num_rows != file.models or sum(rows) != file.models:
            raise self._bad("rows")
        if not all(0 < n <= ROWS_AT_ONCE for n in rows):
            raise self._bad("row groups")
        largest = sum(self._widths.values()) + BYTES_BESIDE
        if sum(g.total_byte_size for g in groups) > file.models * largest + MOST_METADATA:
            raise self._bad("size")

    def models(self) -> pa.Table:
        """Everything but the vectors and sketches: texts, counts and norms; raises `BadIndex` if a
        text is too long, cannot be shown, or is missing."""
        with self._read():
            table = self._file.read(columns=[*TEXTS, *COUNTS, "norm"], use_threads=False)
            table.validate(full=True)
        columns = {name: table.column(name) for name in (*TEXTS, *COUNTS, "norm")}
        for name in TEXTS:
            column = columns[name].combine_chunks()
            self._check_texts(name, column)
            columns[name] = column.cast(pa.string())
        for name in COUNTS:
            if any(count is not None and count < 0 for count in columns[name].to_pylist()):
                raise self._bad(name)
        norms = columns["norm"].to_numpy()
        if columns["norm"].null_count or not (np.isfinite(norms) & (norms >= 0)).all():
            raise self._bad("norm")
        return pa.table(columns)

    def vectors(self) -> Iterator[Float32[np.ndarray, "rows dim"]]:
        """The vectors, some rows at a time, in order; of unit length. Raises `BadIndex` if a vector
        is missing, not finite, or not of length 1."""
        groups = list(range(len(self._starts) - 1))
        for start in range(0, len(groups), GROUPS_AT_ONCE):
            yield self._decoded(self._stored("vector", groups[start : start + GROUPS_AT_ONCE]))

    def vectors_at(self, rows: Int64[np.ndarray, " rows"]) -> Float32[np.ndarray, "rows dim"]:
        """The vectors of some rows; raises as `vectors`."""
        return self._decoded(self.stored_at("vector", rows))

    def stored_at(
        self, column: str, rows: Int64[np.ndarray, " rows"]
    ) -> UInt8[np.ndarray, "rows bytes"]:
        """The bytes of some rows; raises `BadIndex` where they are missing or changed."""
        found = np.empty((len(rows), self._widths[column]), dtype=np.uint8)
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        for group in np.unique(groups).tolist():
            here = groups == group
            found[here] = self._stored(column, [group])[rows[here] - self._starts[group]]
        return found

    def _decoded(self, stored: UInt8[np.ndarray, "rows bytes"]) -> Float32[np.ndarray, "rows dim"]:
        try:
            return decode_vectors(stored, self._dim)
        except BadIndex as err:
            raise self._bad(str(err)) from None

    def _stored(self, name: str, groups: Sequence[int]) -> UInt8[np.ndarray, "rows bytes"]:
        with self._read():
            read = self._file.read_row_groups(groups, columns=[name], use_threads=False)
            values = read.column(name).combine_chunks()
        if values.null_count:
            raise self._bad(f"a {name} is missing")
        width, (_, buffer) = self._widths[name], values.buffers()
        start, stop = values.offset * width, (values.offset + len(values)) * width
        return np.frombuffer(buffer, dtype=np.uint8)[start:stop].reshape(len(values), width)

    def _check_texts(self, name: str, column: pa.Array) -> None:
        if name in REQUIRED and column.null_count:
            raise self._bad(f"{name} is missing")
        texts = column.dictionary if isinstance(column, pa.DictionaryArray) else column
        if texts.nbytes > (len(texts) + 1) * (4 * LONGEST_TEXT + 16):
            raise self._bad(f"{name} is too long")
        if not all(text is None or is_plain(text) for text in texts.to_pylist()):
            raise self._bad(f"{name} is too long, or cannot be shown")

    @contextmanager
    def _read(self) -> Iterator[None]:
        """One thread at a time; what pyarrow raises as `BadIndex`."""
        try:
            with self._reading:
                yield
        except (pa.ArrowException, OSError, ValueError, KeyError) as err:
            raise self._bad(getattr(err, "strerror", None) or type(err).__name__) from None

    def _bad(self, what: str) -> BadIndex:
        if self._damaged is not None:
            return self._damaged(self._name, what)
        return BadIndex(f"{self._name}: not a part of a published index ({what})")
