"""The commit log: which models every transaction recorded, so that a loss is noticed.

DuckDB opens a write-ahead log (WAL) that was cut short at the last whole transaction of what is
left, without a word. Therefore every transaction adds 1 to `meta.commits`, and the process that
made it then appends a line to the commit log, with the models that the transaction recorded. A line
with a later number than the catalog's own is a commit that the WAL has lost. A line has a checksum;
one that was cut off does not count. The file is not flushed: where power fails, it may know less
than the catalog, never more.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import StoreFull
from .files import atomic_file, beside, file_size

log = logging.getLogger(__name__)

Name = tuple[str, str]
"""Base and id of a model."""

NAMES_SHOWN = 3
"""Names that a message lists; it counts the others."""


def listed(names: Sequence[str], n_all: int | None = None) -> str:
    """`a, b, c and 5 more`."""
    more = (n_all or len(names)) - min(NAMES_SHOWN, len(names))
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


class Commit(NamedTuple):
    """A transaction: its number, from 1, and the models that it recorded, if any."""

    number: int
    models: tuple[Name, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Commits that were reported and are not in the catalog, and the models that they recorded and
    no later commit recorded again."""

    commits: int = 0
    models: tuple[Name, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.commits)

    def __str__(self) -> str:
        models = f" ({listed([id for _, id in self.models])})" if self.models else ""
        lost = f"{self.commits} changes that were saved are missing"
        if self.commits == 1:
            lost = "1 change that was saved is missing"
        return f"{lost}: the write-ahead log was cut short{models}"

    def without(self, models: Iterable[Name]) -> Losses:
        """The rest, once these models are recorded again; nothing without a model of them."""
        again = set(models)
        rest = tuple(model for model in self.models if model not in again)
        return replace(self, models=rest) if rest or not self.models else Losses()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What the file says of the catalog of that name: its commits since DuckDB emptied its WAL, and
    the losses that an earlier opening noticed."""

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
    """The file of one catalog; written by the process that may write it, one thread at a time.

    Where the system refuses the file, commits are not noted.
    """

    def __init__(self, catalog: Path) -> None:
        self.path, self._wal = beside(catalog, ".commits"), beside(catalog, ".wal")
        self._noted, self._wal_bytes = Noted(), 0
        self._is_written = False

    def begin(self, catalog: str, commits: int) -> Losses:
        """Go on with the file of a catalog of that name and so many commits, which this process
        holds from now on; what was lost."""
        noted, self._wal_bytes = self.read(), self.wal_bytes
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
        n_bytes, before = self.wal_bytes, self._noted
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
                file.write(b"\n" + _line(commit))
        except OSError as err:
            log.debug("%s: %s", self.path, err)

    def end(self) -> None:
        """Remove the file where it has nothing to tell: nothing was lost, and the WAL is empty."""
        if not self._noted.losses and not self.wal_bytes:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def read(self) -> Noted:
        """What the file says; nothing where it cannot be read."""
        try:
            header, *others = map(_document, self.path.read_bytes().split(b"\n"))
            return Noted(
                catalog=str(header["catalog"]),
                commits=tuple(
                    Commit(int(document[0]), _names(document[1]))
                    for document in others
                    if document is not None
                ),
                losses=Losses(commits=int(header["lost"]), models=_names(header["models"])),
            )
        except (OSError, KeyError, TypeError, ValueError, IndexError):
            return Noted()

    def _write(self) -> None:
        noted = self._noted
        lost, models = noted.losses.commits, noted.losses.models
        header = {"catalog": noted.catalog, "lost": lost, "models": models}
        try:
            with atomic_file(self.path, lasts=False) as temporary:
                temporary.write_bytes(b"\n".join(map(_line, (header, *noted.commits))))
            self._is_written = True
        except StoreFull as err:
            log.debug("%s", err)

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log; 0 without one."""
        return file_size(self._wal)


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
