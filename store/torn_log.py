"""A catalog's log whose last transaction is not complete, as a power loss leaves it.

DuckDB appends a transaction to its log, syncs the log, and only then reports the commit. What a
power loss leaves of an unsynced transaction is any part of it. DuckDB drops a part that ends too
early; it refuses the whole catalog where the end is there and a page before it is not (a checksum
that differs: duckdb/duckdb pull request 13758). Nothing of that transaction was reported, so that
the log may be cut before it.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

log = logging.getLogger(__name__)

DIFFERS = re.compile(r"entry at byte position (\d+) computed checksum \d+ does not match stored")
"""Where the entry begins after its size and checksum, in DuckDB's words."""

ENTRY_HEADER = 16
"""Bytes of an entry's size and checksum."""

COMMITTED = re.compile(rb"\x05\0{7}.{8}d\0d\xff\xff", re.DOTALL)
"""The entry that ends a transaction: five bytes long, its checksum, field 100 with the value 100."""

MOST_BYTES = 1 << 28
"""Of a log's end that is looked through; DuckDB keeps its log below 16 MiB."""


def log_path(catalog: Path) -> Path:
    """Where DuckDB has the log of a catalog."""
    return catalog.with_name(catalog.name + ".wal")


def log_state(catalog: Path) -> tuple[int, int, int] | None:
    """What tells whether a catalog's log was changed; None without a log."""
    try:
        status = log_path(catalog).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def torn_at(catalog: Path, error: str) -> int | None:
    """Where a log's last transaction is damaged, by DuckDB's error; None if it is not the last
    one, or if the error is another.

    A transaction that was committed and synced later would follow it, for only one at a time is
    written: the damage then has another cause.
    """
    found = DIFFERS.search(error)
    if found is None:
        return None
    start = int(found[1]) - ENTRY_HEADER
    try:
        with log_path(catalog).open("rb") as file:
            file.seek(start)
            end = file.read(MOST_BYTES + 1)
    except OSError:
        return None
    ends = [match.end() for match in COMMITTED.finditer(end)]
    return start if len(end) <= MOST_BYTES and ends in ([], [len(end)]) else None


def cut_torn_log(catalog: Path, error: str, before: tuple[int, int, int] | None) -> bool:
    """Cut a log before a last transaction that is not complete; whether to open it again.

    Args:
        error: Why DuckDB does not open the catalog.
        before: `log_state`, before DuckDB tried.
    """
    start = torn_at(catalog, error)
    if start is None or os.name != "posix":
        return False
    import fcntl

    try:
        with catalog.open("rb+") as held, log_path(catalog).open("rb+") as file:
            # DuckDB's own lock: nobody else opens the catalog now
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if log_state(catalog) == before:
                file.truncate(start)
                os.fsync(file.fileno())
                log.warning(
                    "%s: the last change was not written completely before the machine or the disk "
                    "stopped, and is undone; nothing before it is lost",
                    catalog,
                )
    except OSError as err:
        log.info("%s: the log is not repaired: %s", catalog, err)
        return False
    return True
