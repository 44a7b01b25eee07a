"""Which files hold a data set: one file, a saved data set, or a repository; which are sets of their
own."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError
from .arrow_table import names_of_features, open_arrow
from .text_tables import (
    LONGEST_LINE,
    Table,
    TextFile,
    open_csv,
    open_json,
    open_lines,
    refuse_pipe,
    translated_errors,
)

log = logging.getLogger(__name__)

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

    @property
    def is_folder(self) -> bool:
        return self.root != self.paths[0]

    def tables(self, encoding: str, wanted: Collection[str]) -> list[Table]:
        """An open table for each file; text is taken to be of this encoding if it has no mark."""
        return [_open(path, encoding, wanted) for path in self.paths]

    def sha256(self) -> str:
        """Of the file's bytes; of a folder, of each file's path in it, size and bytes."""
        digest = hashlib.sha256()
        for path in sorted(self.paths) if self.is_folder else self.paths:
            with translated_errors(path), path.open("rb") as file:
                if self.is_folder:
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
    refuse_pipe(path)
    if split is not None:
        raise DataError(f"{path}: one file has no splits; leave out --split")
    return DataFiles(root=path, paths=(path,))


def data_sets_in(folder: Path) -> tuple[Path, ...]:
    """Each data file in a folder, and each folder in it, by name; hidden ones are left out.
    DataError where it is no folder, or has neither."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; several data sets are the files of a folder")
    with translated_errors(folder):
        entries = sorted(folder.iterdir())
    entries = [path for path in entries if not path.name.startswith((".", "_"))]
    found = tuple(
        path
        for path in entries
        if path.is_dir() or (_is_data_file(path) and path.name not in OTHER_JSON)
    )
    if not found:
        raise DataError(f"{folder}: no data file in it ({', '.join(FORMATS)})")
    left_out = [path.name for path in entries if path not in found and path.name not in OTHER_JSON]
    if left_out:
        log.info("%s: left out, no data files by their names: %s", folder, ", ".join(left_out))
    return found


def data_set_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """The data sets' names: of files without their endings where these tell them apart, else in
    full; paths of equal names by their folders too."""
    stems = [path.name.split(".")[0] or path.name for path in paths]
    names = [path.name for path in paths]
    return tuple(
        stem
        if Counter(stems)[stem] == 1
        else path.name
        if Counter(names)[path.name] == 1
        else path.as_posix()
        for stem, path in zip(stems, paths, strict=True)
    )


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
        for path in _data_files(folder):
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
        refuse_pipe(path)
    if not paths:
        raise DataError(f"{folder}: its state.json names no data files")
    return paths


def _data_files(folder: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """Data files by path; files of text only where there is nothing with columns."""
    found = sorted(_below(folder, depth))
    with_columns = [path for path in found if _format(path) in COLUMN_FORMATS]
    yield from with_columns or found


def _below(folder: Path, depth: int) -> Iterator[Path]:
    with translated_errors(folder):
        entries = sorted(folder.iterdir())
    for path in entries:
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir() and depth:
            yield from _below(path, depth - 1)
        elif path.name not in OTHER_JSON and _is_data_file(path):
            yield path


def _is_data_file(path: Path) -> bool:
    return _format(path) in FORMATS and path.is_file()


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


def _open(path: Path, encoding: str, wanted: Collection[str]) -> Table:
    format = _format(path)
    if format in (".csv", ".tsv"):
        return open_csv(TextFile(path, encoding), wanted)
    if format in (".json", ".jsonl", ".ndjson"):
        return open_json(TextFile(path, encoding))
    if format in (".parquet", ".arrow", ".feather"):
        if path.suffix.lower() == ".gz":
            raise DataError(f"{path}: {format[1:]} is compressed inside; unpack the file first")
        return open_arrow(path)
    if path.suffix.lower() in PICKLES:
        raise DataError(f"{path}: may be a pickle, which is never opened; save it as parquet")
    return open_lines(TextFile(path, encoding))


def _document(path: Path) -> Mapping[str, object]:
    refuse_pipe(path)
    try:
        with translated_errors(path), path.open("rb") as file:
            document = json.loads(file.read(LONGEST_LINE))
    except (ValueError, RecursionError) as err:
        raise DataError(f"{path}: not JSON of a data set; save the data set again") from err
    if not isinstance(document, dict):
        raise DataError(f"{path}: not a JSON object; save the data set again")
    return document


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
