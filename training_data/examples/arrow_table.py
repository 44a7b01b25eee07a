"""Parquet and Arrow files, as written by pyarrow and by Hugging Face's `datasets`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DataError
from ...text_files.text_stream import translated_errors
from .table import NumberedRow

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20
ARROW_FILE_MAGIC = b"ARROW1"
METADATA_KEY = b"huggingface"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowTable:
    """A parquet file, an Arrow file or an Arrow stream.

    Attributes:
        types: The type of each column, as pyarrow writes it.
    """

    path: Path
    columns: tuple[str, ...]
    types: tuple[str, ...]
    class_names: Mapping[str, tuple[str, ...]]
    is_parquet: bool
    unit: str = "row"
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    def rows(self, columns: Collection[str]) -> Iterator[NumberedRow]:
        """The rows with these columns.

        Peak: of parquet a page of each column and `BATCH_ROWS` rows; of Arrow one of the batches
        that the file was written in (1,000 rows by `datasets`).
        """
        number = 0
        with _pyarrow_errors(self.path):
            batches = _parquet_batches if self.is_parquet else _arrow_batches
            for batch in batches(self.path, list(columns)):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    for row in batch.slice(start, BATCH_ROWS).to_pylist():
                        number += 1
                        yield number, row


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
    return ArrowTable(
        path=path,
        columns=tuple(schema.names),
        types=tuple(str(type) for type in schema.types),
        class_names=names_in_metadata((schema.metadata or {}).get(METADATA_KEY, b"{}")),
        is_parquet=is_parquet,
    )


def names_in_metadata(document: bytes) -> dict[str, tuple[str, ...]]:
    """The names of classes by column, in what `datasets` writes about a data set's features."""
    try:
        info = json.loads(document)
    except ValueError:
        return {}
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
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as err:
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


def _parquet_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)


def _arrow_schema(path: Path) -> pa.Schema:
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source:
        return _arrow_reader(source).schema


def _arrow_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as source:
        reader = _arrow_reader(source)
        if isinstance(reader, pa.RecordBatchFileReader):
            batches = (reader.get_batch(place) for place in range(reader.num_record_batches))
        else:
            batches = iter(reader)
        for batch in batches:
            yield batch.select(columns)


def _arrow_reader(source: pa.NativeFile) -> pa.RecordBatchReader | pa.RecordBatchFileReader:
    """A reader of the file format, or of the stream that `datasets` writes."""
    import pyarrow as pa

    magic = source.read(len(ARROW_FILE_MAGIC))
    source.seek(0)
    return pa.ipc.open_file(source) if magic == ARROW_FILE_MAGIC else pa.ipc.open_stream(source)
