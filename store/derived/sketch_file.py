"""A family's sketches and vectors in files, row by row, which a service reads instead of the
catalog.

128 candidates have 19 MB of sketches. DuckDB needs a tenth of a second to find them among a
hundred thousand models; in a file that is mapped into memory they are multiplied where they are.
The file is a FAISS index, and can be rebuilt. Rows are written and flushed before their keys: a row
without a key was not written.
"""

from __future__ import annotations

import ctypes
import json
import logging
import mmap
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import faiss
import numpy as np
from filelock import FileLock, Timeout

from ...arrays import Float32, Float64, Int64
from ...errors import StoreFull
from ...records import Recipe, Slot
from ..files import write_atomically
from ..session import Session
from ..tables.filters import Condition
from ..tables.models import count_models
from ..tables.slots import select_sketch_rows, select_sketch_widths, select_sketched_keys
from ..tables.vectors import fetch_vectors_of
from .sketch_matrix import SketchColumns, SketchMatrix, index_bytes, index_header

log = logging.getLogger(__name__)

AT_ONCE = 256
"""Models whose sketches are written by one pass."""

NOTE = np.dtype([("key", "<i8"), ("length", "<f8")])
"""The record of each row, in a file of its own."""

MADV_POPULATE_READ = 22
"""Of Linux's madvise(2); other systems refuse it without harm."""

