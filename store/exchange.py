"""What leaves a catalog: files that are named by their content, tables in Parquet, and manifests
that list them with their SHA-256, sizes and rows.

Workers of a run write it (`parts.py`), and publications (`published/`); it is compared with its
manifest wherever it is read. A manifest may be by anyone: every field is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import parquet

from ..errors import StoreFull
from ..records import Recipe
from .files import file_sha256, refused_as

FORMAT = 3
"""Of manifests and of what they list; another is refused."""

LARGEST_MANIFEST = 16 << 20
LARGEST_FILE = 256 << 20
LARGEST_DIM = 100_000
MOST_IN_A_FILE = 65_536
"""What a manifest may state at most; the last, models."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A Parquet file of a manifest, named by its content; `models` are its rows."""

    name: str
    sha256: str
    bytes: int
    models: int


def listed_file(data: bytes, models: int) -> ListedFile:
    """What a manifest says of a file with this content."""
    digest = sha256_of(data)
    name = f"models-{digest[:16]}.parquet"
    return ListedFile(name=name, sha256=digest, bytes=len(data), models=models)


def sha256_of(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def parquet_bytes(table: pa.Table, *, plain: tuple[str, ...] = (), **options: Any) -> bytes:
    """A table as a Parquet file with checksums of its pages; `plain` columns cannot be packed."""
    sink = pa.BufferOutputStream()
    parquet.write_table(
        table,
        sink,
        compression={n: "none" if n in plain else "zstd" for n in table.column_names},
        write_page_checksum=True,
        **options,
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def is_whole(path: Path, file: ListedFile) -> bool:
    """Whether a file is there and has the listed content; raises `StoreFull` if the system refuses
    to read it."""
    with refused_as(StoreFull, path):
        is_there = path.is_file() and os.path.getsize(path) == file.bytes
        return is_there and file_sha256(path) == file.sha256


def manifest_bytes(document: Mapping[str, Any]) -> bytes:
    """A manifest's file, with the SHA-256 of all else that it says."""
    document = {name: value for name, value in document.items() if name != "sha256"}
    return _json({**document, "sha256": sha256_of(_json(document))})


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=True, indent=1, sort_keys=True).encode() + b"\n"


def parsed_manifest(
    data: bytes, parse: Callable[[Mapping[str, Any]], Parsed], refused: Callable[[str], Exception]
) -> Parsed:
    """What `parse` makes of a manifest; `refused` makes the error of what is wrong."""
    try:
        if len(data) > LARGEST_MANIFEST:
            raise ValueError("bytes")
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError("no object")
        form = checked_count(document.get("format"), "format", 1 << 31)
        if form == FORMAT:
            if data != manifest_bytes(document):
                raise ValueError("sha256")
            return parse(document)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as err:
        # which field is at fault; nothing that the file says
        is_field = str(err).isidentifier() or isinstance(err, KeyError)
        what = str(err).strip("'") if is_field else type(err).__name__
        raise refused(f"its {what} cannot be used") from None
    raise refused(f"format {form}, this deltadex reads {FORMAT}")


def checked_file(raw: Mapping[str, Any], field: str) -> ListedFile:
    sha256 = checked_sha256(raw["sha256"], field)
    if raw["name"] != f"models-{sha256[:16]}.parquet":
        raise ValueError(field)
    return ListedFile(
        name=raw["name"],
        sha256=sha256,
        bytes=checked_count(raw["bytes"], "bytes", LARGEST_FILE),
        models=checked_count(raw["models"], "models", MOST_IN_A_FILE),
    )


def checked_sha256(value: object, field: str) -> str:
    return checked_match(value, field, _SHA256)


MOST_SETTINGS = 64
MOST_BLOCKS = 10_000

RECIPE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def checked_count(value: object, field: str, most: int, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(field)
    return value


def checked_text(value: object, field: str, most: int) -> str:
    """A text that is not empty, of characters that a terminal shows."""
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise ValueError(field)
    return value


def checked_match(value: object, field: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(field)
    return value


def checked_list(value: object, field: str, most: int, *, least: int = 0) -> list[Any]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ValueError(field)
    return value


def checked_layout(value: object, longest_text: int) -> tuple[tuple[str, str, int], ...]:
    """(stack, role, rows) of the blocks of a recipe that depends on them."""
    text = partial(checked_text, field="layout", most=longest_text)
    blocks = checked_list(value, "layout", MOST_BLOCKS)
    return tuple(
        (text(stack), text(role), checked_count(rows, "layout", 1 << 40))
        for stack, role, rows in (checked_list(b, "layout", 3, least=3) for b in blocks)
    )


def checked_recipe(raw: Mapping[str, Any], longest_text: int) -> Recipe:
    text = partial(checked_text, field="params", most=longest_text)
    pairs = checked_list(raw["params"], "params", MOST_SETTINGS)
    params = [checked_list(pair, "params", 2, least=2) for pair in pairs]
    return Recipe(
        name=checked_match(raw["name"], "name", RECIPE_NAME),
        rank=checked_count(raw["rank"], "rank", 1 << 16),
        dim=checked_count(raw["dim"], "dim", LARGEST_DIM, least=1),
        seed=checked_count(raw["seed"], "seed", 1 << 62),
        version=checked_count(raw["version"], "version", 1 << 16),
        params=tuple((text(key), text(value)) for key, value in params),
    )
