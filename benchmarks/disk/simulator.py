"""What a disk may hold after the power went, by the calls that were made before.

Data. A file has the bytes of its last sync (fsync and fdatasync alike). Of everything that was
written since, the disk takes any part in any order, a unit at a time: a page of 4 KiB, or a sector
of 512 bytes. A unit holds what the page cache held at some moment since the sync. The size of the
file is its size at some moment since the sync; units that are inside it and were not written are
zeros. A sector is written whole or not at all.

Names. Creating, renaming and removing change folders. Two models of when that lasts:

`journal`: as ext4, XFS and Btrfs do it. All changes of names are in one journal, and a part of it
    from its beginning is on the disk. It reaches at least as far as a sync has committed it: a sync
    of a folder to its last change there; a sync of a file to the naming of that file, and to the
    present where the file has grown since its last sync (the new size is in the journal behind the
    names).
`posix`: only what POSIX promises. A change of a folder lasts once that folder was synced. Of the
    other changes any part is on the disk, one by one; a rename is one change. A sync of a file says
    nothing about its name.

Neither model writes out a file's data when the file is renamed over another (ext4's
`auto_da_alloc`): who relies on it fails here.
"""

from __future__ import annotations

import hashlib
import os.path
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .record import Call, Kind

PAGE, SECTOR = 4096, 512
SEVERAL = 3
"""Random states of one kind at one position."""

Model = Literal["journal", "posix"]
MODELS: Sequence[Model] = ("journal", "posix")

Data = Literal["all", "none", "zeros", "in order", "last only", "pages", "sectors"]
DATA: Sequence[Data] = ("all", "none", "zeros", "in order", "last only", "pages", "sectors")
"""Which of the unsynced writes are on the disk: each; none; none, but the files have grown; those
until a moment, the last of them torn; the last one alone; any pages; any sectors."""

Names = Literal["all", "none", "some"]
NAMES: Sequence[Names] = ("all", "none", "some")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One way in which the disk may look after a number of calls.

    Attributes:
        calls: Made before the power went.
        seed: Of what is drawn.
    """

    calls: int
    model: Model
    data: Data
    names: Names
    seed: int


@dataclass(slots=True)
class File:
    """The content of a file: as it was synced, and what was done since.

    Attributes:
        changes: Writes (position and bytes), and truncations (size and None).
    """

    synced: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    size: int = 0

    def write(self, at: int, data: bytes) -> None:
        self.changes.append((at, data))
        self.size = max(self.size, at + len(data))

    def truncate(self, size: int) -> None:
        self.changes.append((size, None))
        self.size = size

    def sync(self) -> None:
        self.synced, self.changes = self.read(len(self.changes), lambda unit: 1 << 60, PAGE), []

    @property
    def has_grown(self) -> bool:
        return self.size != len(self.synced)

    def read(self, sized: int, until: Callable[[int], int], unit: int) -> bytes:
        """The content as a disk may have it.

        Args:
            sized: The size is that after so many changes.
            until: How many of the changes each unit has seen.
            unit: Bytes that are written together.
        """
        content, size = bytearray(self.synced), len(self.synced)
        for number, (at, data) in enumerate(self.changes):
            end = at + len(data) if data is not None else max(len(content), at)
            if end > len(content):
                content.extend(bytes(end - len(content)))
            for place in range(at // unit, -(-end // unit)):
                if number < until(place):
                    first, last = max(at, place * unit), min(end, (place + 1) * unit)
                    new = bytes(last - first) if data is None else data[first - at : last - at]
                    content[first:last] = new
            if number < sized:
                size = at if data is None else max(size, end)
        return bytes(content[:size].ljust(size, b"\0"))


@dataclass(frozen=True, slots=True)
class Change:
    """One change of names: each name's new file (None: a folder), or its removal."""

    folder: str
    sets: Mapping[str, File | None]
    removes: str = ""

    def apply(self, names: dict[str, File | None]) -> None:
        names.pop(self.removes, None)
        names.update(self.sets)


