"""A family's sketches in a file, row by row: what a service reads instead of the catalog.

128 candidates have 19 MB of sketches. DuckDB needs a tenth of a second to find them among a
hundred thousand models; a file that holds them at known places gives them in the time that it
takes to copy them. Derived and rebuildable: rows first, then their keys, each made sure to be
on the disk; a row whose key is missing was not written.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Float64, Int64

from ...errors import StoreFull
from ...records import Slot
from ..export import write_whole
from ..sharing import Access, Connection
from .matrix import Layout, SketchMatrix, fetch_rows, lay_out

log = logging.getLogger(__name__)

AT_ONCE = 256
"""Models whose sketches are written by one pass."""

NOTE = np.dtype([("key", "<i8"), ("length", "<f8")])
"""What is kept of each row, in a file of its own."""

SPARE_BYTES = 1 << 30
"""Left free on the disk."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """What is in the file: never changed, but put in another's place, for those who read.

    Attributes:
        size_bytes: Of one row.
    """

    descriptor: int
    layout: Layout
    keys: Int64[np.ndarray, " models"]
    lengths: Float64[np.ndarray, " models"]
    size_bytes: int


def _empty(descriptor: int, layout: Layout) -> _Rows:
    size_bytes = 2 * max((columns.stop for columns in layout.values()), default=0)
    return _Rows(descriptor, layout, np.zeros(0, dtype=np.int64), np.zeros(0), size_bytes)


class SketchFile:
    """Rows of one family under one recipe, in order of their keys. Read by many threads at
    once, and written by one process at a time."""

    def __init__(self, path: Path, lock: FileLock | None) -> None:
        """Open the file; to be read only, without a lock."""
        self._path, self._lock = path, lock
        flags = os.O_RDONLY if lock is None else os.O_RDWR | os.O_CREAT
        self._descriptors = [os.open(path, flags, 0o644)]
        self._rows = self._left_by_others()

    @classmethod
    def open(cls, path: Path) -> SketchFile | None:
        """The file; None where another process writes it, or the folder refuses it."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_suffix(".lock"))
            lock.acquire(timeout=0)
            return cls(path, lock)
        except (OSError, Timeout) as err:
            log.info("the sketches are read from the catalog: %s", err)
            return None

    @classmethod
    def read(cls, path: Path) -> SketchFile | None:
        """The file as another process left it, or as it is while one writes it."""
        try:
            file = cls(path, None)
        except OSError:
            return None
        # rows, slots and keys are of one file only if it was not begun anew meanwhile
        try:
            if path.stat().st_ino == os.fstat(file._descriptors[0]).st_ino:
                return file
        except OSError:
            log.debug("%s is being made anew", path)
        file.close()
        return None

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        if self._lock is not None:
            self._lock.release()

    def matrix(self, keys: Int64[np.ndarray, " keys"]) -> SketchMatrix | None:
        """The sketches of the models with these keys; None unless all are here."""
        rows = self._rows
        places = _places(rows, keys)
        if places is None:
            return None
        matrix = SketchMatrix(rows.layout, len(keys))
        matrix.lengths[:] = rows.lengths[places]
        for row, place in enumerate(places.tolist()):
            memory = matrix.memory_of(row)
            if os.preadv(rows.descriptor, [memory], place * rows.size_bytes) != rows.size_bytes:
                return None
        return matrix

    def catch_up(
        self, connection: Connection, base: str, recipe: str, goes_on: Callable[[], bool]
    ) -> None:
        """Write what the catalog has and the file has not, for as long as `goes_on` says so.

        Raises:
            StoreFull: the disk is too full for it, or refuses.
        """
        n_models = _count(connection, base)
        if len(self._rows.keys) > 2 * n_models + AT_ONCE:
            self._begin_anew(self._rows.layout)
        known = {slot: c.stop - c.start for slot, c in self._rows.layout.items()}
        widths = _widths(connection, base, recipe, self._last_key())
        if widths.keys() - known.keys():
            self._begin_anew(lay_out({**known, **widths}))
        keys = _keys(connection, base, recipe, self._last_key())
        self._see_space(len(keys))
        for start in range(0, len(keys), AT_ONCE):
            if not goes_on():
                return
            self._append(connection, recipe, keys[start : start + AT_ONCE])

    def _last_key(self) -> int:
        return int(self._rows.keys[-1]) if len(self._rows.keys) else -1

    def _append(self, connection: Connection, recipe: str, keys: list[int]) -> None:
        rows = self._rows
        place = {key: row for row, key in enumerate(keys)}
        found = fetch_rows(connection, "model BETWEEN ? AND ?", recipe, [keys[0], keys[-1]])
        matrix = SketchMatrix(rows.layout, len(keys))
        matrix.fill([(place[key], slot, sketch) for key, slot, sketch in found if key in place])
        added = np.zeros(len(keys), dtype=NOTE)
        added["key"], added["length"] = keys, matrix.lengths
        try:
            for row in range(len(keys)):
                at = (len(rows.keys) + row) * rows.size_bytes
                os.pwrite(rows.descriptor, matrix.memory_of(row), at)
            os.fsync(rows.descriptor)
            with self._keys_path.open("ab") as file:
                file.write(added.tobytes())
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            raise StoreFull(f"{self._path}: {err.strerror}") from err
        self._rows = _Rows(
            rows.descriptor,
            rows.layout,
            np.concatenate([rows.keys, added["key"].astype(np.int64)]),
            np.concatenate([rows.lengths, added["length"].astype(np.float64)]),
            rows.size_bytes,
        )

    @property
    def _keys_path(self) -> Path:
        return self._path.with_suffix(".keys")

    @property
    def _layout_path(self) -> Path:
        return self._path.with_suffix(".slots")

    def _left_by_others(self) -> _Rows:
        """What an earlier process left, as far as it is whole."""
        (descriptor,) = self._descriptors
        try:
            slots = json.loads(self._layout_path.read_text("utf-8"))
            layout = lay_out({Slot(*slot): int(width) for *slot, width in slots})
            data = self._keys_path.read_bytes()
        except (OSError, ValueError, TypeError):
            if self._lock is not None:
                self._keys_path.unlink(missing_ok=True)
            return _empty(descriptor, {})
        rows = _empty(descriptor, layout)
        n_rows = os.fstat(descriptor).st_size // max(1, rows.size_bytes)
        n_whole = min(len(data) // NOTE.itemsize, n_rows)
        if self._lock is not None and len(data) != n_whole * NOTE.itemsize:
            os.truncate(self._keys_path, n_whole * NOTE.itemsize)
        notes = np.frombuffer(data[: n_whole * NOTE.itemsize], dtype=NOTE)
        return replace(
            rows,
            keys=notes["key"].astype(np.int64),
            lengths=notes["length"].astype(np.float64),
        )

    def _begin_anew(self, layout: Layout) -> None:
        """An empty file of this layout; who reads the old one goes on with it."""
        slots = [[s.stack, s.layer, s.role, c.stop - c.start] for s, c in layout.items()]
        self._keys_path.unlink(missing_ok=True)
        self._path.unlink()
        self._descriptors.append(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644))
        write_whole(self._layout_path, json.dumps(slots).encode())
        self._rows = _empty(self._descriptors[-1], layout)

    def _see_space(self, n_models: int) -> None:
        needed = n_models * self._rows.size_bytes
        free = shutil.disk_usage(self._path.parent).free
        if n_models and needed + SPARE_BYTES > free:
            raise StoreFull(
                f"{self._path.parent}: the sketches at hand need {needed / 2**30:.1f} GiB, "
                f"{free / 2**30:.1f} are free"
            )


