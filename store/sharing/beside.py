"""The files by which processes share a catalog: the holder file, the log of its last commits.

DuckDB opens a write-ahead log (WAL) that was cut short at the last whole transaction of what is
left, without a word. Therefore every transaction adds 1 to `meta.commits`, and the process that
holds the catalog then appends a line to the commit log, with the models that the transaction
recorded. A line with a later number than the catalog's own is a commit that the WAL has lost. A
line has a checksum; one that was cut off does not count. The file is not flushed: where power
fails, it may know less than the catalog, never more.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import StoreFull
from ..files import atomic_file, beside
from ..recovery import log_path

_LONGEST = 4096
"""Bytes of a note; a longer file is not a note."""


class Gone(ConnectionError):
    """The other side has ended, or is not who it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderFile:
    """The process that holds a catalog.

    Attributes:
        machine: Its host name: a port of another machine's loopback is no use here.
        key: What both sides prove to know; the note is readable by its owner alone.
    """

    pid: int
    machine: str
    port: int
    key: bytes


def holder_path(catalog: Path) -> Path:
    """Where the note of a catalog is."""
    return beside(catalog, ".holder")


def write_holder(catalog: Path, note: HolderFile) -> None:
    """Write the note, readable by its owner only.

    Raises:
        StoreFull: the folder refuses writes.
    """
    body = {"pid": note.pid, "machine": note.machine, "port": note.port, "key": note.key.hex()}
    with atomic_file(holder_path(catalog), lasts=False) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(body, file)


