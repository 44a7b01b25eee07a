"""Which files hold a data set, and those of parquet and Arrow as rows."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DataError
from . import text_tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

COLUMN_FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".feather")
FORMATS = (*COLUMN_FORMATS, ".txt")
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".npy", ".joblib")
DEFAULT_SPLIT = "train"
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval"),
}
OTHER_JSON = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")
DEEPEST = 4
SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """The files of a data set, in the order in which they are read; `root` is what was named. Class
    names of columns are from files beside the data."""

    root: Path
    paths: tuple[Path, ...]
    split: str = ""
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def tables(self, encoding: str, wanted: Collection[str]) -> list[text_tables.DataTable]:
        """An open table for each file; text is taken to be of this encoding if it has no mark."""
        return [_open(path, encoding, wanted) for path in self.paths]

    def sha256(self) -> str:
        """Of the file's bytes; of a folder, of each file's path in it, size and bytes."""
        digest, is_folder = hashlib.sha256(), self.root != self.paths[0]
        for path in sorted(self.paths):
            with text_tables.translated_errors(path), path.open("rb") as file:
                if is_folder:
                    name = path.relative_to(self.root).as_posix()
                    digest.update(f"{name}\0{path.stat().st_size}\0".encode("utf-8", "replace"))
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()


def locate_data_files(path: Path, split: str | None = None) -> DataFiles:
    """The data files of a file or a folder; of several splits `split`, or else `train`. Raises
    DataError."""
    if path.is_dir():
        return _in_folder(path, split)
    text_tables.refuse_pipe(path)
    if split is not None:
        raise DataError(f"{path}: one file has no splits; leave out --split")
    return DataFiles(root=path, paths=(path,))


def _in_folder(folder: Path, split: str | None) -> DataFiles:
    """The files as saved by `datasets`, or by the splits that their paths name."""
    chosen, splits, saved = "", list[str](), folder
    if (folder / "dataset_dict.json").is_file():
        listed = _list(_document(folder / "dataset_dict.json").get("splits"))
        splits = [name for name in listed if isinstance(name, str) and name in os.listdir(folder)]
        chosen = _choose_split(folder, splits, split)
        saved = folder / chosen
        paths = _saved(saved)
    elif (folder / "state.json").is_file():
        if split is not None:
            raise DataError(f"{folder}: this data set was saved without splits; leave out --split")
        paths = _saved(folder)
    else:
        by_split: dict[str, list[Path]] = {}
        found = sorted(_below(folder))
        # files of text only where there is nothing with columns
        for path in [path for path in found if _format(path) in COLUMN_FORMATS] or found:
            by_split.setdefault(_split_of(path.relative_to(folder)), []).append(path)
        if not by_split:
            raise DataError(f"{folder}: no data file in it ({', '.join(FORMATS)})")
        splits = sorted(filter(None, by_split))
        chosen = _choose_split(folder, splits, split) if splits else ""
        if split is not None and not splits:
            raise DataError(f"{folder}: its files name no splits; leave out --split")
        paths = by_split[chosen]
        _refuse_several_sets(folder, paths)
    info = saved / "dataset_info.json"
    return DataFiles(
        root=folder,
        paths=tuple(paths),
        split=chosen,
        class_names=names_of_features(_document(info)) if info.is_file() else {},
    )


def _saved(folder: Path) -> list[Path]:
    """The Arrow files of a data set that `save_to_disk` wrote, in their order."""
    state = _document(folder / "state.json")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise DataError(
            f"{folder}: a selection of rows by their numbers; save it again after flatten_indices()"
        )
    files = _list(state.get("_data_files"))
    names = [entry.get("filename") for entry in files if isinstance(entry, dict)]
    paths = [folder / name for name in names if isinstance(name, str)]
    for path in paths:
        if path.resolve().parent != folder.resolve():
            raise DataError(f"{folder / 'state.json'}: names a file outside its folder")
        text_tables.refuse_pipe(path)
    if not paths:
        raise DataError(f"{folder}: its state.json names no data files")
    return paths


def _below(folder: Path, depth: int = DEEPEST) -> Iterator[Path]:
    with text_tables.translated_errors(folder):
        entries = sorted(folder.iterdir())
    for path in entries:
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir() and depth:
            yield from _below(path, depth - 1)
        elif path.name not in OTHER_JSON and _format(path) in FORMATS and path.is_file():
            yield path


def _format(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return next((ending for ending in FORMATS if name.endswith(ending)), "")


def _split_of(path: Path) -> str:
    """The split that a path names by a word of its own, the last word first; "" if none."""
    for word in reversed(re.split(r"[^a-z]+", path.as_posix().lower())):
        for split, words in SPLIT_NAMES.items():
            if word in words:
                return split
    return ""


def _choose_split(folder: Path, splits: Sequence[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    wanted = split or DEFAULT_SPLIT
    names = (wanted, *(name for name, words in SPLIT_NAMES.items() if wanted in words))
    for name in names:
        if name in splits:
            return name
    raise DataError(
        f"{folder}: no split {wanted!r}; choose with --split: {', '.join(splits) or 'none'}"
    )


def _refuse_several_sets(folder: Path, paths: Sequence[Path]) -> None:
    """Files of one data set stand in one folder and have one format."""
    parents = sorted({path.parent.relative_to(folder).as_posix() for path in paths})
    if len(parents) > 1:
        more = ", …" * (len(parents) > SHOWN)
        raise DataError(
            f"{folder}: data files in several folders ({', '.join(parents[:SHOWN])}{more}); "
            "name one of them"
        )
    formats = sorted({_format(path) for path in paths})
    if len(formats) > 1:
        raise DataError(
            f"{folder}: data files of several formats ({', '.join(formats)}); name one file"
        )


def _open(path: Path, encoding: str, wanted: Collection[str]) -> text_tables.DataTable:
    format = _format(path)
    if format in (".csv", ".tsv"):
        return text_tables.open_csv(text_tables.TextFile(path, encoding), wanted)
    if format in (".json", ".jsonl", ".ndjson"):
        return text_tables.open_json(text_tables.TextFile(path, encoding))
    if format in (".parquet", ".arrow", ".feather"):
        if path.suffix.lower() == ".gz":
            raise DataError(f"{path}: {format[1:]} is compressed inside; unpack the file first")
        return open_arrow(path)
    if path.suffix.lower() in PICKLES:
        raise DataError(f"{path}: may be a pickle, which is never opened; save it as parquet")
    return text_tables.open_lines(text_tables.TextFile(path, encoding))


def _document(path: Path) -> Mapping[str, object]:
    text_tables.refuse_pipe(path)
    try:
        with text_tables.translated_errors(path), path.open("rb") as file:
            document = json.loads(file.read(text_tables.LONGEST_LINE))
    except (ValueError, RecursionError) as err:
        raise DataError(f"{path}: not JSON of a data set; save the data set again") from err
    if not isinstance(document, dict):
        raise DataError(f"{path}: not a JSON object; save the data set again")
    return document


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


BATCH_ROWS = 256
BATCH_BYTES = 1 << 28
BUFFER_BYTES = 1 << 20
ARROW_FILE_MAGIC = b"ARROW1"
METADATA_KEY = b"huggingface"


def open_arrow(path: Path) -> text_tables.DataTable:
    """The table in a `.parquet` or `.arrow` file, with the class names in its metadata; a value of
    a type that holds no text or label is `Undecoded`. DataError for a damaged file.

    Peak: of parquet a page of each column and `BATCH_ROWS` rows; of Arrow one of the batches that
    the file was written in (1,000 rows by `datasets`).
    """
    with _pyarrow_errors(path):
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty")
        schema = _schema(path)
    names, notes = text_tables.distinct_names(path, schema.names)
    types = ["" if plain_type(type) is not None else str(type) for type in schema.types]

    def rows(columns: Collection[str]) -> Iterator[text_tables.NumberedRow]:
        chosen = {name: place for place, name in enumerate(names) if name in columns}
        undecoded: dict[str, object] = {
            name: text_tables.Undecoded(types[place])
            for name, place in chosen.items()
            if types[place]
        }
        places = {name: place for name, place in chosen.items() if not types[place]}
        if not places:
            yield 1, undecoded
            return
        with _pyarrow_errors(path):
            decoded = (row for block in _decoded(path, places) for row in zip(*block, strict=True))
            for number, row in enumerate(decoded, start=1):
                yield number, undecoded | dict(zip(places, row, strict=True))

    return text_tables.DataTable(
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
    limit, decoded = text_tables.unpacked_limit(path), 0
    batches = _parquet_batches if _is_parquet(path) else _arrow_batches
    for batch in batches(path, list(places.values())):
        for name, column in zip(places, batch.columns, strict=True):
            _check(path, name, column)
        n_rows = _rows_at_once(batch.get_total_buffer_size())
        for start in range(0, batch.num_rows, n_rows):
            block = batch.slice(start, n_rows)
            columns = [column.cast(plain_type(column.type)) for column in block.columns]
            decoded += sum(column.nbytes for column in columns)
            if decoded > limit:
                raise text_tables.too_large(path)
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

    with text_tables.translated_errors(path):
        try:
            yield
        except MemoryError as err:
            raise text_tables.too_large(path) from err
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
            n_rows = _rows_at_once(_dictionary_bytes(path, file.metadata, group, wanted))
            for batch in file.iter_batches(
                n_rows, row_groups=[group], columns=wanted, use_threads=False
            ):
                yield batch.select([read.index(place) for place in places])


def _dictionary_bytes(
    path: Path, metadata: parquet.FileMetaData, group: int, columns: Sequence[str]
) -> int:
    """Bytes of the texts that rows of a group share, so that a row has no longer one; DataError
    where the columns have more data than a file of its size holds."""
    from pyarrow import parquet

    chunks = [metadata.row_group(group).column(place) for place in range(metadata.num_columns)]
    chunks = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
    if sum(chunk.total_uncompressed_size for chunk in chunks) > text_tables.unpacked_limit(path):
        raise text_tables.too_large(path)
    leaves = [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY"
    ]
    with parquet.ParquetFile(path, read_dictionary=leaves, pre_buffer=False) as file:
        first = file.iter_batches(1, row_groups=[group], columns=leaves, use_threads=False)
        return max((batch.get_total_buffer_size() for batch in islice(first, 1)), default=0)


def _rows_at_once(n_bytes: int) -> int:
    """Of rows whose values are texts of so many bytes at most."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(n_bytes, 1)))


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


