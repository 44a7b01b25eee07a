"""Commands in a process whose calls are recorded, and what they should leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from killing import PREPARE, Contents, Nursery, Prepared, ended, read_contents, step_adding

from .child import Place, work_watched
from .library import Fault
from .record import Call, read_record
from .simulator import Disk, Moment

COPY = "copy.duckdb"

INDEX = ("index", "base", "models", "--labels", "models/labels.csv", "--limit", "3", "--json")
REMOVED = "m00001"
STEPS: Sequence[Sequence[str]] = (
    INDEX,
    step_adding(4),
    (PREPARE,),
    ("find-similar", REMOVED),
    ("rm", REMOVED),
    ("find-similar", "m00002"),
    ("backup", "{folder}/copy.duckdb"),
    (PREPARE,),
    step_adding(5),
    ("backup", "{folder}/copy.duckdb", "--force"),
)
"""A small catalog's life: every kind of file is written, and written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A process that has ended.

    Attributes:
        calls: On the watched folder.
        code: Its exit code.
        said: Its output.
    """

    place: Place
    calls: Sequence[Call]
    code: int
    said: str


def run(
    nursery: Nursery,
    prepared: Prepared,
    steps: Sequence[Sequence[str]],
    place: Place,
    *,
    small_log: bool = False,
    fault: Fault | None = None,
) -> Recorded:
    """Do steps in a process of their own, to the end."""
    place.disk.mkdir(parents=True, exist_ok=True)
    place.trace.unlink(missing_ok=True)
    place.output.unlink(missing_ok=True)
    words = [[word.format(folder=place.db.parent) for word in step] for step in steps]
    arguments = (place, words, prepared.family, small_log, fault)
    process = nursery.begun(work_watched, arguments, place.trace)
    ended(process)
    return Recorded(
        place=place,
        calls=read_record(place.record),
        code=process.exitcode or 0,
        said=place.output.read_text("utf-8"),
    )


def everything(nursery: Nursery, prepared: Prepared, folder: Path) -> Contents:
    """Every model that is in the catalog at some moment of `STEPS`."""
    kept = [step for step in STEPS if step[0] in ("index", "add")]
    done = run(nursery, prepared, kept, Place(folder))
    return read_contents(done.place.db)


def is_complete(recorded: Recorded) -> bool:
    """Whether the record explains every byte of the folder that the process left."""
    disk = Disk(str(recorded.place.disk), "posix")
    for call in recorded.calls:
        disk.do(call)
    last = Moment(calls=len(recorded.calls), model="posix", data="all", names="all", seed=0)
    root = recorded.place.disk
    left = {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
    }
    return disk.state(last) == left
