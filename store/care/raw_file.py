"""The bytes of a database file, read by a process of its own.

POSIX ends all locks of a process on a file as soon as that process closes the file, whichever part
of it has opened it: DuckDB's lock too. Therefore `read_in_child` runs this file as a program.

A file of DuckDB begins with three headers of 4,096 bytes, and goes on with blocks of one size. Each
header and each block begins with the checksum of the rest (DuckDB, `checksum.cpp` and
`single_file_block_manager.cpp`). The header with the higher number is that of the last checkpoint;
it names the list of the blocks that are free.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NamedTuple

MAGIC = b"DUCK"
HEADER_BYTES = 4096
HEADERS_BYTES = 3 * HEADER_BYTES
META_BLOCKS = 64
"""Parts of a block of metadata."""

NONE = 2**64 - 1
"""No further part."""

TOLD_BYTES = 64 << 20
"""Read between two lines of progress."""

FACTOR, START = 0xBF58476D1CE4E5B9, 5381


Track = Callable[[Sequence[tuple[str, int, int]], str], Iterator[tuple[str, int, int]]]
"""Gives the same parts, and shows the progress of the named work."""


class Header(NamedTuple):
    """Of the last checkpoint: the part of a block of metadata where the list of free blocks begins,
    how many blocks the file has, and the bytes of each."""

    free_list: int
    n_blocks: int
    block_bytes: int


def damaged_blocks(path: Path) -> dict[str, Any] | None:
    """How many blocks the file has, and the numbers of those in use that differ from their
    checksums; None where its format is not the one that is known here."""
    with _opened(path) as file:
        header = _header(file.read(HEADERS_BYTES))
        if header is None:
            return None
        damaged = [
            number
            for number in range(header.n_blocks)
            if not _is_whole(file.read(header.block_bytes), header.block_bytes)
        ]
        if damaged:
            free = _free_blocks(file, header)
            damaged = [number for number in damaged if number not in free]
    return {"blocks": header.n_blocks, "damaged": damaged}


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


READERS = {"blocks": damaged_blocks, "sha256": sha256}


class _Told(io.FileIO):
    """A file of which every `TOLD_BYTES` that were read are an empty line on stdout, for the
    process that waits."""

    def readinto(self, buffer: Any, /) -> int | None:
        before = self.tell()
        n_bytes = super().readinto(buffer)
        if __name__ == "__main__" and self.tell() // TOLD_BYTES > before // TOLD_BYTES:
            print(flush=True)  # noqa: T201
        return n_bytes


def _opened(path: Path) -> io.BufferedReader:
    return io.BufferedReader(_Told(path))


def read_in_child(what: str, path: Path, track: Track = lambda parts, _: iter(parts)) -> Any:
    """What one of `READERS` returns of a file; `OSError` where it cannot be read."""
    parts = [("", start, 0) for start in range(0, path.stat().st_size, TOLD_BYTES)]
    command = [sys.executable, __file__, what, str(path.absolute())]
    answer, tracked = "", track(parts, f"reading {path.name}")
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True) as child:
        for line in child.stdout or ():
            answer = line
            next(tracked, None)
        error = child.stderr.read().strip() if child.stderr else ""
    list(tracked)  # ends the bar
    if child.returncode:
        raise OSError(error.splitlines()[-1] if error else "not read")
    return json.loads(answer)


def _header(data: bytes) -> Header | None:
    """The header of the last checkpoint; None of another format."""
    if len(data) < HEADERS_BYTES or data[8:12] != MAGIC:
        return None
    parts = [data[start : start + HEADER_BYTES] for start in (HEADER_BYTES, 2 * HEADER_BYTES)]
    fields = [struct.unpack_from("<7Q", p) for p in parts if _is_whole(p, HEADER_BYTES)]
    if not _is_whole(data[:HEADER_BYTES], HEADER_BYTES) or not fields:
        return None
    _, _, _, free_list, n_blocks, block_bytes, _ = max(fields, key=lambda field: field[1])
    if block_bytes % 4096 or not 1 << 14 <= block_bytes <= 1 << 18:
        return None
    return Header(free_list, n_blocks, block_bytes)


def _is_whole(data: bytes, n_bytes: int) -> bool:
    """Whether a header or a block has the checksum that it begins with."""
    import numpy as np  # what only hashes a file goes without

    if len(data) != n_bytes:
        return False
    words = np.frombuffer(data, "<u8")
    return bool(words[0] == np.bitwise_xor.reduce(words[1:] * np.uint64(FACTOR)) ^ np.uint64(START))


def _free_blocks(file: Any, header: Header) -> set[int]:
    """Blocks that hold nothing; none where the list of them cannot be read."""
    part_bytes = (header.block_bytes - 8) // META_BLOCKS // 8 * 8
    place, data, n_parts = header.free_list, b"", 0
    while place != NONE and n_parts <= header.n_blocks * META_BLOCKS:
        block, part = place & (2**56 - 1), place >> 56
        file.seek(HEADERS_BYTES + block * header.block_bytes + 8 + part * part_bytes)
        read = file.read(part_bytes)
        if len(read) < part_bytes:
            return set()
        (place,) = struct.unpack_from("<Q", read)
        data, n_parts = data + read[8:], n_parts + 1
    if len(data) < 8:
        return set()
    (n_free,) = struct.unpack_from("<Q", data)
    if n_free > min(header.n_blocks, len(data) // 8 - 1):
        return set()
    return set(struct.unpack_from(f"<{n_free}Q", data, 8))


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(READERS[sys.argv[1]](Path(sys.argv[2]))))
    except OSError as err:
        sys.exit(err.strerror or str(err))