SPARE_BYTES = 1 << 30
"""Left free on the disk."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The content of the files. It is replaced, never changed, for the threads that read it.

    Attributes:
        index: The sketches, mapped; None where there are none.
        dim: Numbers of a vector.
    """

    columns: SketchColumns
    dim: int
    keys: Int64[np.ndarray, " models"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    lengths: Float64[np.ndarray, " models"] = field(default_factory=lambda: np.zeros(0))
    index: faiss.IndexScalarQuantizer | None = None
    vectors: Float32[np.ndarray, "models dim"] = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def notes(self) -> np.ndarray:
        """What the file of keys holds."""
        notes = np.zeros(len(self.keys), dtype=NOTE)
        notes["key"], notes["length"] = self.keys, self.lengths
        return notes

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

    Beside the file itself: its rows' vectors, their keys, and which slots its columns are.
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
        if places is None or rows.index is None:
            return None
        return SketchMatrix(rows.columns, rows.index, rows.lengths[places], places)

    def vector(self, key: int) -> Float32[np.ndarray, " dim"] | None:
        """The vector of the model with that key; None if it is not here."""
        rows = self._rows
        places = rows.places(np.array([key], dtype=np.int64))
        return None if places is None else np.array(rows.vectors[places[0]])

    def catch_up(
        self, session: Session, base: str, recipe: Recipe, goes_on: Callable[[], bool]
    ) -> None:
        """Write what the catalog has and the file has not, for as long as `goes_on` says so.

        Raises:
            StoreFull: the disk is too full for it, or refuses.
        """
        n_models = count_models(session, [Condition("m.base = ?", (base,))])
        if len(self._rows.keys) > 2 * n_models + AT_ONCE:
            self._clear(self._rows.columns, recipe.dim)
        known = self._rows.columns.widths
        widths = select_sketch_widths(session, base, recipe.id, self._last_key())
        if widths.keys() - known.keys():
            self._clear(SketchColumns.of({**known, **widths}), recipe.dim)
        keys = select_sketched_keys(session, base, recipe.id, self._last_key())
        self._check_space(len(keys))
        for start in range(0, len(keys), AT_ONCE):
            if not goes_on():
                return
            self._append(session, recipe, keys[start : start + AT_ONCE])

    def bring_into_memory(self) -> None:
        """Load the sketches into memory, where the system can: otherwise the first search waits
        for every page."""
        index = self._rows.index
        madvise = getattr(ctypes.CDLL(None), "madvise", None) if os.name == "posix" else None
        if index is not None and madvise is not None:
            start = int(index.codes.data())
            before = start % mmap.PAGESIZE
            length = before + index.ntotal * index.code_size
            madvise(ctypes.c_void_p(start - before), ctypes.c_size_t(length), MADV_POPULATE_READ)

    def _last_key(self) -> int:
        return int(self._rows.keys[-1]) if len(self._rows.keys) else -1

    def _append(self, session: Session, recipe: Recipe, keys: list[int]) -> None:
        columns, n_rows = self._rows.columns, len(self._rows.keys)
        _, vectors = fetch_vectors_of(session, recipe, np.array(keys, dtype=np.int64))
        rows = select_sketch_rows(session, "model BETWEEN ? AND ?", recipe.id, [keys[0], keys[-1]])
        matrix = SketchMatrix.of(rows, keys, columns)
        added = np.zeros(len(keys), dtype=NOTE)
        added["key"], added["length"] = keys, matrix.lengths
        try:
            at = index_bytes(columns.width, n_rows)
            _write(self._path, at, b"".join(map(matrix.halves, range(len(keys)))))
            _write(self._beside(".vectors"), n_rows * recipe.dim * 4, vectors.tobytes())
            _write(self._path, 0, index_header(columns.width, n_rows + len(keys)))
            _write(self._beside(".keys"), n_rows * NOTE.itemsize, added.tobytes())
        except OSError as err:
            raise StoreFull(f"{self._path}: {err.strerror}") from err
        notes = np.concatenate([self._rows.notes, added])
        self._rows = self._mapped(columns, recipe.dim, notes)

    def _beside(self, ending: str) -> Path:
        return self._path.with_suffix(ending)

    def _read_rows(self) -> _Rows:
        """The complete rows of an earlier process."""
        try:
            return self._mapped(*read_columns(self._path), read_notes(self._path))
        except (OSError, ValueError, TypeError, KeyError, RuntimeError):
            if self._lock is not None:
                self._beside(".keys").unlink(missing_ok=True)
            return _Rows(SketchColumns(), 0)

    def _mapped(self, columns: SketchColumns, dim: int, notes: np.ndarray) -> _Rows:
        """The rows of these notes, in files that hold them.

        Raises:
            OSError, ValueError, RuntimeError: they do not.
        """
        if not len(notes):
            return _Rows(columns, dim)
        index = faiss.read_index(str(self._path), faiss.IO_FLAG_MMAP_IFC)
        if not isinstance(index, faiss.IndexScalarQuantizer):
            raise ValueError("the file is an index of another kind")
        if index.d != max(1, columns.width) or index.ntotal < len(notes):
            raise ValueError("the file has other rows than its keys")
        shape = len(notes), dim
        return _Rows(
            columns,
            dim,
            notes["key"].astype(np.int64),
            notes["length"].astype(np.float64),
            index,
            np.memmap(self._beside(".vectors"), dtype="<f4", mode="r", shape=shape),
        )

    def _clear(self, columns: SketchColumns, dim: int) -> None:
        """Begin empty files with these columns; readers of the old files continue with those."""
        slots = [[s.stack, s.layer, s.role, width] for s, width in columns.widths.items()]
        self._beside(".keys").unlink(missing_ok=True)
        for path in (self._path, self._beside(".vectors")):
            path.unlink(missing_ok=True)
            path.touch()
        write_atomically(self._beside(".slots"), json.dumps({"dim": dim, "slots": slots}).encode())
        self._rows = _Rows(columns, dim)

    def _check_space(self, n_models: int) -> None:
        needed = n_models * (2 * self._rows.columns.width + 4 * self._rows.dim)
        free = shutil.disk_usage(self._path.parent).free
        if n_models and needed + SPARE_BYTES > free:
            raise StoreFull(
                f"{self._path.parent}: the sketch file needs {needed / 2**30:.1f} GiB, "
                f"{free / 2**30:.1f} are free"
            )


def read_columns(path: Path) -> tuple[SketchColumns, int]:
    """Which slots the columns of a file of sketches are, and how many numbers a vector has.

    Raises:
        OSError, ValueError, TypeError, KeyError: it cannot be read.
    """
    note = json.loads(path.with_suffix(".slots").read_text("utf-8"))
    columns = SketchColumns.of({Slot(*slot): int(width) for *slot, width in note["slots"]})
    return columns, int(note["dim"])


def read_notes(path: Path) -> np.ndarray:
    """Keys and lengths of the rows of a file of sketches, as far as they are whole.

    Raises:
        OSError: they cannot be read.
    """
    data = path.with_suffix(".keys").read_bytes()
    return np.frombuffer(data[: len(data) // NOTE.itemsize * NOTE.itemsize], dtype=NOTE)


def _write(path: Path, at: int, data: bytes) -> None:
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
