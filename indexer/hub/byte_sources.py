"""The bytes of one file by position: what readers need, and the same for a cached file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol, runtime_checkable

from ...errors import ModelError
from .cache import cached_sha256


@runtime_checkable
class ByteSource(Protocol):
    """One file's bytes by position. Safe between threads."""

    @property
    def name(self) -> str:
        """The file's path in its repository."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes of content fetched so far."""
        ...

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        ...

    @property
    def sha256(self) -> str | None:
        """Of the whole content, where it is known without reading it."""
        ...

    def read(self, start: int, stop: int) -> bytearray:
        """Bytes `start` to `stop`, all of them.

        Raises:
            ModelError: they cannot be had.
        """
        ...


class LocalBytes:
    """A file in the local cache."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.sha256 = cached_sha256(path)
        self.bytes_read = 0
        self._path = path
        self._lock = threading.Lock()
        try:
            self.size = path.stat().st_size
        except OSError as err:
            raise ModelError("unreadable", f"{name}: {err.strerror}") from err

    def read(self, start: int, stop: int) -> bytearray:
        """Bytes `start` to `stop` of the file."""
        buffer = bytearray(stop - start)
        try:
            with self._path.open("rb") as file:
                file.seek(start)
                got = file.readinto(buffer)
        except OSError as err:
            raise ModelError("unreadable", f"{self.name}: {err.strerror}") from err
        if got != len(buffer):
            raise ModelError("truncated", f"{self.name}: ends at byte {start + got}")
        with self._lock:
            self.bytes_read += got
        return buffer