class Disk:
    """What was done to one folder, and how much of that must be on the disk."""

    def __init__(self, root: str, model: Model) -> None:
        self._root, self._model = root, model
        self._names: dict[str, File | None] = {root: None}
        self._lasting: dict[str, File | None] = {root: None}
        self._changes: list[Change] = []
        self._by_inode: dict[int, File] = {}

    def do(self, call: Call) -> None:
        """Go on by one call that was made."""
        if call.error:
            return
        match call.kind:
            case Kind.CREATE:
                self._by_inode[call.inode] = File()
                self._change(call.path, {call.path: self._by_inode[call.inode]})
            case Kind.MKDIR:
                self._change(call.path, {call.path: None})
            case Kind.RENAME:
                self._change(call.other, {call.other: self._names[call.path]}, call.path)
            case Kind.LINK:
                self._change(call.other, {call.other: self._names[call.path]})
            case Kind.UNLINK | Kind.RMDIR:
                self._change(call.path, {}, call.path)
            case Kind.WRITE:
                self._by_inode[call.inode].write(call.at, call.data)
            case Kind.TRUNCATE:
                self._by_inode[call.inode].truncate(call.at)
            case Kind.SYNC:
                self._sync(call)

    def state(self, moment: Moment) -> dict[str, bytes | None]:
        """The files and folders (None), by path below the root."""
        rng = random.Random(f"{moment}")
        names = dict(self._lasting)
        for change in self._some_changes(moment.names, rng):
            change.apply(names)
        files: dict[str, bytes | None] = {}
        for path, file in sorted(names.items()):
            name = os.path.relpath(path, self._root)
            above = os.path.dirname(name)
            # without its folder, a file cannot be reached
            if path != self._root and (not above or (above in files and files[above] is None)):
                files[name] = None if file is None else _content(file, moment.data, rng)
        return files

    def _change(self, path: str, sets: dict[str, File | None], removes: str = "") -> None:
        change = Change(os.path.dirname(path), sets, removes)
        change.apply(self._names)
        self._changes.append(change)

    def _sync(self, call: Call) -> None:
        file = self._by_inode.get(call.inode)
        if call.path in self._names and self._names[call.path] is None:
            self._sync_folder(call.path)
        elif file is not None:
            if self._model == "journal":
                naming = [n for n, c in enumerate(self._changes) if file in c.sets.values()]
                reach = len(self._changes) if file.has_grown else 1 + max(naming, default=-1)
                self._commit(self._changes[:reach])
            file.sync()

    def _sync_folder(self, folder: str) -> None:
        mine = [n for n, change in enumerate(self._changes) if change.folder == folder]
        if self._model == "journal":
            self._commit(self._changes[: 1 + max(mine, default=-1)])
        else:
            self._commit([self._changes[n] for n in mine])

    def _commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            change.apply(self._lasting)
        committed = set(map(id, changes))
        self._changes = [change for change in self._changes if id(change) not in committed]

    def _some_changes(self, names: Names, rng: random.Random) -> Sequence[Change]:
        if names == "all":
            return self._changes
        if names == "none":
            return ()
        if self._model == "journal":
            return self._changes[: rng.randint(0, len(self._changes))]
        return [change for change in self._changes if rng.random() < 0.5]


def _content(file: File, data: Data, rng: random.Random) -> bytes:
    """A file's bytes, by which of its changes are on the disk."""
    n = len(file.changes)
    if data == "all" or not n:
        return file.read(n, lambda unit: n, PAGE)
    if data == "none":
        return file.synced
    if data == "zeros":
        return file.read(n, lambda unit: 0, PAGE)
    if data == "in order":
        whole = rng.randrange(n)
        at, last = file.changes[whole]
        torn_at = (at + rng.randint(0, len(last or b""))) // SECTOR
        return file.read(whole + 1, lambda unit: whole + (unit < torn_at), SECTOR)
    if data == "last only":
        at, last = file.changes[-1]
        pages = range(at // PAGE, -(-(at + len(last or b"")) // PAGE))
        return file.read(n, lambda unit: n if unit in pages else 0, PAGE)
    share, drawn = rng.choice([0.1, 0.5, 0.9]), dict[int, int]()

    def until(unit: int) -> int:
        if unit not in drawn:
            drawn[unit] = n if rng.random() < share else rng.randint(0, n)
        return drawn[unit]

    unit = PAGE if data == "pages" else SECTOR
    return file.read(rng.choice([n, n, rng.randint(0, n)]), until, unit)


def moments(calls: Sequence[Call]) -> Iterator[Moment]:
    """All moments at which the power may go, before and after every call that changes the disk."""
    seed = 0
    for number, call in enumerate(calls, 1):
        if not call.changes_disk:
            continue
        for model in MODELS:
            for data in DATA:
                for names in NAMES:
                    drawn = names == "some" or data in ("in order", "pages", "sectors")
                    for _ in range(SEVERAL if drawn else 1):
                        seed += 1
                        yield Moment(calls=number, model=model, data=data, names=names, seed=seed)


def states(
    root: str, calls: Sequence[Call], chosen: Sequence[Moment]
) -> Iterator[tuple[Moment, dict[str, bytes | None]]]:
    """The disk at some moments of one model, in the order of the calls; a state that another moment
    gave is left out."""
    known = set()
    disk, done = Disk(root, chosen[0].model), 0
    for moment in sorted(chosen, key=lambda moment: moment.calls):
        for call in calls[done : moment.calls]:
            disk.do(call)
        done = moment.calls
        state = disk.state(moment)
        digest = (len(reported(calls[:done])), _digest(state))
        if digest not in known:
            known.add(digest)
            yield moment, state


def reported(calls: Sequence[Call]) -> list[str]:
    """What the process had reported by then, line by line."""
    marks = b"".join(call.data for call in calls if call.kind == Kind.MARK)
    return marks.decode().splitlines()


def _digest(state: Mapping[str, bytes | None]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(state):
        content = state[path]
        digest.update(f"{path} {'folder' if content is None else len(content)}\n".encode())
        digest.update(content or b"")
    return digest.digest()
