"""What runs in a process whose calls are recorded: `killing`'s work, below one folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from killing.child import work

from .library import Fault, begin


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for one process: `disk` is watched and has the catalog, the rest is beside it."""

    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def db(self) -> Path:
        """In a folder that the process makes."""
        return self.disk / "catalogs" / "c.duckdb"

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    @property
    def record(self) -> Path:
        return self.folder / "record"

    @property
    def output(self) -> Path:
        return self.folder / "output"


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """A folder for a while; in memory where the system has a place for that, for syncs cost nothing
    there."""
    shared = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None)


def work_watched(
    place: Place,
    steps: Sequence[Sequence[str]],
    cwd: Path,
    small_log: bool,
    fault: Fault | None,
) -> None:
    """Do the steps; calls on the watched folder are recorded, the trace's lines among them."""
    begin(place.disk, place.trace, place.record, fault)
    work(steps, cwd, place.db, place.trace, place.output, small_log)
