"""A part of a published index: some models and their vectors, in one immutable Parquet file."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ...arrays import Float32, UInt8
from ...errors import BadIndex, StoreFull
from ..files import atomic_file
from .checked_file import CheckedFile
from .manifest import PublishedFile, sha256_of
from .plain_text import LONGEST_TEXT, is_plain
from .vector_codes import Form, decode_vectors, vector_bytes

TEXTS = (
    "id",
    "kind",
    "method",
    "dataset",
    "label_source",
    "author",
    "run",
    "license",
    "task",
    "created_at",
    "revision",
    "content_sha256",
    "verified",
)
"""Columns of text; only `id` and `kind` have a value in every row."""

COUNTS = ("downloads", "bytes_total")
REQUIRED = ("id", "kind")
LARGEST_COUNT = (1 << 63) - 1

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


def write_part(folder: Path, models: pa.Table) -> PublishedFile:
    """Write some models, at least one, with their vectors; the file has its content's name.

    Raises:
        StoreFull: the system refuses.
    """
    return write_named(folder, "models", models, rows=models.num_rows)


def write_named(folder: Path, kind: str, table: pa.Table, *, rows: int = 0) -> PublishedFile:
    """Write a table into a file that is named by its content.

    Raises:
        StoreFull: the system refuses.
    """
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
    """Write bytes into a file that is named by them; one that is there already stays.

    Raises:
        StoreFull: the system refuses.
    """
    digest = sha256_of(data)
    file = PublishedFile(
        name=f"{kind}-{digest[:16]}.{ending}", sha256=digest, bytes=len(data), models=rows
    )
    if not is_whole(folder / file.name, file):
        with atomic_file(folder / file.name) as temporary:
            temporary.write_bytes(data)
    return file


def is_whole(path: Path, file: PublishedFile) -> bool:
    """Whether a file is there and has the listed content.

    Raises:
        StoreFull: the system refuses to read it.
    """
    try:
        if not path.is_file() or os.path.getsize(path) != file.bytes:
            return False
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    except OSError as err:
        raise StoreFull(f"{path}: {err.strerror}") from err


def read_listed(path: Path, file: PublishedFile) -> bytes | None:
    """A small file's content; None where it is missing, or not the listed content.

    Raises:
        StoreFull: the system refuses to read it.
    """
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
        """Open a part and compare its columns with those of a part.

        Raises:
            BadIndex: it is not what the manifest says.
        """
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
        """Everything but the vectors: texts, counts and norms.

        Raises:
            BadIndex: a text is too long, cannot be shown, or is missing.
        """
        try:
            with self._reading:
                table = self._file.read(columns=[*TEXTS, *COUNTS, "norm"], use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as err:
            raise self._bad(type(err).__name__) from None
        columns = {}
        for name in TEXTS:
            column = table.column(name).combine_chunks()
            self._check_texts(name, column)
            columns[name] = column.cast(pa.string())
        for name in COUNTS:
            values = [value for value in table.column(name).to_pylist() if value is not None]
            if values and min(values) < 0:
                raise self._bad(name)
            columns[name] = table.column(name)
        norms = table.column("norm").to_numpy()
        if table.column("norm").null_count or not (np.isfinite(norms) & (norms >= 0)).all():
            raise self._bad("norm")
        columns["norm"] = table.column("norm")
        return pa.table(columns)

    def vectors(self) -> Iterator[Float32[np.ndarray, "rows dim"]]:
        """The vectors, some rows at a time, in order; of unit length.

        Raises:
            BadIndex: a vector is missing, not finite, or not of length 1.
        """
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
        sizes = texts.nbytes
        if sizes > (len(texts) + 1) * (4 * LONGEST_TEXT + 16):
            raise self._bad(f"{name} is too long")
        if not all(text is None or is_plain(text) for text in texts.to_pylist()):
            raise self._bad(f"{name} is too long, or cannot be shown")

    def _bad(self, what: str) -> BadIndex:
        return BadIndex(f"{self.name}: not a part of a published index ({what})")
