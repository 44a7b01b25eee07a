"""A family's sketches and vectors in files, row by row, which a service reads instead of the
catalog.

128 candidates have 5 MB of sketches. DuckDB needs a tenth of a second to find them among a
hundred thousand models; in a file that is mapped into memory they are where they are. The files
can be made again. Rows are written and flushed before their keys: a row without a key was not
written. Every row of every file has a checksum (`sketch_rows`), which is compared whenever the row
is read; a row that differs is written again from the catalog.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from ...arrays import Float32, Int64
from ...errors import StoreFull
from ...records import Recipe
from ..files import open_at, write_atomically
from ..model_rows import block_dims
from ..session import Session
from ..tables.filters import Condition
from ..tables.models import count_models
from ..tables.slots import select_sketch_rows, select_sketched_slots
from ..tables.vectors import fetch_keys, fetch_vectors_of
from .sketch_matrix import SketchMatrix, stored_matrix
from .sketch_rows import CHECKED, KEY, NOTHING, Rows, Shapes, checksums, read_keys, read_shapes

log = logging.getLogger(__name__)

AT_ONCE = 256
"""Models whose sketches are written by one pass, at least."""

BYTES_AT_ONCE = 1 << 26
"""That one pass writes, if these are more models."""

FEW_KEYS = 16
"""Models up to which DuckDB looks for each; of more, it reads all between the first and last."""

MADV_POPULATE_READ = 22
"""Of Linux's madvise(2); other systems refuse it without harm."""

SPARE_BYTES = 1 << 30
"""Left free on the disk."""


