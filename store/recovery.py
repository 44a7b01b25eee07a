"""Recovery of a catalog after the power went while DuckDB wrote to it.

DuckDB syncs its log before it reports a commit, and its file before a new header counts. Two states
that a power loss can leave it refuses nevertheless, though nothing that was reported is missing:

* The log's last transaction is incomplete in its middle: the end of the file is on the disk, a
  page before it is not. DuckDB drops a transaction that ends too early, but calls a checksum that
  differs damage (duckdb/duckdb pull request 13758). The transaction was not reported, since the
  log was not synced: the log is cut before it.
* A checkpoint was interrupted within a block of metadata. A checkpoint adds parts to such a block
  and leaves those that the file's header needs as they are, but writes the whole block in its
  place, with one checksum over all parts. The parts that count are whole, the checksum is not: it
  is computed again. The log tells that a checkpoint was going on: its last entry says so, and is
  synced before the checkpoint writes.

Anything else stays refused, and no byte is changed.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import NamedTuple

from .files import beside

log = logging.getLogger(__name__)

TORN_ENTRY = re.compile(r"entry at byte position (\d+) computed checksum \d+ does not match stored")
"""Where an entry of the log begins after its size and checksum, in DuckDB's words."""

TORN_BLOCK = re.compile(
    r"Corrupt database file: computed checksum (\d+) does not match stored checksum \d+ "
    r"in block at location (\d+)"
)
"""The checksum of a block of the file, and where the block begins, in DuckDB's words."""

ENTRY_HEADER = 16
"""Bytes of an entry's size and checksum."""

CHECKSUM_BYTES = 8

END = rb"\x05\0{7}.{8}d\0d\xff\xff"
"""The entry that ends a transaction: five bytes long, a checksum, field 100 with the value 100."""

COMMITTED = re.compile(END, re.DOTALL)
CHECKPOINT_BEGUN = re.compile(rb"[\x0a-\x20]\0{7}.{8}d\0c.{1,28}\xff\xff" + END + rb"\Z", re.DOTALL)
"""The log's end during a checkpoint: field 100 with the value 99, and the transaction's end."""

END_BYTES = 128

MOST_BYTES = 1 << 28
"""Of a log's end that is looked through; DuckDB keeps its log below 16 MiB."""


class Repair(NamedTuple):
    """What makes a catalog open again: bytes to be written at a place of a file; None cuts it."""

    path: Path
    at: int
    data: bytes | None


def log_path(catalog: Path) -> Path:
    """Where DuckDB has the log of a catalog."""
    return beside(catalog, ".wal")


class Seen(NamedTuple):
    """A catalog and its log before DuckDB tried to open them: what tells whether one of them was
    changed since, and whether the log says that a checkpoint was going on."""

    files: tuple[tuple[int, int, int] | None, ...]
    has_begun_checkpoint: bool

    @classmethod
    def of(cls, catalog: Path) -> Seen:
        end = _read(log_path(catalog), -END_BYTES)
        files = tuple(map(_state, (catalog, log_path(catalog))))
        return cls(files, CHECKPOINT_BEGUN.search(end) is not None)


def find_repair(catalog: Path, error: str, seen: Seen) -> Repair | None:
    """What a power loss explains of an error of DuckDB's; None if it explains nothing."""
    if found := TORN_ENTRY.search(error):
        start = int(found[1]) - ENTRY_HEADER
        rest = _read(log_path(catalog), start)
        # a transaction that was synced later would follow: only one at a time is written
        ends = [match.end() for match in COMMITTED.finditer(rest)]
        if len(rest) < MOST_BYTES and ends in ([], [len(rest)]):
            return Repair(log_path(catalog), start, None)
    elif (found := TORN_BLOCK.search(error)) and seen.has_begun_checkpoint:
        checksum = int(found[1]).to_bytes(CHECKSUM_BYTES, "little")
        return Repair(catalog, int(found[2]), checksum)
    return None


def repair(catalog: Path, error: str, seen: Seen) -> bool:
    """Make the repair that an error asks for; whether the catalog should be opened again.

    Args:
        seen: From before the attempt that gave the error. This process must not have the catalog
            open: a file that it closes loses the locks of all its others.
    """
    found = find_repair(catalog, error, seen)
    if found is None or os.name != "posix":
        return False
    import fcntl

    try:
        with catalog.open("rb+") as held, found.path.open("rb+") as file:
            # DuckDB's own lock: nobody else has the catalog open now, or opens it
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if Seen.of(catalog) == seen:
                if found.data is None:
                    file.truncate(found.at)
                else:
                    file.seek(found.at)
                    file.write(found.data)
                file.flush()
                os.fsync(file.fileno())
                log.warning(
                    "%s: the machine stopped while this catalog was written; what was not "
                    "complete is undone, and nothing that was reported is lost",
                    catalog,
                )
    except OSError as err:
        log.info("%s: not repaired: %s", catalog, err)
        return False
    return True


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: Path, at: int) -> bytes:
    """A file from a position on, or its last bytes; nothing of a file that is not there."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(at if at >= 0 else max(0, size + at))
            return file.read(MOST_BYTES)
    except OSError:
        return b""
