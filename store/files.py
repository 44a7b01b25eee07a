"""Files beside a catalog: where the derived ones are, and writing that is complete or undone."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreFull


def index_folder(catalog: Path) -> Path:
    """The folder of everything that can be rebuilt from the catalog."""
    return catalog.with_name(catalog.name + ".index")


@functools.lru_cache(maxsize=256)
def derived_path(catalog: Path, base: str, recipe: str, ending: str = "") -> Path:
    """A file of one family under one recipe."""
    name = hashlib.sha256(f"{base}\n{recipe}".encode()).hexdigest()[:16]
    return index_folder(catalog) / (name + ending)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, where they are missing.

    Raises:
        StoreFull: the system refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise StoreFull(f"{folder}: cannot be made: {err.strerror}") from err


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A file to write that replaces `target` once it is complete and on the disk.

    Raises:
        StoreFull: the system refuses.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as err:
        raise StoreFull(f"{target}: {err.strerror}") from err
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(target: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one.

    Raises:
        StoreFull: the system refuses.
    """
    with atomic_file(target) as temporary:
        temporary.write_bytes(data)