@dataclass(slots=True)
class SketchFiles:
    """The files that this process has open, of one catalog."""

    files: dict[tuple[str, str], SketchFile] = field(default_factory=dict)
    read: dict[tuple[str, str], SketchFile | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, base: str, recipe: str, path: Path) -> SketchFile | None:
        """A family's file: this process's own, else another's to be read; None if there is
        none."""
        own = self.files.get((base, recipe))
        if own is not None:
            return own
        with self.lock:
            if (base, recipe) not in self.read:
                self.read[base, recipe] = SketchFile.read(path)
            return self.read[base, recipe]

    def caught_up(
        self, base: str, recipe: str, path: Path, catch_up: Callable[[SketchFile], None]
    ) -> None:
        """Open a family's file if it is not, and bring it up to date; one thread at a time."""
        with self.lock:
            file = self.files.get((base, recipe)) or SketchFile.open(path)
            if file is not None:
                self.files[base, recipe] = file
                catch_up(file)

    def close(self) -> None:
        with self.lock:
            for file in (*self.files.values(), *self.read.values()):
                if file is not None:
                    file.close()
            self.files.clear()
            self.read.clear()


_OPENED: WeakKeyDictionary[Access, SketchFiles] = WeakKeyDictionary()


def sketch_files(access: Access) -> SketchFiles:
    """The open files of a catalog."""
    return _OPENED.setdefault(access, SketchFiles())


def _places(rows: _Rows, keys: Int64[np.ndarray, " keys"]) -> Int64[np.ndarray, " keys"] | None:
    """Where the models with these keys are; None unless all are here."""
    if not len(rows.keys):
        return None
    places: Int64[np.ndarray, " keys"] = np.searchsorted(rows.keys, keys)
    there = rows.keys[np.minimum(places, len(rows.keys) - 1)] == keys
    return places if there.all() else None


def _count(connection: Connection, base: str) -> int:
    return int(connection.execute("SELECT count(*) FROM models WHERE base = ?", [base])[0][0])


def _keys(connection: Connection, base: str, recipe: str, after: int) -> list[int]:
    """Of the family's models above a key that have sketches."""
    rows = connection.execute(
        "SELECT DISTINCT s.model FROM slots s JOIN models m ON m.key = s.model "
        "WHERE m.base = ? AND s.recipe = ? AND s.sketch IS NOT NULL AND s.model > ? ORDER BY 1",
        [base, recipe, after],
    )
    return [key for (key,) in rows]


def _widths(connection: Connection, base: str, recipe: str, after: int) -> dict[Slot, int]:
    """Features of every slot that models of the family above a key have sketches of."""
    found = connection.execute(
        "SELECT s.stack, s.layer, s.role, any_value(octet_length(s.sketch)) FROM slots s "
        "JOIN models m ON m.key = s.model "
        "WHERE m.base = ? AND s.recipe = ? AND s.sketch IS NOT NULL AND s.model > ? GROUP BY ALL",
        [base, recipe, after],
    )
    return {Slot(*slot): n_bytes // 2 for *slot, n_bytes in found}