def plain_type(type: pa.DataType, *, is_nested: bool = False) -> pa.DataType | None:
    """What values are decoded as: no dictionaries and views, moments as numbers. None where a
    column holds no texts, numbers, truth values, or lists and structs of them; moments count only
    inside of messages, as Python has none of nanoseconds or beyond the year 9999."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(type):
        return plain_type(type.value_type, is_nested=is_nested)
    if types.is_string_view(type):
        return pa.large_string()
    if types.is_temporal(type):
        number = pa.int32() if type.bit_width == 32 else pa.int64()
        return number if is_nested else None
    if types.is_nested(type):
        children = [type.field(place) for place in range(type.num_fields)]
        plain = [plain_type(child.type, is_nested=True) for child in children]
        return None if types.is_union(type) or None in plain else _nested(type, children, plain)
    is_text = types.is_string(type) or types.is_large_string(type)
    is_number = types.is_integer(type) or types.is_floating(type) or types.is_decimal(type)
    is_read = is_text or is_number or types.is_boolean(type) or types.is_null(type)
    return type if is_read else None


def _nested(
    type: pa.DataType, children: Sequence[pa.Field], plain: Sequence[pa.DataType]
) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(type):
        return pa.struct(map(pa.Field.with_type, children, plain))
    if pa.types.is_map(type):
        return pa.map_(*(field.type for field in plain[0]))
    if pa.types.is_fixed_size_list(type):
        return pa.list_(plain[0], type.list_size)
    if pa.types.is_large_list(type):
        return pa.large_list(plain[0])
    return pa.list_(plain[0]) if pa.types.is_list(type) else type
