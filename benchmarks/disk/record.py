"""The record that `calls.c` writes: what was done to the files of a folder, call by call."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

HEADER = struct.Struct("<IIIIQqQ")
"""`struct entry` of calls.c."""


class Kind(IntEnum):
    """`enum kind` of calls.c."""

    OPEN = 1
    CREATE = 2
    TRUNCATE = 3
    WRITE = 4
    RENAME = 5
    UNLINK = 6
    MKDIR = 7
    RMDIR = 8
    LINK = 9
    SYNC = 10
    MARK = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call.

    Attributes:
        error: What it was made to fail with; 0 if it was made.
        path: Of the file; of a write and a truncation, empty unless it failed.
        other: New name of a renamed or linked file.
        at: Position of a write; size after a truncation.
        data: What was written.
    """

    kind: Kind
    error: int
    path: str
    other: str
    inode: int
    at: int
    data: bytes

    @property
    def changes_disk(self) -> bool:
        return not self.error and self.kind not in (Kind.OPEN, Kind.MARK)


def read_record(path: Path) -> Sequence[Call]:
    """The calls of a process, in their order."""
    return tuple(_calls(path.read_bytes()))


def _calls(record: bytes) -> Iterator[Call]:
    at = 0
    while at < len(record):
        kind, error, n_path, n_other, inode, position, size = HEADER.unpack_from(record, at)
        at += HEADER.size
        ends = (at + n_path, at + n_path + n_other, at + n_path + n_other + size)
        yield Call(
            kind=Kind(kind),
            error=error,
            path=record[at : ends[0]].decode(errors="surrogateescape"),
            other=record[ends[0] : ends[1]].decode(errors="surrogateescape"),
            inode=inode,
            at=position,
            data=record[ends[1] : ends[2]],
        )
        at = ends[2]
