"""The files of a published index: parts, some models and their vectors in one immutable Parquet
file, and what scores are normalised with. What is read of a file is what was fetched.

SHA-256 of every file would take longer than a search. Each block has a checksum (XXH3, 64 bits),
made when the file had its SHA-256 and kept beside it, which is compared whenever the block is read.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash
from pyarrow import parquet

from ...arrays import Float32, Float64, Int64, UInt8, UInt64
from ...errors import BadIndex, StoreFull
from ..files import atomic_file, write_atomically
from .manifest import (
    LONGEST_TEXT,
    Form,
    Manifest,
    NullScale,
    PublishedFile,
    decode_vectors,
    is_plain,
    sha256_of,
    vector_bytes,
)

BLOCK = 1 << 16
"""Bytes with one checksum."""

SUMS = ".sums"
"""Ending of the file of checksums, behind the name of the file that they are of."""

_HASH_BYTES = 16


class CheckedFile:
    """An open file that pyarrow reads, one thread at a time; it stays what it is when another file
    gets its name."""

    closed = False

    def __init__(self, path: Path, file: PublishedFile, damaged: Callable[[str], BadIndex]) -> None:
        """Open a file; `damaged` makes the error that this and reading raise where it is not there,
        or is another than was fetched."""
        self._size, self._damaged, self._at = file.bytes, damaged, 0
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as err:
            raise damaged(str(err.strerror)) from None
        weakref.finalize(self, os.close, self._descriptor)
        if os.fstat(self._descriptor).st_size != file.bytes:
            raise damaged("changed since it was fetched")
        sums = _stored_sums(path, file)
        if sums is None:
            sums = self._made_sums(file)
            with suppress(StoreFull):
                write_atomically(path.with_name(path.name + SUMS), _bound(file, sums.tobytes()))
        self._sums = sums

    def read(self, n: int = -1) -> memoryview:
        """The next bytes; raises `BadIndex` where they differ from what was fetched."""
        start = min(self._at, self._size)
        self._at = stop = self._size if n < 0 else min(self._size, start + n)
        first = start // BLOCK
        blocks = self._bytes(first * BLOCK, min(self._size, -(-stop // BLOCK) * BLOCK))
        for number, place in enumerate(range(0, len(blocks), BLOCK), first):
            checksum = xxhash.xxh3_64_intdigest(blocks[place : place + BLOCK])
            if checksum != self._sums[number]:
                raise self._damaged("changed since it was fetched")
        return blocks[start - first * BLOCK : stop - first * BLOCK]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        """The file is closed when nothing needs it any more."""

    def _bytes(self, start: int, stop: int) -> memoryview:
        try:
            data = os.pread(self._descriptor, stop - start, start)
        except OSError as err:
            raise self._damaged(f"cannot be read: {err.strerror}") from None
        if len(data) < stop - start:
            raise self._damaged("shorter than it was when it was fetched")
        return memoryview(data)

    def _made_sums(self, file: PublishedFile) -> UInt64[np.ndarray, " blocks"]:
        """The checksums of all blocks of a file that has its SHA-256."""
        whole, sums = hashlib.sha256(), []
        for start in range(0, self._size, BLOCK):
            block = self._bytes(start, min(self._size, start + BLOCK))
            whole.update(block)
            sums.append(xxhash.xxh3_64_intdigest(block))
        if whole.hexdigest() != file.sha256:
            raise self._damaged("changed since it was fetched")
        return np.array(sums, dtype="<u8")


def _stored_sums(path: Path, file: PublishedFile) -> UInt64[np.ndarray, " blocks"] | None:
    """The checksums that an earlier process wrote; None without, or where they are damaged."""
    try:
        content = path.with_name(path.name + SUMS).read_bytes()
    except OSError:
        return None
    sums = content[_HASH_BYTES:]
    if len(sums) != 8 * -(-file.bytes // BLOCK) or content != _bound(file, sums):
        return None
    return np.frombuffer(sums, dtype="<u8")


def _bound(file: PublishedFile, sums: bytes) -> bytes:
    """Checksums behind a checksum of themselves and of the file that they are of."""
    return xxhash.xxh3_128_digest(file.sha256.encode() + sums) + sums


TEXTS = (
    *("id", "kind", "method", "dataset", "label_source", "author", "run", "license", "task"),
    *("created_at", "revision", "content_sha256", "verified"),
)
"""Columns of text; only `id` and `kind` have a value in every row."""

COUNTS = ("downloads", "bytes_total")
REQUIRED = ("id", "kind")

ROWS_AT_ONCE = 1_024
"""Models of a row group: 4 MB of vectors."""

BYTES_BESIDE = 2_048
"""Bytes of a row's texts at most, on average over a part."""

