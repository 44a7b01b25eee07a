"""Parquet and Arrow files, as written by pyarrow and by Hugging Face's `datasets`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError
from .text_tables import (
    NumberedRow,
    Table,
    Undecoded,
    distinct_names,
    too_large,
    translated_errors,
    unpacked_limit,
)

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 256
BATCH_BYTES = 1 << 26
BUFFER_BYTES = 1 << 20
ARROW_FILE_MAGIC = b"ARROW1"
METADATA_KEY = b"huggingface"


def open_arrow(path: Path) -> Table:
    """The table in a `.parquet` or `.arrow` file, with the class names in its metadata; a value of
    a type that holds no text or label is `Undecoded`. DataError for a damaged file.

    Peak: of parquet a page of each column and `BATCH_ROWS` rows; of Arrow one of the batches that
    the file was written in (1,000 rows by `datasets`).
    """
    with _pyarrow_errors(path):
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty")
        schema = _schema(path)
    names, notes = distinct_names(schema.names)
    types = ["" if is_read(type) else str(type) for type in schema.types]

    def rows(columns: Collection[str]) -> Iterator[NumberedRow]:
        chosen = {name: place for place, name in enumerate(names) if name in columns}
        undecoded: dict[str, object] = {
            name: Undecoded(types[place]) for name, place in chosen.items() if types[place]
        }
        places = {name: place for name, place in chosen.items() if not types[place]}
        if not places:
            yield 1, undecoded
            return
        with _pyarrow_errors(path):
            decoded = (row for block in _decoded(path, places) for row in zip(*block, strict=True))
            for number, row in enumerate(decoded, start=1):
                yield number, undecoded | dict(zip(places, row, strict=True))

    return Table(
        path=path,
        columns=names,
        rows=rows,
        unit="row",
        class_names=_names_in_metadata((schema.metadata or {}).get(METADATA_KEY, b"{}")),
        notes=notes,
    )


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _decoded(path: Path, places: Mapping[str, int]) -> Iterator[list[list[object]]]:
    """The values of the columns at these places, some rows at a time."""
    limit, decoded = unpacked_limit(path), 0
    batches = _parquet_batches if _is_parquet(path) else _arrow_batches
    for batch in batches(path, list(places.values())):
        for name, column in zip(places, batch.columns, strict=True):
            _check(path, name, column)
        n_rows = _rows_at_once(max(map(longest_entry, batch.columns)))
        for start in range(0, batch.num_rows, n_rows):
            block = batch.slice(start, n_rows)
            columns = [column.cast(plain_type(column.type)) for column in block.columns]
            decoded += sum(column.nbytes for column in columns)
            if decoded > limit:
                raise too_large(path)
            yield [column.to_pylist() for column in columns]


def _check(path: Path, name: str, column: pa.Array) -> None:
    """Raises `DataError` for offsets that lead out of the data, and for broken UTF-8."""
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid as err:
        if "UTF8" not in str(err):
            raise
        raise DataError(
            f"{path}: column {name!r} has text that is not UTF-8; write it again as UTF-8"
        ) from err


def _names_in_metadata(document: bytes) -> dict[str, tuple[str, ...]]:
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
    format = "parquet" if _is_parquet(path) else "Arrow"
    return DataError(
        f"{path}: not a whole {format} file ({line.rstrip('.')}); copy or download it again"
    )


def _schema(path: Path) -> pa.Schema:
    import pyarrow as pa
    from pyarrow import parquet

    if _is_parquet(path):
        with parquet.ParquetFile(path) as file:
            return file.schema_arrow
    with pa.OSFile(str(path), "rb") as source:
        return _arrow_reader(source).schema


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
    """Bytes of the longest text in the dictionaries of a group of rows; DataError where the columns
    have more data than a file of its size holds."""
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


def is_read(type: pa.DataType, *, is_nested: bool = False) -> bool:
    """Whether a column holds texts, numbers, truth values, or lists and structs of them; moments
    only inside of messages, as Python has none of nanoseconds or beyond the year 9999."""
    from pyarrow import types

    if types.is_dictionary(type):
        return is_read(type.value_type, is_nested=is_nested)
    if types.is_nested(type) and not types.is_union(type):
        return all(is_read(child.type, is_nested=True) for child in _children(type))
    is_text = types.is_string(type) or types.is_large_string(type) or types.is_string_view(type)
    is_number = types.is_integer(type) or types.is_floating(type) or types.is_decimal(type)
    is_other = types.is_boolean(type) or types.is_null(type)
    return is_text or is_number or is_other or (is_nested and types.is_temporal(type))


def plain_type(type: pa.DataType) -> pa.DataType:
    """What values are decoded as: no dictionaries and views, moments as numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(type):
        return plain_type(type.value_type)
    if pa.types.is_string_view(type):
        return pa.large_string()
    if pa.types.is_temporal(type):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    if pa.types.is_struct(type):
        return pa.struct([child.with_type(plain_type(child.type)) for child in _children(type)])
    if pa.types.is_map(type):
        return pa.map_(plain_type(type.key_type), plain_type(type.item_type))
    if pa.types.is_fixed_size_list(type):
        return pa.list_(plain_type(type.value_type), type.list_size)
    if pa.types.is_large_list(type):
        return pa.large_list(plain_type(type.value_type))
    return pa.list_(plain_type(type.value_type)) if pa.types.is_list(type) else type


def _children(type: pa.DataType) -> list[pa.Field]:
    return [type.field(place) for place in range(type.num_fields)]


def longest_entry(array: pa.Array) -> int:
    """Bytes that a value may have beyond its share of the array's: many may point at one text."""
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(array, pa.DictionaryArray):
        texts = array.dictionary
        if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
            return 0
        return compute.max(compute.binary_length(texts)).as_py() or 0
    if pa.types.is_string_view(array.type):
        return sum(buffer.size for buffer in array.buffers() if buffer is not None)
    if isinstance(array, pa.StructArray):
        return max(map(longest_entry, array.flatten()), default=0)
    if pa.types.is_nested(array.type):
        return longest_entry(array.values)
    return 0
