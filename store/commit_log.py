"""The commit log: which models every transaction recorded, so that a loss is noticed.

DuckDB opens a write-ahead log (WAL) that was cut short at the last whole transaction of what is
left, without a word. Therefore every transaction adds 1 to `meta.commits`, and the process that
made it then notes it in the commit log, with the models that the transaction recorded. One with a
later number than the catalog's own is a commit that the WAL has lost. The file has a checksum, and
is not flushed: where power fails, it may know less than the catalog, never more.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..errors import StoreFull
from ..results import agree, count
from .files import atomic_file, beside, file_size

log = logging.getLogger(__name__)

Name = tuple[str, str]
"""Base and id of a model."""

NAMES_SHOWN = 3
"""Names that a message lists; it counts the others."""


def listed(names: Sequence[str]) -> str:
    """`a, b, c and 5 more`."""
    more = len(names) - NAMES_SHOWN
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
        n = self.commits
        lost = f"{count(n, 'change')} that {agree(n, 'was')} saved {agree(n, 'is')} missing"
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

    def begin(self, catalog: str, commits: int) -> Losses:
        """Go on with the file of a catalog of that name and so many commits, which this process
        holds from now on; what was lost."""
        noted, self._wal_bytes = self.read(), self.wal_bytes
        is_needed = noted.catalog == catalog and self._wal_bytes > 0
        kept = [commit for commit in noted.commits if is_needed and commit.number <= commits]
        losses = noted.losses_of(catalog, commits)
        self._noted = Noted(catalog=catalog, commits=tuple(kept), losses=losses)
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
        self._write()

    def end(self) -> None:
        """Remove the file where it has nothing to tell: nothing was lost, and the WAL is empty."""
        if not self._noted.losses and not self.wal_bytes:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def read(self) -> Noted:
        """What the file says; nothing where it cannot be read, or was cut off."""
        try:
            checksum, body = self.path.read_bytes().split(b"\n", 1)
            if int(checksum, 16) != zlib.crc32(body):
                return Noted()
            noted = json.loads(body)
            return Noted(
                catalog=str(noted["catalog"]),
                commits=tuple(Commit(int(n), _names(models)) for n, models in noted["commits"]),
                losses=Losses(commits=int(noted["lost"]), models=_names(noted["models"])),
            )
        except (OSError, KeyError, TypeError, ValueError):
            return Noted()

    def _write(self) -> None:
        noted, losses = self._noted, self._noted.losses
        document = {"catalog": noted.catalog, "lost": losses.commits, "models": losses.models}
        body = json.dumps({**document, "commits": noted.commits}).encode()
        try:
            with atomic_file(self.path, lasts=False) as temporary:
                temporary.write_bytes(b"%08x\n%s" % (zlib.crc32(body), body))
        except StoreFull as err:
            log.debug("%s", err)

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log; 0 without one."""
        return file_size(self._wal)


def _names(pairs: Iterable[Iterable[object]]) -> tuple[Name, ...]:
    return tuple((str(base), str(id)) for base, id in pairs)