MOST_METADATA = 4 << 20
"""Bytes of a Parquet file's own description."""


def model_schema(dim: int, form: Form) -> pa.Schema:
    """The columns of a part."""
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=name not in REQUIRED) for name in TEXTS),
            *(pa.field(name, pa.int64()) for name in COUNTS),
            pa.field("norm", pa.float32(), nullable=False),
            pa.field("vector", pa.binary(vector_bytes(dim, form)), nullable=False),
        ]
    )


def with_vectors(models: pa.Table, rows: UInt8[np.ndarray, "models bytes"]) -> pa.Table:
    """Models with their stored vectors as the last column."""
    buffer = pa.py_buffer(np.ascontiguousarray(rows))
    column = pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, buffer])
    return models.append_column(pa.field("vector", column.type, nullable=False), column)


def write_named(folder: Path, kind: str, table: pa.Table, *, rows: int = 0) -> PublishedFile:
    """Write a table into a file that is named by its content; raises as `write_content`."""
    sink = pa.BufferOutputStream()
    compressed = [name for name in table.column_names if name != "vector"]
    parquet.write_table(
        table,
        sink,
        row_group_size=ROWS_AT_ONCE,
        compression={name: "zstd" if name in compressed else "none" for name in table.column_names},
        use_dictionary=[name for name in compressed if name not in ("id", "norm", "numbers")],
        write_statistics=False,
        store_schema=False,
    )
    data = sink.getvalue().to_pybytes()
    return write_content(folder, kind, "parquet", data, rows=rows)


def write_content(
    folder: Path, kind: str, ending: str, data: bytes, *, rows: int = 0
) -> PublishedFile:
    """Write bytes into a file that is named by them; one that is there already stays. Raises
    `StoreFull` if the system refuses."""
    digest = sha256_of(data)
    file = PublishedFile(
        name=f"{kind}-{digest[:16]}.{ending}", sha256=digest, bytes=len(data), models=rows
    )
    if not is_whole(folder / file.name, file):
        with atomic_file(folder / file.name) as temporary:
            temporary.write_bytes(data)
    return file


def is_whole(path: Path, file: PublishedFile) -> bool:
    """Whether a file is there and has the listed content; raises `StoreFull` if the system refuses
    to read it."""
    try:
        if not path.is_file() or os.path.getsize(path) != file.bytes:
            return False
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    except OSError as err:
        raise StoreFull(f"{path}: {err.strerror}") from err