def read_holder(catalog: Path) -> HolderFile | None:
    """The note; None where none can be read, or where it is of another machine."""
    try:
        # without waiting, where a pipe is in the note's place
        flag = getattr(os, "O_NONBLOCK", 0)
        with open(holder_path(catalog), "rb", opener=lambda p, f: os.open(p, f | flag)) as file:
            body = json.loads(file.read(_LONGEST))
        note = HolderFile(
            pid=int(body["pid"]),
            machine=str(body["machine"]),
            port=int(body["port"]),
            key=bytes.fromhex(body["key"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return note if note.machine == socket.gethostname() and 0 < note.port < 2**16 else None


def remove_holder(catalog: Path, note: HolderFile) -> None:
    """Remove the note, unless another holder has written its own. A note that stays names a process
    that has ended, and hinders nobody."""
    if read_holder(catalog) == note:
        with suppress(OSError):
            holder_path(catalog).unlink(missing_ok=True)


log = logging.getLogger(__name__)

Name = tuple[str, str]
"""Base and id of a model."""

NAMES_SHOWN = 3
"""Models that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One transaction.

    Attributes:
        number: Of the catalog's commits, from 1.
        models: Those that it recorded; empty for a change of something else.
    """

    number: int
    models: tuple[Name, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Commits that were reported and are not in the catalog.

    Attributes:
        commits: How many.
        models: Those that they recorded, and that no later commit recorded again.
    """

    commits: int = 0
    models: tuple[Name, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.commits)

    def __str__(self) -> str:
        changes = "1 change that was" if self.commits == 1 else f"{self.commits} changes that were"
        names = ", ".join(id for _, id in self.models[:NAMES_SHOWN])
        more = len(self.models) - NAMES_SHOWN
        models = f" ({names}{f' and {more} more' if more > 0 else ''})" if names else ""
        verb = "is" if self.commits == 1 else "are"
        return f"{changes} saved {verb} missing: the write-ahead log was cut short{models}"

    def without(self, models: Iterable[Name]) -> Losses:
        """The rest, once these models are recorded again; nothing without a model of them."""
        if not self.models:
            return self
        again = set(models)
        rest = tuple(model for model in self.models if model not in again)
        return Losses(commits=self.commits, models=rest) if rest else Losses()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What the file says.

    Attributes:
        catalog: The catalog's own name, in `meta.catalog`.
        commits: Those since DuckDB emptied its WAL.
        losses: Those that an earlier opening noticed.
    """

    catalog: str = ""
    commits: tuple[Commit, ...] = ()
    losses: Losses = Losses()

    def losses_of(self, catalog: str, commits: int) -> Losses:
        """What was lost of the catalog of that name: noticed before, or after its last commit."""
        if self.catalog != catalog:
            return Losses()
        lost = [commit for commit in self.commits if commit.number > commits]
        models = (*self.losses.models, *(name for commit in lost for name in commit.models))
        return Losses(commits=self.losses.commits + len(lost), models=tuple(dict.fromkeys(models)))


class CommitLog:
    """The file of one catalog; written by the process that holds it, one thread at a time.

    Where the system refuses the file, commits are not noted.
    """

    def __init__(self, catalog: Path) -> None:
        self.path = beside(catalog, ".commits")
        self._wal = log_path(catalog)
        self._noted, self._wal_bytes = Noted(), 0
        self._is_written = False

    def begin(self, catalog: str, commits: int) -> Losses:
        """Go on with the file of a catalog that this process holds from now on; what was lost.

        Args:
            catalog: Its name.
            commits: How many it has.
        """
        noted, self._wal_bytes = self.read(), self._size_of_wal()
        is_needed = noted.catalog == catalog and self._wal_bytes > 0
        kept = [commit for commit in noted.commits if is_needed and commit.number <= commits]
        losses = noted.losses_of(catalog, commits)
        self._noted = Noted(catalog=catalog, commits=tuple(kept), losses=losses)
        self._is_written = self._noted == noted
        if losses != noted.losses:
            self._write()
        return losses

    def append(self, commit: Commit) -> None:
        """Note a commit that was made."""
        n_bytes, before = self._size_of_wal(), self._noted
        was_emptied, self._wal_bytes = n_bytes < self._wal_bytes, n_bytes
        self._noted = replace(
            before,
            commits=(*(() if was_emptied else before.commits), commit),
            losses=before.losses.without(commit.models),
        )
        if was_emptied or not self._is_written or self._noted.losses != before.losses:
            self._write()
            return
        try:
            with self.path.open("ab") as file:
                file.write(b"\n" + _line([commit.number, commit.models]))
        except OSError as err:
            log.debug("%s: %s", self.path, err)

    def end(self) -> None:
        """Remove the file where it has nothing to tell: nothing was lost, and the WAL is empty."""
        if not self._noted.losses and not self.has_wal:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def read(self) -> Noted:
        """What the file says; nothing where it cannot be read."""
        try:
            header, *others = map(_document, self.path.read_bytes().split(b"\n"))
            return Noted(
                catalog=str(header["catalog"]),
                commits=tuple(
                    Commit(number=int(document[0]), models=_names(document[1]))
                    for document in others
                    if document is not None
                ),
                losses=Losses(commits=int(header["lost"]), models=_names(header["models"])),
            )
        except (OSError, KeyError, TypeError, ValueError, IndexError):
            return Noted()

    def _write(self) -> None:
        noted = self._noted
        header = {
            "catalog": noted.catalog,
            "lost": noted.losses.commits,
            "models": noted.losses.models,
        }
        lines = [header, *([commit.number, commit.models] for commit in noted.commits)]
        try:
            with atomic_file(self.path, lasts=False) as temporary:
                temporary.write_bytes(b"\n".join(map(_line, lines)))
            self._is_written = True
        except StoreFull as err:
            log.debug("%s", err)

    @property
    def has_wal(self) -> bool:
        """Whether the write-ahead log holds anything."""
        return self._size_of_wal() > 0

    def _size_of_wal(self) -> int:
        try:
            return self._wal.stat().st_size
        except OSError:
            return 0


def _line(document: object) -> bytes:
    body = json.dumps(document, separators=(",", ":")).encode()
    return b"%08x %s" % (zlib.crc32(body), body)


def _document(line: bytes) -> Any:
    """What a line says; None where it is damaged."""
    checksum, _, body = line.partition(b" ")
    try:
        return json.loads(body) if int(checksum, 16) == zlib.crc32(body) else None
    except ValueError:
        return None


def _names(pairs: Iterable[Iterable[object]]) -> tuple[Name, ...]:
    return tuple((str(base), str(id)) for base, id in pairs)
