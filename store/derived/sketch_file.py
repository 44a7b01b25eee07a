"""A family's sketches and vectors in files, row by row, which a service reads instead of the
catalog.

128 candidates have 5 MB of sketches. DuckDB needs a tenth of a second to find them among a
hundred thousand models; in a file that is mapped into memory they are where they are. The files
can be made again. Rows are written and flushed before their keys: a row without a key was not
written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from ...arrays import Float32, Int64, UInt8
from ...errors import StoreFull
from ...records import Recipe, Slot
from ..files import write_atomically
from ..session import Session
from ..sketch_codes import code_bytes
from ..tables.filters import Condition
from ..tables.models import count_models
from ..tables.slots import select_sketch_rows, select_sketched_slots
from ..tables.vectors import fetch_keys, fetch_vectors_of
from .sketch_matrix import SketchMatrix, block_dims

log = logging.getLogger(__name__)

AT_ONCE = 256
"""Models whose sketches are written by one pass, at least."""

BYTES_AT_ONCE = 1 << 26
"""That one pass writes, if these are more models."""

KEY = np.dtype("<i8")

MADV_POPULATE_READ = 22
"""Of Linux's madvise(2); other systems refuse it without harm."""

SPARE_BYTES = 1 << 30
"""Left free on the disk."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a row of each file is.

    Attributes:
        dim: Numbers of a vector.
        blocks: Numbers of each block of a slot's sketch.
        slots: Of every row, in this order.
    """

    dim: int
    blocks: Mapping[str, int]
    slots: tuple[Slot, ...]

    @property
    def rows(self) -> dict[str, tuple[np.dtype[np.generic], tuple[int, ...]]]:
        """Type and shape of a row, by the ending of the file."""
        n_slots = len(self.slots)
        return {
            ".sketches": (np.dtype(np.uint8), (n_slots, code_bytes(self.blocks))),
            ".weights": (np.dtype("<f4"), (n_slots, len(self.blocks))),
            ".vectors": (np.dtype("<f4"), (self.dim,)),
        }

    @property
    def row_bytes(self) -> dict[str, int]:
        """Bytes of a row, by the ending of the file."""
        return {
            ending: dtype.itemsize * math.prod(shape)
            for ending, (dtype, shape) in self.rows.items()
        }

    def to_json(self) -> bytes:
        slots = [[slot.stack, slot.layer, slot.role] for slot in self.slots]
        document = {"dim": self.dim, "blocks": dict(self.blocks), "slots": slots}
        return json.dumps(document).encode()


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The content of the files. It is replaced, never changed, for the threads that read it.

    Attributes:
        codes, weights: As `SketchMatrix` has them, mapped.
        mapped: What holds the codes; None where there are none.
    """

    shapes: Shapes
    keys: Int64[np.ndarray, " models"]
    codes: UInt8[np.ndarray, "models slots bytes"]
    weights: Float32[np.ndarray, "models slots blocks"]
    vectors: Float32[np.ndarray, "models dim"]
    mapped: mmap.mmap | None
    _compared: dict[str, tuple[Int64[np.ndarray, " models"], bool]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, shapes: Shapes, keys: Int64[np.ndarray, " models"]) -> _Rows:
        """The rows with these keys, mapped from files that have them.

        Raises:
            OSError, ValueError: they do not.
        """
        arrays, maps = {}, {}
        for ending, (dtype, shape) in shapes.rows.items():
            maps[ending], arrays[ending] = _map(
                path.with_suffix(ending), dtype, (len(keys), *shape)
            )
        return cls(
            shapes,
            keys,
            arrays[".sketches"],
            arrays[".weights"],
            arrays[".vectors"],
            maps[".sketches"],
        )

    def begins_with(self, keys: Int64[np.ndarray, " models"]) -> bool:
        """Whether the first rows are those of these keys; known at once for the same array."""
        known = self._compared.get("last")
        if known is None or known[0] is not keys:
            known = keys, np.array_equal(self.keys[: len(keys)], keys)
            self._compared["last"] = known
        return known[1]

    def places(self, keys: Int64[np.ndarray, " keys"]) -> Int64[np.ndarray, " keys"] | None:
        """Where the models with these keys are; None unless all are here."""
        if not len(self.keys):
            return None
        places: Int64[np.ndarray, " keys"] = np.searchsorted(self.keys, keys)
        is_present = self.keys[np.minimum(places, len(self.keys) - 1)] == keys
        return places if is_present.all() else None


class SketchFile:
    """Rows of one family under one recipe, in order of their keys. Read by many threads at
    once, and written by one process at a time.

    `.sketches` has the codes, `.weights` what every block counts, `.vectors` the vectors, `.keys`
    the keys of the rows, `.slots` what a row is.
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
        return SketchMatrix(shapes.blocks, shapes.slots, rows.weights[places], rows.codes[places])

    def vectors(self, keys: Int64[np.ndarray, " keys"]) -> Float32[np.ndarray, "keys dim"] | None:
        """The vectors of the models with these keys; None unless all are here."""
        rows = self._rows
        places = rows.places(keys)
        return None if places is None else rows.vectors[places]

    def vectors_at(
        self, keys: Int64[np.ndarray, " models"], rows: Int64[np.ndarray, " rows"]
    ) -> Float32[np.ndarray, "rows dim"] | None:
        """The vectors of those models of a family with these keys that are at some rows of it; None
        unless all are here."""
        here = self._rows
        return here.vectors[rows] if here.begins_with(keys) else self.vectors(keys[rows])

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

    def _append(self, session: Session, recipe: Recipe, keys: list[int]) -> None:
        rows, shapes = self._rows, self._rows.shapes
        _, vectors = fetch_vectors_of(session, recipe, np.array(keys, dtype=np.int64))
        table = select_sketch_rows(session, "model BETWEEN ? AND ?", recipe.id, [keys[0], keys[-1]])
        matrix = SketchMatrix.of(table, keys, recipe, shapes.slots)
        added = {
            ".sketches": matrix.codes,
            ".weights": matrix.weights.astype("<f4", copy=False),
            ".vectors": vectors.astype("<f4", copy=False),
        }
        every_key = np.concatenate([rows.keys, np.array(keys, dtype=np.int64)])
        try:
            for ending, n_bytes in shapes.row_bytes.items():
                data = np.ascontiguousarray(added[ending]).reshape(-1).view(np.uint8)
                _write(self._beside(ending), len(rows.keys) * n_bytes, data.data)
            new = every_key[len(rows.keys) :].astype(KEY)
            _write(self._beside(".keys"), len(rows.keys) * KEY.itemsize, new.tobytes())
        except OSError as err:
            raise StoreFull(f"{self._path}: {err.strerror}") from err
        self._rows = _Rows.read(self._path, shapes, every_key)

    def _beside(self, ending: str) -> Path:
        return self._path.with_suffix(ending)

    def _read_rows(self) -> _Rows:
        """The complete rows of an earlier process."""
        try:
            return _Rows.read(self._path, read_shapes(self._path), read_keys(self._path))
        except (OSError, ValueError, TypeError, KeyError):
            if self._lock is not None:
                self._beside(".keys").unlink(missing_ok=True)
            return _Rows.read(self._path, NOTHING, np.zeros(0, dtype=np.int64))

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
        self._rows = _Rows.read(self._path, shapes, np.zeros(0, dtype=np.int64))

    def _check_space(self, n_models: int) -> None:
        needed = n_models * sum(self._rows.shapes.row_bytes.values())
        free = shutil.disk_usage(self._path.parent).free
        if n_models and needed + SPARE_BYTES > free:
            raise StoreFull(
                f"{self._path.parent}: the sketch file needs {needed / 2**30:.1f} GiB, "
                f"{free / 2**30:.1f} are free"
            )