def read_listed(path: Path, file: PublishedFile) -> bytes | None:
    """A small file's content; None where it is missing, or not the listed content. Raises
    `StoreFull` if the system refuses to read it."""
    try:
        with path.open("rb") as opened:
            content = opened.read(file.bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise StoreFull(f"{path}: {err.strerror}") from err
    return content if sha256_of(content) == file.sha256 else None


class PublishedPart:
    """An open part; everything that is read of it is checked."""

    def __init__(
        self, source: Path | CheckedFile, file: PublishedFile, dim: int, form: Form
    ) -> None:
        """Open a part and compare its columns with those of a part; raises `BadIndex` if it is not
        what the manifest says."""
        self.name, self._dim, self._form = file.name, dim, form
        # two threads that read one Parquet file end the process
        self._reading = threading.Lock()
        try:
            self._file = parquet.ParquetFile(
                source,
                memory_map=True,
                read_dictionary=[name for name in TEXTS if name != "id"],
                thrift_string_size_limit=MOST_METADATA,
                thrift_container_size_limit=MOST_METADATA,
            )
            metadata = self._file.metadata
            schema = self._file.schema_arrow
            named = {field.name: field.type for field in schema}
        except (pa.ArrowException, OSError, ValueError, KeyError) as err:
            raise self._bad(type(err).__name__) from None
        wanted = {field.name: field.type for field in model_schema(dim, form)}
        texts = {name: pa.dictionary(pa.int32(), pa.string()) for name in TEXTS if name != "id"}
        if named != {**wanted, **texts} or len(schema) != len(wanted):
            raise self._bad("columns")
        groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
        rows = [group.num_rows for group in groups]
        if metadata.num_rows != file.models or sum(rows) != file.models:
            raise self._bad("rows")
        if not all(0 < n <= ROWS_AT_ONCE for n in rows):
            raise self._bad("row groups")
        largest = vector_bytes(dim, form) + BYTES_BESIDE
        if any(
            group.total_byte_size > n * largest + MOST_METADATA
            for group, n in zip(groups, rows, strict=True)
        ):
            raise self._bad("size")

    @property
    def n_groups(self) -> int:
        """Row groups, each of some models in order."""
        return int(self._file.num_row_groups)

    def group_size(self, group: int) -> int:
        """Models of a row group."""
        return int(self._file.metadata.row_group(group).num_rows)

    def models(self) -> pa.Table:
        """Everything but the vectors: texts, counts and norms; raises `BadIndex` if a text is too
        long, cannot be shown, or is missing."""
        try:
            with self._reading:
                table = self._file.read(columns=[*TEXTS, *COUNTS, "norm"], use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as err:
            raise self._bad(type(err).__name__) from None
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
        for place in range(self.n_groups):
            yield self.vectors_of(place)

    def vectors_of(self, group: int) -> Float32[np.ndarray, "rows dim"]:
        """The vectors of one row group; raises as `vectors`."""
        stored = self.stored(group)
        try:
            return decode_vectors(stored, self._dim, self._form)
        except BadIndex as err:
            raise self._bad(str(err)) from None

    def stored(self, group: int) -> UInt8[np.ndarray, "rows bytes"]:
        """The same as they are stored; raises `BadIndex` where one is missing."""
        try:
            with self._reading:
                column = self._file.read_row_group(group, columns=["vector"], use_threads=False)
            values = column.column("vector").combine_chunks()
        except (pa.ArrowException, OSError, ValueError) as err:
            raise self._bad(type(err).__name__) from None
        width = vector_bytes(self._dim, self._form)
        if values.null_count:
            raise self._bad("a vector is missing")
        _, buffer = values.buffers()
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

    def _bad(self, what: str) -> BadIndex:
        return BadIndex(f"{self.name}: not a part of a published index ({what})")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Cohort statistics of an index: how scores are scaled, and aμ of each kind, taken from
    vectors; none for recipes without a mean."""

    scale: NullScale
    means: Mapping[str, Float64[np.ndarray, " dim"]] = field(compare=False)


Measure = Callable[
    [
        Sequence[str],
        Sequence[str],
        Sequence[str | None],
        Callable[[Int64[np.ndarray, " rows"]], Float32[np.ndarray, "rows dim"]],
    ],
    Statistics,
]
"""Statistics of models in order of id: their ids, kinds and datasets, and what gives vectors."""


def write_means(folder: Path, statistics: Statistics) -> PublishedFile:
    """Write the means; raises as `write_content`."""
    numbers = [mean.astype(np.float32) for mean in statistics.means.values()]
    columns = [
        pa.array(list(statistics.means), pa.string()),
        pa.array(numbers, pa.list_(pa.float32())),
    ]
    return write_named(folder, "means", pa.table(columns, names=["kind", "numbers"]))


def read_statistics(content: bytes, manifest: Manifest) -> Statistics:
    """The statistics of an index, from the file of its means; raises `BadIndex` if the means are
    not what the manifest says."""
    name, dim = manifest.means.name, manifest.recipe.dim
    try:
        file = parquet.ParquetFile(
            pa.BufferReader(content),
            thrift_string_size_limit=MOST_METADATA,
            thrift_container_size_limit=MOST_METADATA,
        )
        n_kinds = len(manifest.scale.kinds)
        if file.metadata.num_rows > n_kinds or file.metadata.num_row_groups > 1:
            raise ValueError("rows")
        table = file.read(use_threads=False)
        kinds, numbers = table.column("kind").to_pylist(), table.column("numbers")
        if not set(kinds) <= set(manifest.scale.kinds) or len(set(kinds)) < len(kinds):
            raise ValueError("kinds")
        means = {
            kind: np.asarray(row.values, np.float32).astype(np.float64)
            for kind, row in zip(kinds, numbers, strict=True)
        }
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise BadIndex(f"{name}: not means of a published index ({type(err).__name__})") from None
    for mean in means.values():
        if mean.shape != (dim,) or not np.isfinite(mean).all() or np.linalg.norm(mean) > 1.0 + 1e-3:
            raise BadIndex(f"{name}: a mean is not finite, or not of this recipe")
    return Statistics(scale=manifest.scale, means=means)
