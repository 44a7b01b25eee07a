"""Files beside a catalog: where the derived ones are, and writing that is complete or undone."""

from __future__ import annotations

import errno
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from ..errors import StoreFull

_NUMBERS = itertools.count()
_TEMPORARY = re.compile(r"\..+\.(\d+)(?:\.\d+)?\.partial(?:\.wal)?")


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
def atomic_file(target: Path, *, replaces: bool = True) -> Iterator[Path]:
    """A file to write that has the name `target` once it is complete and on the disk.

    Args:
        replaces: An existing file; else that stays, and the new one is removed.

    Raises:
        StoreFull: the system refuses.
    """
    name = f".{target.name}.{os.getpid()}.{next(_NUMBERS)}.partial"
    temporary = target.with_name(name)
    try:
        yield temporary
        flush(temporary)
        if replaces:
            os.replace(temporary, target)
        else:
            _name_new(temporary, target)
        sync_folder(target.parent)
    except OSError as err:
        raise StoreFull(f"{target}: {err.strerror}") from err
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Bring a file to the disk.

    Raises:
        OSError: the system refuses.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_new(temporary: Path, target: Path) -> None:
    """Name a complete file, unless the name is taken."""
    try:
        with suppress(FileExistsError):
            os.link(temporary, target)
    except OSError:
        # a file system without links: another process may take the name between these lines
        if not target.exists():
            os.replace(temporary, target)


def abandoned(folder: Path, name: str) -> list[Path]:
    """Files that a process which ended was writing, of targets whose name begins so."""
    return [
        path
        for path in sorted(folder.glob(f".{escape(name)}*.partial*"))
        if (match := _TEMPORARY.fullmatch(path.name)) and not _is_running(int(match[1]))
    ]


def _is_running(pid: int) -> bool:
    """Whether there is such a process; False where the system has no harmless test."""
    if os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def write_atomically(target: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one.

    Raises:
        StoreFull: the system refuses.
    """
    with atomic_file(target) as temporary:
        temporary.write_bytes(data)
