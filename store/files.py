"""Files: which are beside a catalog, and writing that is complete or undone."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from ..errors import RequestError, StoreError, StoreFull
from ..options import check_name

_TEMPORARY = re.compile(r"\..+?\.(\d+)(?:\.[0-9a-f]+)?\.partial(?:\.wal)?")

Ending = Literal[".wal", ".commits", ".wanted", ".index", ".attached", ".published"]
"""Of the files and folders that deltadex and DuckDB make beside a catalog."""


def beside(catalog: Path, ending: Ending) -> Path:
    """A file or folder beside a catalog."""
    return catalog.with_name(catalog.name + ending)


def refuse_special_files(catalog: Path) -> None:
    """Refuse what would be written to another place than its name says, and pipes, which nobody
    ends reading.

    Raises:
        StoreError: the catalog, or something of its own beside it, is a symbolic link; or what is
            beside it is no file.
    """
    if os.path.islink(catalog):
        raise StoreError(
            f"{catalog}: a symbolic link; a catalog is not opened through one: name the file "
            f"itself, {os.path.realpath(catalog)}"
        )
    for ending in get_args(Ending):
        paths = [str(beside(catalog, ending))]
        for folder, folders, names in os.walk(paths[0]):
            paths += [os.path.join(folder, name) for name in (*folders, *names)]
        for path in paths:
            with suppress(OSError, ValueError):
                mode = os.lstat(path).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    what = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe or a device"
                    raise StoreError(f"{path}: {what}; nothing beside a catalog may be one")


def index_folder(catalog: Path) -> Path:
    """The folder of everything that can be rebuilt from the catalog."""
    return beside(catalog, ".index")


@functools.lru_cache(maxsize=256)
def derived_path(catalog: Path, base: str, recipe: str, ending: str = "") -> Path:
    """A file of one family under one recipe."""
    name = hashlib.sha256(f"{base}\n{recipe}".encode()).hexdigest()[:16]
    return index_folder(catalog) / (name + ending)


def lexicon_file(catalog: Path, base: str) -> Path:
    """Where the states that a base has for single words are kept."""
    return derived_path(catalog, base, "lexicon", ".lexicon")


@contextmanager
def refused_as(error: type[Exception], what: object) -> Iterator[None]:
    """What the system refuses in the block (`OSError`), as an error of ours whose message begins
    so."""
    try:
        yield
    except OSError as err:
        raise error(f"{what}: {err.strerror or err}") from err


def file_size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


NO_FOLDER_SYNC = (errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EISDIR)
"""Errors of systems and file systems that sync no folders (PostgreSQL's `fsync_fname_ext`)."""


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: after a power loss, files that were made,
    renamed or removed in it are so. `OSError` where the disk refuses."""
    try:
        flush(folder)
    except OSError as err:
        if err.errno not in NO_FOLDER_SYNC:
            raise


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, where they are missing; `StoreFull` where that is refused."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    with refused_as(StoreFull, f"{folder}: cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
        for place in missing:
            sync_folder(place.parent)


@contextmanager
def atomic_file(target: Path, *, replaces: bool = True, lasts: bool = True) -> Iterator[Path]:
    """A file to write that has the name `target` once it is complete and on the disk.

    Args:
        replaces: An existing file; else that stays, and the new one is removed.
        lasts: Whether it is brought to the disk before it has the name.

    Raises:
        StoreFull: the system refuses.
    """
    # nobody else can know the name, and have put a link there
    name = f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.partial"
    temporary = target.with_name(name)
    try:
        yield temporary
        if lasts:
            flush(temporary)
        if replaces:
            os.replace(temporary, target)
        else:
            _name_new(temporary, target)
        if lasts:
            sync_folder(target.parent)
    except OSError as err:
        raise StoreFull(f"{target}: {_reason(err)}") from err
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _reason(err: OSError) -> str:
    return os.strerror(err.errno) if err.errno else str(err)


def check_folder(target: Path) -> None:
    """Refuse, with a `RequestError`, a file of a user in a folder that is not there."""
    check_name("path", target)
    if not target.parent.is_dir():
        raise RequestError(f"{target.parent}: no such folder; make it first")


@contextmanager
def user_file(target: Path) -> Iterator[Path]:
    """A file to write for a user: complete under the name `target`, or as it was before.

    A link is followed, and a file that is replaced keeps its permissions. A pipe, a device and
    standard output are written as they are.

    Raises:
        RequestError: there is no such folder.
        StoreFull: the system refuses.
    """
    check_folder(target)
    try:
        if _is_stream(target):
            yield target
            return
        place = Path(os.path.realpath(target))
        before = place.stat().st_mode if place.exists() else None
        if before is not None and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with atomic_file(place) as temporary:
            yield temporary
            if before is not None:
                temporary.chmod(stat.S_IMODE(before))
    except BrokenPipeError:
        raise
    except OSError as err:
        raise StoreFull(f"{target}: {_reason(err)}") from err


def write_user_file(target: Path, data: bytes) -> None:
    """Write a file for a user; raises as `user_file`."""
    with user_file(target) as place:
        place.write_bytes(data)


def _is_stream(target: Path) -> bool:
    """Whether no other file can take its place: it is no file, or is standard output."""
    try:
        status = target.stat()
        return not stat.S_ISREG(status.st_mode) or os.path.samestat(status, os.fstat(1))
    except OSError:
        return False


def open_at(path: Path, at: int) -> BinaryIO:
    """A derived file to be changed from a position on; made where there is none, opened through no
    link."""
    # Windows has no such flag
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    file = os.fdopen(os.open(path, flags, 0o644), "r+b")
    file.seek(at)
    return file


def flush(path: Path) -> None:
    """Bring a file or folder to the disk; `OSError` where the system refuses."""
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
        pass
    return True


def write_atomically(target: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one; raises as `atomic_file`."""
    with atomic_file(target) as temporary:
        temporary.write_bytes(data)