class SketchFile:
    """Rows of one family under one recipe, in order of their keys. Read by many threads at
    once, and written by one process at a time.

    `.sketches` has the codes, `.weights` what every block counts, `.vectors` the vectors, `.sums`
    checksums, `.keys` the keys of the rows, `.slots` what a row is. What reads rows raises
    `DamagedRows`.
    """

    def __init__(self, path: Path, lock: FileLock | None) -> None:
        """Open the file; to be read only, without a lock."""
        self._path, self._lock = path, lock
        if lock is not None:
            path.touch()
        self._rows = self._read_rows()

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
            with path.open("rb") as opened:
                file = cls(path, None)
                # rows, slots and keys are of one file only if it was not replaced meanwhile
                is_same = path.stat().st_ino == os.fstat(opened.fileno()).st_ino
                return file if is_same else None
        except OSError:
            return None

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def matrix(self, keys: Int64[np.ndarray, " keys"]) -> SketchMatrix | None:
        """The sketches of the models with these keys; None unless all are here."""
        rows = self._rows
        places = rows.places(keys)
        if places is None:
            return None
        shapes = rows.shapes
        return SketchMatrix(shapes.blocks, shapes.slots, *rows.sketches_at(places))

    def vectors(self, keys: Int64[np.ndarray, " keys"]) -> Float32[np.ndarray, "keys dim"] | None:
        """The vectors of the models with these keys; None unless all are here."""
        rows = self._rows
        places = rows.places(keys)
        return None if places is None else rows.vectors_at(places)

    def vectors_at(
        self, keys: Int64[np.ndarray, " models"], rows: Int64[np.ndarray, " rows"]
    ) -> Float32[np.ndarray, "rows dim"] | None:
        """The vectors of those models of a family with these keys that are at some rows of it; None
        unless all are here."""
        here = self._rows
        return here.vectors_at(rows) if here.begins_with(keys) else self.vectors(keys[rows])

    def check(self, keys: Int64[np.ndarray, " keys"]) -> None:
        """Compare the rows of some models with their checksums.

        Raises:
            DamagedRows: some differ.
        """
        places = self._rows.places(keys)
        if places is not None:
            self._rows.sketches_at(places)
            self._rows.vectors_at(places)

    def catch_up(
        self, session: Session, base: str, recipe: Recipe, goes_on: Callable[[], bool]
    ) -> None:
        """Write what the catalog has and the file has not, for as long as `goes_on` says so.

        Raises:
            StoreFull: the disk is too full for it, or refuses.
        """
        n_models = count_models(session, [Condition("m.base = ?", (base,))])
        known = set(self._rows.shapes.slots)
        slots = known | select_sketched_slots(session, base, recipe.id, self._last_key())
        shapes = Shapes(recipe.dim, block_dims(recipe), tuple(sorted(slots)))
        is_too_long = len(self._rows.keys) > 2 * n_models + AT_ONCE
        if is_too_long or shapes != self._rows.shapes:
            self._clear(shapes)
        keys = [key for key, _, _ in fetch_keys(session, base, recipe, self._last_key())]
        self._check_space(len(keys))
        at_once = max(AT_ONCE, BYTES_AT_ONCE // max(1, sum(shapes.row_bytes.values())))
        for start in range(0, len(keys), at_once):
            if not goes_on():
                return
            self._append(session, recipe, keys[start : start + at_once])

    def bring_into_memory(self) -> None:
        """Load the sketches into memory, where the system can: otherwise the first search waits
        for every page."""
        mapped = self._rows.mapped
        if mapped is not None and hasattr(mapped, "madvise"):
            with contextlib.suppress(OSError):
                mapped.madvise(MADV_POPULATE_READ)

    def _last_key(self) -> int:
        return int(self._rows.keys[-1]) if len(self._rows.keys) else -1

    def mend(self, session: Session, recipe: Recipe, keys: Int64[np.ndarray, " damaged"]) -> None:
        """Write rows again from the catalog, unless another process writes the file or the system
        refuses."""
        lock = self._lock or FileLock(self._beside(".lock"))
        try:
            with lock.acquire(timeout=0):
                rows = self._rows
                present, added = self._fetch(session, recipe, np.sort(keys))
                places = rows.places(present)
                if places is None:
                    return
                added |= self._sums(added, places, present)
                for i, place in enumerate(places.tolist()):
                    for ending, n_bytes in rows.shapes.row_bytes.items():
                        _write(self._beside(ending), place * n_bytes, _bytes(added[ending][i]))
        except (OSError, Timeout) as err:
            log.info("%s: damaged rows stay: %s", self._path, err)

    def _append(self, session: Session, recipe: Recipe, keys: list[int]) -> None:
        rows, shapes = self._rows, self._rows.shapes
        present, added = self._fetch(session, recipe, np.array(keys, dtype=np.int64))
        added |= self._sums(added, len(rows.keys) + np.arange(len(present)), present)
        every_key = np.concatenate([rows.keys, present])
        try:
            for ending, n_bytes in shapes.row_bytes.items():
                _write(self._beside(ending), len(rows.keys) * n_bytes, _bytes(added[ending]))
            new = every_key[len(rows.keys) :].astype(KEY)
            _write(self._beside(".keys"), len(rows.keys) * KEY.itemsize, new.tobytes())
        except OSError as err:
            raise StoreFull(f"{self._path}: {err.strerror}") from err
        self._rows = Rows.read(self._path, shapes, every_key)

    def _fetch(
        self, session: Session, recipe: Recipe, keys: Int64[np.ndarray, " keys"]
    ) -> tuple[Int64[np.ndarray, " present"], dict[str, np.ndarray]]:
        """Keys, of those that have a vector, and what their rows are, by the ending of the file."""
        present, vectors = fetch_vectors_of(session, recipe, keys)
        condition, values = "model IN (SELECT unnest(?::BIGINT[]))", [present.tolist()]
        if len(keys) > FEW_KEYS:
            condition, values = "model BETWEEN ? AND ?", [int(keys[0]), int(keys[-1])]
        table = select_sketch_rows(session, condition, recipe.id, values)
        slots = self._rows.shapes.slots
        matrix = stored_matrix(session, table, present.tolist(), recipe, slots)
        return present, {
            ".sketches": matrix.codes,
            ".weights": matrix.weights.astype("<f4", copy=False),
            ".vectors": vectors.astype("<f4", copy=False),
        }

    def _sums(
        self,
        rows: dict[str, np.ndarray],
        places: Int64[np.ndarray, " rows"],
        keys: Int64[np.ndarray, " rows"],
    ) -> dict[str, np.ndarray]:
        """The rows of `.sums` for rows of the other files."""
        identity = self._rows.identity
        sums = [checksums(identity + e.encode(), rows[e], places, keys) for e in CHECKED]
        return {".sums": np.stack(sums, axis=1)}

    def _beside(self, ending: str) -> Path:
        return self._path.with_suffix(ending)

    def _read_rows(self) -> Rows:
        """The complete rows of an earlier process."""
        try:
            return Rows.read(self._path, read_shapes(self._path), read_keys(self._path))
        except (OSError, ValueError, TypeError, KeyError):
            if self._lock is not None:
                self._beside(".keys").unlink(missing_ok=True)
            return Rows.read(self._path, NOTHING, np.zeros(0, dtype=np.int64))

    def _clear(self, shapes: Shapes) -> None:
        """Begin empty files with such rows; readers of the old files continue with those.

        Raises:
            StoreFull: the system refuses.
        """
        try:
            self._beside(".keys").unlink(missing_ok=True)
            for ending in shapes.rows:
                self._beside(ending).unlink(missing_ok=True)
                self._beside(ending).touch()
        except OSError as err:
            raise StoreFull(f"{self._path}: {err.strerror}") from err
        # syncs the folder: after a power loss no new keys are beside old rows
        write_atomically(self._beside(".slots"), shapes.to_json())
        self._rows = Rows.read(self._path, shapes, np.zeros(0, dtype=np.int64))

    def _check_space(self, n_models: int) -> None:
        needed = n_models * sum(self._rows.shapes.row_bytes.values())
        free = shutil.disk_usage(self._path.parent).free
        if n_models and needed + SPARE_BYTES > free:
            raise StoreFull(
                f"{self._path.parent}: the sketch file needs {needed / 2**30:.1f} GiB, "
                f"{free / 2**30:.1f} are free"
            )


def _bytes(rows: np.ndarray) -> memoryview:
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data


def _write(path: Path, at: int, data: bytes | memoryview) -> None:
    """Write data at a position of a file, and flush it to the disk."""
    with open_at(path, at) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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

    def bring_into_memory(self) -> None:
        """Load this process's files into memory, where the system can."""
        for file in list(self.files.values()):
            file.bring_into_memory()

    def close(self) -> None:
        with self.lock:
            for file in (*self.files.values(), *self.read.values()):
                if file is not None:
                    file.close()
            self.files.clear()
            self.read.clear()
