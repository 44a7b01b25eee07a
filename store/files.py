"""Files beside a catalog: where the derived ones are, and writing that is complete or undone."""

from __future__ import annotations

import errno
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


NO_FOLDER_SYNC = (errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EISDIR)
"""Errors of systems and file systems that sync no folders (PostgreSQL's `fsync_fname_ext`)."""


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: after a power loss, files that were made,
    renamed or removed in it are so.

    Raises:
        OSError: the disk refuses.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as err:
        if err.errno not in NO_FOLDER_SYNC:
            raise


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, where they are missing.

    Raises:
        StoreFull: the system refuses.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place in missing:
            sync_folder(place.parent)
    except OSError as err:
        raise StoreFull(f"{folder}: cannot be made: {err.strerror}") from err


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A file to write that replaces `target` once it is complete and on the disk; the new name is
    on the disk when the block ends.

    Raises:
        StoreFull: the system refuses.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
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
