"""Whether a model's files changed, and what they contain, without parsing them."""

from __future__ import annotations

import hashlib
import os
from operator import attrgetter
from pathlib import Path

from ...errors import ModelError

_CHUNK = 1 << 20
_SUFFIXES = (".safetensors", ".bin", ".json", ".gguf")


def signature(folder: Path) -> str:
    """A hash of the names, sizes and change times of a folder's weight and config files.

    Raises:
        ModelError: `unreadable`.
    """
    digest = hashlib.sha256()
    try:
        with os.scandir(folder) as entries:
            described = [entry for entry in entries if entry.name.endswith(_SUFFIXES)]
        for entry in sorted(described, key=attrgetter("name")):
            # of a link that goes round, the entry itself only says that it cannot tell
            if Path(entry).is_file() if entry.is_symlink() else entry.is_file():
                status = entry.stat()
                digest.update(os.fsencode(entry.name))
                digest.update(f"/{status.st_size}/{status.st_mtime_ns}\n".encode())
    except OSError as err:
        raise ModelError("unreadable", f"{err.filename or folder}: {err.strerror}") from err
    return digest.hexdigest()[:32]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal: what the Hub calls its LFS id.

    Raises:
        ModelError: `unreadable`.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as err:
        raise ModelError("unreadable", f"{path.name}: {err.strerror}") from err
    return digest.hexdigest()
