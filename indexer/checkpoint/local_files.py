"""Files on disk: bounded reads, JSON objects, content hashes, a folder's signature."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from ...errors import ModelError

Config = Mapping[str, object]
"""The object in a JSON file such as config.json; its values may be of any kind."""

MAX_BYTES = 16 * 2**20
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
_SUFFIXES = (".safetensors", ".bin", ".json", ".gguf")


def read_json(source: Path | bytes, *, name: str = "config.json") -> dict[str, object]:
    """The JSON object in a file, or in the bytes of one called `name`."""
    if isinstance(source, Path):
        name = source.name
        source = read_start(source, MAX_BYTES + 1)
    if len(source) > MAX_BYTES:
        raise ModelError("bad-config", f"{name}: larger than {MAX_BYTES} bytes")
    try:
        text = source.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as err:
        line = str(err).partition("\n")[0]
        raise ModelError("bad-config", f"{name}: not JSON in UTF-8 ({line[:120]})") from err
    if not isinstance(value, dict):
        raise ModelError("bad-config", f"{name}: a JSON {type(value).__name__}, not an object")
    return value


@contextmanager
def reading(name: object) -> Iterator[None]:
    """Make an error of the operating system in the block an `unreadable` of `name`."""
    try:
        yield
    except OSError as err:
        raise ModelError("unreadable", f"{name}: {err.strerror}") from err


def read_start(path: Path, size: int) -> bytes:
    """At most `size` bytes of a file; never of a pipe or a device, which have no end."""
    with reading(path.name):
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise ModelError("unreadable", f"{path.name}: not a file")
            with path.open("rb") as file:
                return file.read(size)
        except FileNotFoundError as err:
            raise ModelError("bad-config", f"{path.name}: no such file") from err


def signature(folder: Path) -> str:
    """A hash of the names, sizes and change times of a folder's weight and config files."""
    digest = hashlib.sha256()
    try:
        with os.scandir(folder) as entries:
            described = [entry for entry in entries if entry.name.endswith(_SUFFIXES)]
        for entry in sorted(described, key=attrgetter("name")):
            # of a circular link, the entry itself only raises an error
            if Path(entry).is_file() if entry.is_symlink() else entry.is_file():
                status = entry.stat()
                digest.update(os.fsencode(entry.name))
                digest.update(f"/{status.st_size}/{status.st_mtime_ns}\n".encode())
    except OSError as err:
        raise ModelError("unreadable", f"{err.filename or folder}: {err.strerror}") from err
    return digest.hexdigest()[:32]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal: what the Hub calls its LFS id."""
    with reading(path.name), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listed_sha256(path: Path) -> str | None:
    """The SHA-256 of a file of the Hub client's cache, where its link is to a name that is one."""
    try:
        target = Path(os.readlink(path))
    except (OSError, ValueError):
        return None
    is_hash = target.parent.name == "blobs" and _SHA256.match(target.name)
    return target.name if is_hash else None
