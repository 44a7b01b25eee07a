"""Ranges of a base's files, kept on disk from one command to the next.

Under a budget every command reads the same rows of the same base. They are kept in a folder of
limited size, one file a range. A kept range is used only after the Hub answered for the file to
this user, in this command. Whatever is wrong with the folder costs a request, never a run.

diskcache unpickles what lies in its folder, and fsspec's caches have neither a limit nor checksums.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint import Buffer, ByteSource
from .remote_bytes import RemoteFile, SourceOver

log = logging.getLogger(__name__)

FOLDER_VARIABLE = "DELTADEX_CACHE"
"""Names the folder; empty for none."""

LIMIT = 4 << 30
"""Bytes of all kept ranges."""

LEAVE_FREE = 1 << 30
"""Bytes that stay free on the disk, for the catalog and everybody else."""

SHARE_AFTER_REMOVAL = 0.9
"""The share of the limit that is left once the oldest ranges were removed."""

COUNTED_AGAIN_AFTER = 16
"""The folder's size is measured again once a 16th of the limit was written: others write too."""

TEMPORARY_S = 3600.0
"""Seconds after which a temporary file belongs to a process that was killed."""

_MAGIC = b"deltadex range 1\n"
_ENDING = ".range"


def default_folder() -> Path | None:
    """Where ranges are kept: in `$DELTADEX_CACHE`, else in the user's cache; None for nowhere."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        return Path(folder).expanduser() / "base-ranges" if folder else None
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("deltadex", appauthor=False)) / "base-ranges"


@dataclass(slots=True)
class RangeFolder:
    """Ranges on disk, by what they are of. Safe between threads and processes.

    Attributes:
        folder: None keeps nothing.
        limit: Bytes of all that is kept; the least recently used are removed first.
    """

    folder: Path | None = field(default_factory=default_folder)
    limit: int = LIMIT
    bytes_used: int = 0
    _touched: set[str] = field(default_factory=set)
    _n_bytes: int | None = None
    _written: int = 0
    _is_writable: bool = True
    _is_trusted: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, identity: str, start: int, stop: int) -> bytes | None:
        """The kept bytes `start` to `stop`; None where there are none, or damaged ones."""
        if self.folder is None or not self._is_trusted:
            return None
        key = _key(identity, start, stop)
        path = self.folder / (key + _ENDING)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        content = _checked(stored, key, stop - start)
        with suppress(OSError):
            if content is None:
                path.unlink()
            else:
                os.utime(path)
        if content is not None:
            with self._lock:
                self.bytes_used += len(content)
                self._touched.add(key)
        return content

    def put(self, identity: str, start: int, stop: int, content: Buffer) -> None:
        """Keep the bytes, if there is room and the folder can be written."""
        if self.folder is None or not self._is_writable:
            return
        key = _key(identity, start, stop)
        with self._lock:
            self._touched.add(key)
            try:
                if self._make_room(len(content)):
                    parts = [_MAGIC, _digest(content, key), content]
                    _write(self.folder / (key + _ENDING), parts)
            except OSError as err:
                self._is_writable = False
                log.debug("%s: %s: no more of the base is kept there", self.folder, err.strerror)

    def forget(self) -> bool:
        """Remove what was read from here or written, and read no more; whether any was read.

        The Hub lists no checksum of a range: what turns out to be wrong may have changed on the
        way here.
        """
        with self._lock:
            for key in self._touched:
                assert self.folder is not None
                with suppress(OSError):
                    (self.folder / (key + _ENDING)).unlink()
            self._touched.clear()
            was_read, self.bytes_used = self.bytes_used > 0, 0
            self._is_trusted = False
        return was_read

    def _make_room(self, n_bytes: int) -> bool:
        """Whether a range of that size may be written; removes the oldest for it."""
        assert self.folder is not None
        if n_bytes > self.limit // COUNTED_AGAIN_AFTER:
            return False
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(self.folder).free < LEAVE_FREE + n_bytes:
            return False
        if self._n_bytes is None or self._written > self.limit // COUNTED_AGAIN_AFTER:
            self._n_bytes, self._written = sum(size for _, size, _ in self._files()), 0
        if self._n_bytes + n_bytes > self.limit:
            self._n_bytes = self._remove_oldest(int(self.limit * SHARE_AFTER_REMOVAL) - n_bytes)
        self._n_bytes += n_bytes
        self._written += n_bytes
        return True

    def _remove_oldest(self, limit: int) -> int:
        """Remove ranges until at most so many bytes are left, which are returned."""
        files = sorted(self._files())
        left = sum(size for _, size, _ in files)
        for _, size, path in files:
            if left <= limit:
                break
            with suppress(OSError):
                path.unlink()
            left -= size
        return left

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each range was last used, its size and path; removes what killed processes left."""
        assert self.folder is not None
        files = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                if path.suffix == _ENDING:
                    files.append((status.st_mtime, status.st_size, path))
                elif time.time() - status.st_mtime > TEMPORARY_S and path.suffix == ".tmp":
                    path.unlink()
        return files


class KeptRanges(SourceOver):
    """A remote file whose ranges are kept; each is fetched where it is not there already."""

    def __init__(self, source: ByteSource, file: RemoteFile, folder: RangeFolder) -> None:
        super().__init__(source)
        self._folder, self._identity = folder, file.identity

    def read(self, start: int, stop: int) -> Buffer:
        kept = self._folder.get(self._identity, start, stop)
        if kept is not None:
            return bytearray(kept)
        buffer = self._source.read(start, stop)
        self._folder.put(self._identity, start, stop, buffer)
        return buffer


def _key(identity: str, start: int, stop: int) -> str:
    return hashlib.sha256(f"{identity}\n{start}\n{stop}".encode()).hexdigest()[:40]


def _digest(content: Buffer | bytes, key: str) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(content)
    return digest.digest()


def _checked(stored: bytes, key: str, n_bytes: int) -> bytes | None:
    """The content of a range's file; None where it is not what was written under that key."""
    begin = len(_MAGIC) + 32
    if len(stored) != begin + n_bytes or not stored.startswith(_MAGIC):
        return None
    content = stored[begin:]
    return content if stored[len(_MAGIC) : begin] == _digest(content, key) else None


def _write(path: Path, parts: list[Buffer | bytes]) -> None:
    descriptor, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(parts)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