NOTHING = Shapes(0, {}, ())
"""Of files that were not written yet."""


def read_shapes(path: Path) -> Shapes:
    """What the rows of a file of sketches are.

    Raises:
        OSError, ValueError, TypeError, KeyError: it cannot be read, or is of deltadex 0.1.
    """
    note = json.loads(path.with_suffix(".slots").read_text("utf-8"))
    blocks = {str(block): int(dim) for block, dim in note["blocks"].items()}
    return Shapes(int(note["dim"]), blocks, tuple(Slot(*slot) for slot in note["slots"]))


def read_keys(path: Path) -> Int64[np.ndarray, " models"]:
    """The keys of the rows of a file of sketches, as far as they are whole.

    Raises:
        OSError: they cannot be read.
    """
    data = path.with_suffix(".keys").read_bytes()
    whole = data[: len(data) // KEY.itemsize * KEY.itemsize]
    keys: Int64[np.ndarray, " models"] = np.frombuffer(whole, dtype=KEY).astype(np.int64)
    return keys


def _map(
    path: Path, dtype: np.dtype[np.generic], shape: tuple[int, ...]
) -> tuple[mmap.mmap | None, np.ndarray]:
    """The beginning of a file as an array, and what holds it; nothing is mapped of no bytes.

    Raises:
        OSError, ValueError: it is not there, or shorter.
    """
    n_bytes = dtype.itemsize * math.prod(shape)
    if not n_bytes:
        return None, np.zeros(shape, dtype)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ)
    return mapped, np.frombuffer(mapped, dtype).reshape(shape)


def _write(path: Path, at: int, data: bytes | memoryview) -> None:
    """Write data at a position of a file, and flush it to the disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b") as file:
        file.seek(at)
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
