"""The database that a command works on, with its progress on stderr."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .command_line import Common

if TYPE_CHECKING:
    from ..database import Create, Opened, Track

Thing = TypeVar("Thing")


def open_database(
    common: Common,
    path: Path | None = None,
    *,
    read_only: bool | None = True,
    create: Create = False,
    engine: str = "faiss",
) -> Opened:
    """The catalog of `--db`, or another; raises as `deltadex.open`."""
    from ..database import Opened, open_as

    return open_as(
        Opened,
        path or common.db,
        read_only=read_only,
        create=create,
        engine=engine,
        track=tracker(quiet=common.quiet),
    )


def tracker(*, quiet: bool) -> Track:
    """Progress on stderr, loaded when something is tracked."""

    def track(things: Iterable[Thing], what: str, *, total: int | None = None) -> Iterator[Thing]:
        from ..terminal import tracked

        return tracked(things, what, quiet=quiet, total=total)

    return track
