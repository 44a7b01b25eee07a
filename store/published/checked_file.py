"""A file of an attached index: what is read of it is what was fetched.

SHA-256 of every file would take longer than a search. Each block has a checksum (XXH3, 64 bits),
made when the file had its SHA-256 and kept beside it, which is compared whenever the block is read.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import xxhash

from ...arrays import UInt64
from ...errors import BadIndex, StoreFull
from ..files import write_atomically
from .manifest import PublishedFile

BLOCK = 1 << 16
"""Bytes with one checksum."""

SUMS = ".sums"
"""Ending of the file of checksums, behind the name of the file that they are of."""

_HASH_BYTES = 16


class CheckedFile:
    """An open file that pyarrow reads, one thread at a time; it stays what it is when another file
    gets its name."""

    closed = False

    def __init__(self, path: Path, file: PublishedFile, damaged: Callable[[str], BadIndex]) -> None:
        """Open a file.

        Args:
            damaged: Makes the error that says what is wrong with the file; reading raises it too.

        Raises:
            BadIndex: it is not there, or is another than was fetched.
        """
        self._size, self._damaged, self._at = file.bytes, damaged, 0
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as err:
            raise damaged(str(err.strerror)) from None
        weakref.finalize(self, os.close, self._descriptor)
        if os.fstat(self._descriptor).st_size != file.bytes:
            raise damaged("changed since it was fetched")
        sums = _stored_sums(path, file)
        if sums is None:
            sums = self._made_sums(file)
            with suppress(StoreFull):
                write_atomically(_sums_path(path), _bound(file, sums.tobytes()))
        self._sums = sums

    def read(self, n: int = -1) -> memoryview:
        """The next bytes; raises `BadIndex` where they differ from what was fetched."""
        start = min(self._at, self._size)
        self._at = stop = self._size if n < 0 else min(self._size, start + n)
        first = start // BLOCK
        blocks = self._bytes(first * BLOCK, min(self._size, -(-stop // BLOCK) * BLOCK))
        for number, place in enumerate(range(0, len(blocks), BLOCK), first):
            checksum = xxhash.xxh3_64_intdigest(blocks[place : place + BLOCK])
            if checksum != self._sums[number]:
                raise self._damaged("changed since it was fetched")
        return blocks[start - first * BLOCK : stop - first * BLOCK]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        """The file is closed when nothing needs it any more."""

    def _bytes(self, start: int, stop: int) -> memoryview:
        try:
            data = os.pread(self._descriptor, stop - start, start)
        except OSError as err:
            raise self._damaged(f"cannot be read: {err.strerror}") from None
        if len(data) < stop - start:
            raise self._damaged("shorter than it was when it was fetched")
        return memoryview(data)

    def _made_sums(self, file: PublishedFile) -> UInt64[np.ndarray, " blocks"]:
        """The checksums of all blocks of a file that has its SHA-256."""
        whole, sums = hashlib.sha256(), []
        for start in range(0, self._size, BLOCK):
            block = self._bytes(start, min(self._size, start + BLOCK))
            whole.update(block)
            sums.append(xxhash.xxh3_64_intdigest(block))
        if whole.hexdigest() != file.sha256:
            raise self._damaged("changed since it was fetched")
        return np.array(sums, dtype="<u8")


def sums_name(file: PublishedFile) -> str:
    """The name of the file of a file's checksums."""
    return file.name + SUMS


def _sums_path(path: Path) -> Path:
    return path.with_name(path.name + SUMS)


def _stored_sums(path: Path, file: PublishedFile) -> UInt64[np.ndarray, " blocks"] | None:
    """The checksums that an earlier process wrote; None without, or where they are damaged."""
    try:
        content = _sums_path(path).read_bytes()
    except OSError:
        return None
    sums = content[_HASH_BYTES:]
    if len(sums) != 8 * -(-file.bytes // BLOCK) or content != _bound(file, sums):
        return None
    return np.frombuffer(sums, dtype="<u8")


def _bound(file: PublishedFile, sums: bytes) -> bytes:
    """Checksums behind a checksum of themselves and of the file that they are of."""
    return xxhash.xxh3_128_digest(file.sha256.encode() + sums) + sums
