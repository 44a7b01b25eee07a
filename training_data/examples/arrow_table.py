"""Parquet and Arrow files, as written by pyarrow and by Hugging Face's `datasets`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DataError
from ...text_files.text_stream import too_large, translated_errors, unpacked_limit
from .arrow_types import is_read, longest_entry, plain_type
from .table import NumberedRow, Undecoded, distinct_names

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 256
BATCH_BYTES = 1 << 26
"""A dictionary of long texts makes batches of fewer rows."""

BUFFER_BYTES = 1 << 20
ARROW_FILE_MAGIC = b"ARROW1"
METADATA_KEY = b"huggingface"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowTable:
    """A parquet file, an Arrow file or an Arrow stream.

    Attributes:
        types: Of each column, as pyarrow writes it; "" where its values are read.
    """

    path: Path
    columns: tuple[str, ...]
    types: tuple[str, ...]
    class_names: Mapping[str, tuple[str, ...]]
    is_parquet: bool
    notes: tuple[str, ...]
    unit: str = "row"

    @property
    def name(self) -> str:
        return self.path.name

    def rows(self, columns: Collection[str]) -> Iterator[NumberedRow]:
        """The rows with these columns; of a type that holds no text or label as `Undecoded`.

        Peak: of parquet a page of each column and `BATCH_ROWS` rows; of Arrow one of the batches
        that the file was written in (1,000 rows by `datasets`).
        """
        places = [place for place, name in enumerate(self.columns) if name in columns]
        undecoded: dict[str, object] = {
            self.columns[place]: Undecoded(self.types[place])
            for place in places
            if self.types[place]
        }
        places = [place for place in places if not self.types[place]]
        names = [self.columns[place] for place in places]
        if not places:
            yield 1, undecoded
            return
        number = 0
        with _pyarrow_errors(self.path):
            for values in self._decoded(places):
                for row in zip(*values, strict=True):
                    number += 1
                    yield number, undecoded | dict(zip(names, row, strict=True))

    def _decoded(self, places: Sequence[int]) -> Iterator[list[list[object]]]:
        """The values of the columns at these places, some rows at a time."""
        limit, decoded = unpacked_limit(self.path), 0
        batches = _parquet_batches if self.is_parquet else _arrow_batches
        for batch in batches(self.path, places):
            for place, column in zip(places, batch.columns, strict=True):
                self._check(self.columns[place], column)
            n_rows = _rows_at_once(max(map(longest_entry, batch.columns)))
            for start in range(0, batch.num_rows, n_rows):
                block = batch.slice(start, n_rows)
                columns = [column.cast(plain_type(column.type)) for column in block.columns]
                decoded += sum(column.nbytes for column in columns)
                if decoded > limit:
                    raise too_large(self.path)
                yield [column.to_pylist() for column in columns]

    def _check(self, name: str, column: pa.Array) -> None:
        """Raises `DataError` for offsets that lead out of the data, and for broken UTF-8."""
        import pyarrow as pa

        try:
            column.validate(full=True)
        except pa.ArrowInvalid as err:
            if "UTF8" not in str(err):
                raise
            raise DataError(
                f"{self.path}: column {name!r} has text that is not UTF-8; write it again as UTF-8"
            ) from err


def open_arrow(path: Path) -> ArrowTable:
    """The table in a `.parquet` or `.arrow` file, with the class names in its metadata.

    Raises:
        DataError: a file that is damaged or of another format.
    """
    is_parquet = path.suffix.lower() == ".parquet"
    with _pyarrow_errors(path):
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty")
        schema = _parquet_schema(path) if is_parquet else _arrow_schema(path)
    names, notes = distinct_names(schema.names)
    return ArrowTable(
        path=path,
        columns=names,
        types=tuple("" if is_read(type) else str(type) for type in schema.types),
        class_names=names_in_metadata((schema.metadata or {}).get(METADATA_KEY, b"{}")),
        is_parquet=is_parquet,
        notes=notes,
    )


def names_in_metadata(document: bytes) -> dict[str, tuple[str, ...]]:
    """The names of classes by column, in what `datasets` writes into a file's metadata."""
    try:
        return names_of_features(json.loads(document))
    except (ValueError, RecursionError):
        return {}


def names_of_features(info: object) -> dict[str, tuple[str, ...]]:
    """The names of classes by column, in what `datasets` writes about a data set's features."""
    info = info.get("info", info) if isinstance(info, dict) else {}
    features = info.get("features") if isinstance(info, dict) else None
    names = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        listed = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
            names[column] = tuple(listed)
    return names


@contextmanager
def _pyarrow_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    with translated_errors(path):
        try:
            yield
        except MemoryError as err:
            raise too_large(path) from err
        except (pa.ArrowException, ValueError) as err:
            raise _damaged(path, err) from err
        except OSError as err:
            if err.errno is not None:
                raise
            raise _damaged(path, err) from err


def _damaged(path: Path, err: Exception) -> DataError:
    line = str(err).splitlines()[0] if str(err) else type(err).__name__
    format = "parquet" if path.suffix.lower() == ".parquet" else "Arrow"
    return DataError(
        f"{path}: not a whole {format} file ({line.rstrip('.')}); copy or download it again"
    )


def _parquet_schema(path: Path) -> pa.Schema:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return file.schema_arrow


def _parquet_batches(path: Path, places: Sequence[int]) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
        names = file.schema_arrow.names
        wanted = list(dict.fromkeys(names[place] for place in places))
        # of two columns of one name both are read
        read = [place for place, name in enumerate(names) if name in wanted]
        for group in range(file.num_row_groups):
            n_rows = _rows_at_once(_longest_text(path, group, wanted))
            for batch in file.iter_batches(
                n_rows, row_groups=[group], columns=wanted, use_threads=False
            ):
                yield batch.select([read.index(place) for place in places])


def _longest_text(path: Path, group: int, columns: Sequence[str]) -> int:
    """Bytes of the longest text in the dictionaries of a group of rows.

    Raises:
        DataError: the columns have more data than a file of its size holds.
    """
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        metadata = file.metadata.row_group(group)
        chunks = [metadata.column(place) for place in range(metadata.num_columns)]
    chunks = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
    if sum(chunk.total_uncompressed_size for chunk in chunks) > unpacked_limit(path):
        raise too_large(path)
    leaves = [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY"
    ]
    if not leaves:
        return 0
    with parquet.ParquetFile(path, read_dictionary=leaves, pre_buffer=False) as file:
        for batch in file.iter_batches(1, row_groups=[group], columns=leaves, use_threads=False):
            return max(map(longest_entry, batch.columns))
    return 0


def _rows_at_once(longest: int) -> int:
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(longest, 1)))


def _arrow_schema(path: Path) -> pa.Schema:
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source:
        return _arrow_reader(source).schema


def _arrow_batches(path: Path, places: Sequence[int]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source:
        reader = _arrow_reader(source, places)
        if isinstance(reader, pa.RecordBatchFileReader):
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from reader


def _arrow_reader(
    source: pa.NativeFile, places: Sequence[int] | None = None
) -> pa.RecordBatchReader | pa.RecordBatchFileReader:
    """A reader of the file format, or of the stream that `datasets` writes."""
    import pyarrow as pa

    magic = source.read(len(ARROW_FILE_MAGIC))
    source.seek(0)
    options = pa.ipc.IpcReadOptions(included_fields=list(places or ()))
    open_source = pa.ipc.open_file if magic == ARROW_FILE_MAGIC else pa.ipc.open_stream
    return open_source(source, options=options)
