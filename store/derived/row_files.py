"""Sketches and vectors of a family's models, and what normalisation knows of them: in rows of files
beside the catalog, which are read where they are asked for and can be made again.

Of 128 candidates, which have 5 MB of sketches, DuckDB needs a tenth of a second to find them among
a hundred thousand models. Each column has a file, a row a model. The file of keys has a line of
JSON that says what decides the rows but the models, then an entry for each row: the model's key, a
checksum of what the row was made of, and of each column a checksum (XXH3, 64 bits) of the row's
bytes and of what the row is. Checksums are compared whenever a row is read: what was damaged,
exchanged or half written is made again.

Files are not mapped: whatever cuts a mapped one short ends every process that reads it (SIGBUS).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from ...arrays import Bool, Float, Float32, Float64, Int64, UInt8, UInt64
from ...errors import StoreDamaged, StoreFull
from ...records import Recipe, Slot
from ...results import count, size
from .. import sketch_codes
from ..files import file_size, open_at, refused_as, write_atomically
from ..model_rows import block_dims
from ..session import Session, not_finite
from ..tables import outcomes
from ..tables.filters import Condition
from ..tables.models import count_models

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from filelock import FileLock  # for annotations alone

log = logging.getLogger(__name__)

FORMAT = 4
"""Of the files; files of another are made again."""

AT_ONCE = 256
"""Models whose sketches are written by one pass, at least."""

BYTES_AT_ONCE = 1 << 26
"""That one pass writes, if these are more models."""

FEW_COMPARED = 4
"""Models that are compared bit by bit; with more, codes become numbers and are multiplied."""

ROWS_AT_ONCE = 512
"""Models whose codes become numbers at a time: one block takes 2 MB."""

SPARE_BYTES = 1 << 30
"""Left free on the disk."""

CLAIMED_WITHIN_S = 0.01
"""How long another process that adds traits is waited for."""

MOST_TRAIT_BYTES = 4 << 30
"""Of the rows of traits; later ones are not kept."""

LARGE_FILE = 2 << 30
"""Bytes of a file that may not stay in memory."""

_NAME = struct.Struct("<qqQ")

FLOAT = np.dtype("<f4")
"""Of weights, squares (integers below 2²⁴, so exact) and vectors."""

Columns = Mapping[str, np.dtype[Any]]
"""What a row is, by the ending of the column's file."""


class DamagedRows(Exception):
    """Rows of a file differ from their checksums."""


class Column:
    """The rows of a file. What another program cut off, or the system refuses, is read as zeros,
    which have no checksum of a row that was something else."""

    def __init__(self, path: Path, dtype: np.dtype[Any], n_rows: int) -> None:
        """Those that are there now; of no bytes nothing is opened."""
        self.dtype, self._file = dtype, -1
        if n_rows * dtype.itemsize:
            self._file = os.open(path, os.O_RDONLY)
            # not at Python's end, where other threads may read
            weakref.finalize(self, os.close, self._file).atexit = False

    def __getitem__(self, places: Int64[np.ndarray, " places"]) -> np.ndarray:
        rows = np.empty(len(places), self.dtype)
        content, n_read = _bytes(rows, self.dtype), 0
        with contextlib.suppress(OSError):
            for row, place in zip(content, places.tolist(), strict=True):
                if os.preadv(self._file, [row], place * row.nbytes) < row.nbytes:
                    row[...] = 0
                n_read += 1
        content[n_read:] = 0
        return rows

    def announce(self, places: Int64[np.ndarray, " places"]) -> None:
        """Have the system read rows side by side, where it can: one after the other, 256 take
        seconds from a disk."""
        n_bytes = self.dtype.itemsize
        with contextlib.suppress(OSError, AttributeError):
            for place in places.tolist():
                os.posix_fadvise(self._file, place * n_bytes, n_bytes, os.POSIX_FADV_WILLNEED)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The content of the files at one moment. It is replaced, never changed, for the threads that
    read it.

    Attributes:
        path: The file of keys; the columns are beside it.
        header: What decides the rows: a line of JSON.
        entries: Of each row the key, `source` and `sums`, checksums of what it was made of and of
            the columns.
        arrays: The columns.
        order: Rows by rising key, later ones of one key behind; `rising` are their keys.
        inode: Of the file of keys.
    """

    path: Path
    header: bytes
    columns: Columns
    entries: np.ndarray
    arrays: Mapping[str, Column]
    order: Int64[np.ndarray, " models"]
    rising: Int64[np.ndarray, " models"]
    inode: int

    @classmethod
    def read(cls, path: Path, header: bytes, columns: Columns, before: Rows | None = None) -> Rows:
        """The rows that are whole in every file; none where the header is another. Those of before
        where nothing was added."""
        entry = np.dtype([("key", "<i8"), ("source", "<u8"), ("sums", "<u8", (len(columns),))])
        entries, inode = np.zeros(0, entry), -1
        with contextlib.suppress(OSError), path.open("rb") as file:
            status = os.fstat(file.fileno())
            if file.readline() == header + b"\n":
                inode, n_there = status.st_ino, (status.st_size - file.tell()) // entry.itemsize
                if before is not None and (before.inode, len(before.entries)) == (inode, n_there):
                    return before
                entries = np.frombuffer(file.read(n_there * entry.itemsize), entry)
        n_rows = len(entries)
        for ending, dtype in columns.items():
            if dtype.itemsize:
                n_rows = min(n_rows, file_size(path.with_suffix(ending)) // dtype.itemsize)
        entries = entries[:n_rows]
        arrays = {e: Column(path.with_suffix(e), dtype, n_rows) for e, dtype in columns.items()}
        order = np.argsort(entries["key"], kind="stable")
        return cls(path, header, columns, entries, arrays, order, entries["key"][order], inode)

    @classmethod
    def empty(cls, path: Path, header: bytes, columns: Columns) -> Rows:
        """New files without rows; readers of the old files continue with those.

        Raises:
            OSError, StoreFull: the system refuses.
        """
        path.unlink(missing_ok=True)
        for ending in columns:
            path.with_suffix(ending).unlink(missing_ok=True)
            path.with_suffix(ending).touch()
        write_atomically(path, header + b"\n")
        return cls.read(path, header, columns)

    @property
    def keys(self) -> Int64[np.ndarray, " models"]:
        """Of the models, row by row."""
        return np.asarray(self.entries["key"])

    @property
    def last_key(self) -> int:
        return int(self.keys[-1]) if len(self.keys) else -1

    def places(self, keys: Int64[np.ndarray, " keys"]) -> Int64[np.ndarray, " keys"]:
        """The last row of each of some models; −1 where there is none."""
        last = np.searchsorted(self.rising, keys, side="right") - 1
        is_here = last >= 0
        is_here[is_here] = self.rising[last[is_here]] == keys[is_here]
        places: Int64[np.ndarray, " keys"] = np.where(is_here, 0, -1)
        places[is_here] = self.order[last[is_here]]
        return places

    def taken(self, keys: Int64[np.ndarray, " keys"], ending: str) -> np.ndarray | None:
        """The rows of a column of some models; None unless all are here, and of none. Raises
        `DamagedRows` if some are not as they were written."""
        places, column = self.places(keys), self.arrays[ending]
        if not len(keys) or (places < 0).any():
            return None
        if len(self.keys) * column.dtype.itemsize >= LARGE_FILE:
            column.announce(places)
        rows = column[places]
        if not self.is_right(places, ending, rows).all():
            raise DamagedRows
        return rows

    def is_right(
        self, places: Int64[np.ndarray, " places"], ending: str, rows: np.ndarray
    ) -> Bool[np.ndarray, " places"]:
        """Whether rows of a column that were read have their checksums."""
        entries = self.entries[places]
        sums = entries["sums"][:, list(self.columns).index(ending)]
        return np.asarray(sums == self.checksums(ending, rows, places, entries))

    def checksums(
        self, ending: str, rows: np.ndarray, places: Int64[np.ndarray, " rows"], entries: np.ndarray
    ) -> UInt64[np.ndarray, " rows"]:
        """The checksum of each row of a column, of this family, recipe and slots."""
        identity = xxhash.xxh3_64_digest(f"{self.path.stem}\n".encode() + self.header)
        names = zip(
            places.tolist(), entries["key"].tolist(), entries["source"].tolist(), strict=True
        )
        seeds = (
            xxhash.xxh3_64_intdigest(identity + ending.encode() + _NAME.pack(*name))
            for name in names
        )
        content = zip(_bytes(rows, self.columns[ending]), seeds, strict=True)
        sums = (xxhash.xxh3_64_intdigest(row.data, seed) for row, seed in content)
        return np.fromiter(sums, "<u8", count=len(rows))

    def append(
        self,
        keys: Int64[np.ndarray, " rows"],
        values: Mapping[str, np.ndarray],
        sources: UInt64[np.ndarray, " rows"] | int = 0,
    ) -> Rows:
        """Write rows behind these, the columns before their entries; raises `OSError` where the
        system refuses. Files are read by others, and never become shorter, but for the entries
        behind the last row."""
        places = len(self.keys) + np.arange(len(keys))
        entries = np.zeros(len(keys), self.entries.dtype)
        entries["key"], entries["source"] = keys, sources
        for number, (ending, dtype) in enumerate(self.columns.items()):
            rows = np.ascontiguousarray(values[ending], dtype.base)
            entries["sums"][:, number] = self.checksums(ending, rows, places, entries)
            with open_at(self.path.with_suffix(ending), len(self.keys) * dtype.itemsize) as file:
                file.write(rows.tobytes())
        with open_at(self.path, len(self.header) + 1 + self.entries.nbytes) as file:
            file.write(entries.tobytes())
            file.truncate()
        return Rows.read(self.path, self.header, self.columns, self)


def _bytes(rows: np.ndarray, dtype: np.dtype[Any]) -> UInt8[np.ndarray, "rows bytes"]:
    """The bytes of rows of that type; where rows are side by side, these bytes and no copy."""
    return np.ndarray((len(rows), dtype.itemsize), np.uint8, np.ascontiguousarray(rows))


# sketches and vectors


class SketchMatrix:
    """The sketches of some models, which may lack slots.

    Attributes:
        dims: Numbers of each block of a slot.
        slots: What the second axis is.
        weights: What each block of a slot counts, 0…1; 0 where a model lacks it.
        codes: As `sketch_codes` defines them.
        squares: Of the codes, as `squared_lengths` gives them, where they are known.
    """

    def __init__(
        self,
        dims: Mapping[str, int],
        slots: Sequence[Slot],
        weights: Float32[np.ndarray, "models slots blocks"],
        codes: UInt8[np.ndarray, "models slots bytes"],
        squares: Float[np.ndarray, "models slots blocks"] | None = None,
    ) -> None:
        self.dims, self.slots = dict(dims), tuple(slots)
        self.weights, self.codes, self._known = weights, codes, squares

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[Slot, bytes]], recipe: Recipe) -> SketchMatrix:
        """Sketches of some models, a row each, of the slots that they have."""
        slots = sorted({slot for row in rows for slot in row})
        matrix = cls.empty(block_dims(recipe), slots, len(rows))
        column = {slot: i for i, slot in enumerate(slots)}
        for place, row in enumerate(rows):
            columns = np.array([column[slot] for slot in row], np.int64)
            matrix.put(np.full(len(row), place), columns, list(row.values()))
        return matrix

    @classmethod
    def empty(cls, dims: Mapping[str, int], slots: Sequence[Slot], n_models: int) -> SketchMatrix:
        """Of models that have nothing yet."""
        weights = np.zeros((n_models, len(slots), len(dims)), dtype=np.float32)
        codes = np.zeros((n_models, len(slots), sketch_codes.code_bytes(dims)), dtype=np.uint8)
        return cls(dims, slots, weights, codes)

    def put(
        self,
        rows: Int64[np.ndarray, " sketches"],
        columns: Int64[np.ndarray, " sketches"],
        sketches: Sequence[bytes],
    ) -> None:
        """Write sketches to their models and slots; ValueError where one is of another size."""
        size = sketch_codes.sketch_bytes(self.dims)
        for sketch in sketches:
            if len(sketch) != size:
                raise ValueError(f"a sketch of {len(sketch)} bytes, not {size}")
        stored = np.frombuffer(b"".join(sketches), sketch_codes.row_type(self.dims, ()))
        self.weights[rows, columns], self.codes[rows, columns] = stored["weights"], stored["codes"]

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, rows: Int64[np.ndarray, " rows"]) -> SketchMatrix:
        """Some of the rows, in that order."""
        squares = None if self._known is None else self._known[rows]
        return SketchMatrix(self.dims, self.slots, self.weights[rows], self.codes[rows], squares)

    def cut(self, dims: Mapping[str, int]) -> SketchMatrix:
        """The same models by the first so many numbers of each block, a multiple of 8 each: of a
        random sketch these are a shorter one."""
        if dims == self.dims:
            return self
        parts, start = [], 0
        for block, dim in self.dims.items():
            for plane in (start, start + dim // 8):
                parts.append(self.codes[:, :, plane : plane + dims[block] // 8])
            start += dim // 4
        return SketchMatrix(dims, self.slots, self.weights, np.concatenate(parts, axis=2))

    @property
    def has_sketches(self) -> Bool[np.ndarray, " models"]:
        """Whether a model has a sketch of any slot."""
        return np.asarray(self.weights.any(axis=(1, 2)))

    def cosines(self, other: SketchMatrix) -> Float64[np.ndarray, "blocks models others"]:
        """The cosine of every pair of models over all slots, block by block.

        The mean over slots of each slot's cosine, by the slots' weights; a slot that one of two
        lacks counts as 0. Of blocks of two lengths the shorter counts. Exact for the codes: equal
        sketches have equal cosines.
        Peak: the cosines, and one block of `ROWS_AT_ONCE` models as numbers.
        """
        cosines = np.zeros((len(self.dims), len(self), len(other)))
        if self.dims == other.dims and len(other) <= FEW_COMPARED:
            for row in range(len(other)):
                cosines[:, :, row] = self._cosines_with(other, row)
        elif self.dims == other.dims and len(self) <= FEW_COMPARED:
            for row in range(len(self)):
                cosines[:, row] = other._cosines_with(self, row)
        else:
            for _, block, shares in self.shares(other):
                cosines[block] += shares
        return cosines

    def _cosines_with(self, other: SketchMatrix, row: int) -> Float64[np.ndarray, "blocks models"]:
        """The same with one model of others whose blocks are as long, bit by bit."""
        place = {slot: column for column, slot in enumerate(other.slots)}
        mine = [column for column, slot in enumerate(self.slots) if slot in place]
        theirs = [place[self.slots[column]] for column in mine]
        codes = self.codes if len(mine) == len(self.slots) else self.codes[:, mine]
        scales = self._scales[:, mine] * other._scales[row, theirs]
        # the slots in turn, as `shares` adds them
        products = scales * sketch_codes.bit_products(codes, other.codes[row, theirs], self.dims)
        return np.asarray(products.sum(axis=1).T)

    def expect(self, others: int) -> None:
        """Be quick where so many are to be compared with each of these models, in parts."""
        sketch_codes.load_multiplier(4 * self.codes.size * others)  # numbers of a byte

    def shares(
        self, other: SketchMatrix
    ) -> Iterator[tuple[Slot, int, Float64[np.ndarray, "models others"]]]:
        """What each slot and block adds to the cosines, for the slots that both have."""
        if self.dims != other.dims:
            dims = {block: min(dim, other.dims[block]) for block, dim in self.dims.items()}
            yield from self.cut(dims).shares(other.cut(dims))
            return
        columns = {slot: column for column, slot in enumerate(other.slots)}
        own, others = self._scales, other._scales
        self.expect(len(other))
        multiply = sketch_codes.inner_products()
        for column, slot in enumerate(self.slots):
            if slot not in columns:
                continue
            left = self.codes[:, column]
            right = left if other is self else other.codes[:, columns[slot]]
            start = 0
            for block, dim in enumerate(self.dims.values()):
                products = _products(left, right, start, dim, multiply)
                products *= np.multiply.outer(
                    own[:, column, block], others[:, columns[slot], block]
                )
                yield slot, block, products
                start += dim // 4

    @property
    def squares(self) -> Float[np.ndarray, "models slots blocks"]:
        """The sum of squares of each block's codes."""
        if self._known is not None:
            return self._known
        return sketch_codes.squared_lengths(self.codes, self.dims)

    @cached_property
    def _scales(self) -> Float64[np.ndarray, "models slots blocks"]:
        """What a slot's codes are multiplied by, so that inner products add up to cosines."""
        weights = self.weights.astype(np.float64)
        lengths = np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
        roots = np.sqrt(self.squares, dtype=np.float64)
        return np.asarray(weights / np.where(lengths > 0, lengths, 1.0) / roots)


def _products(
    left: UInt8[np.ndarray, "models bytes"],
    right: UInt8[np.ndarray, "others bytes"],
    start: int,
    dim: int,
    multiply: sketch_codes.Products,
) -> Float64[np.ndarray, "models others"]:
    """Inner products of one block's numbers: integers."""
    products = np.empty((len(left), len(right)))
    numbers = sketch_codes.decode(right, start, dim)
    for row in range(0, len(left), ROWS_AT_ONCE):
        rows = slice(row, row + ROWS_AT_ONCE)
        if left is right:
            products[rows, row:] = multiply(numbers[rows], numbers[row:])
            products[row:, rows] = products[rows, row:].T
        else:
            products[rows] = multiply(sketch_codes.decode(left[rows], start, dim), numbers)
    return products


def fetch_matrix(
    session: Session, keys: Sequence[int], recipe: Recipe, slots: Sequence[Slot] | None = None
) -> SketchMatrix:
    """The sketches of the models with these keys, each but once, in their order.

    Raises:
        StoreDamaged: a weight is not finite, or a sketch is of another size.
    """
    condition, values = outcomes.among(keys)
    rows = session.execute(
        "SELECT model, stack, layer, role, sketch FROM slots "
        f"WHERE recipe = ? AND sketch IS NOT NULL AND model {condition}",
        [recipe.id, *values],
    )
    place = {key: row for row, key in enumerate(keys)}
    if slots is None:
        slots = sorted(Slot(*slot) for slot in {row[1:4] for row in rows})
    column = {(slot.stack, slot.layer, slot.role): i for i, slot in enumerate(slots)}
    matrix = SketchMatrix.empty(block_dims(recipe), slots, len(keys))
    places = np.array([(place[row[0]], column[row[1:4]]) for row in rows], np.int64).reshape(-1, 2)
    try:
        matrix.put(places[:, 0], places[:, 1], [row[4] for row in rows])
    except ValueError as err:
        raise StoreDamaged(f"{session.path}: damaged: {err}; index its family again") from err
    is_finite = np.isfinite(matrix.weights).all(axis=(1, 2))
    if not is_finite.all():
        n_models = int((~is_finite).sum())
        raise StoreDamaged(not_finite(session.path, f"sketches of {count(n_models, 'model')}"))
    return matrix


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a row of sketches is: numbers of a vector, and of each block of a slot's sketch; the
    slots of every row, in order."""

    dim: int
    blocks: Mapping[str, int]
    slots: tuple[Slot, ...]

    @property
    def columns(self) -> Columns:
        """What every block counts, its squares and codes, as `SketchMatrix` has them; and
        vectors."""
        sketch = sketch_codes.row_type(
            self.blocks, (len(self.slots),), weights=FLOAT, squares=FLOAT
        )
        return {".sketches": sketch, ".vectors": np.dtype((FLOAT, (self.dim,)))}

    def to_json(self) -> bytes:
        slots = [[slot.stack, slot.layer, slot.role] for slot in self.slots]
        document = {"format": FORMAT, "dim": self.dim, "blocks": dict(self.blocks), "slots": slots}
        return json.dumps(document).encode()

    @classmethod
    def read(cls, path: Path) -> Shapes:
        """What the rows of the file of keys at a path are; `NOTHING` where that cannot be read, or
        is of another format. A line that was damaged fits no row's checksum."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError), path.open("rb") as file:
            note = json.loads(file.readline())
            blocks = {str(block): int(dim) for block, dim in note["blocks"].items()}
            slots = tuple(Slot(*slot) for slot in note["slots"])
            if note["format"] == FORMAT:
                return cls(int(note["dim"]), blocks, slots)
        return NOTHING


NOTHING = Shapes(0, {}, ())
"""Of files that were not written yet."""


class SketchFile:
    """Sketches and vectors of one family under one recipe, in order of their keys. Read by many
    threads at once, and written by one process at a time. What reads rows raises `DamagedRows`."""

    def __init__(self, path: Path) -> None:
        """The complete rows that an earlier process left, or that another one writes."""
        self._path, self._content = path, _content(path)
        self._writing = threading.Lock()
        self._lock: FileLock | None = None

    def claim(self) -> bool:
        """Have this process write it from now on; False where another does, or the folder refuses
        it."""
        from filelock import FileLock

        try:
            if self._lock is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                lock = FileLock(self._path.with_suffix(".lock"))
                lock.acquire(timeout=0)
                self._lock, self._content = lock, _content(self._path)
        except OSError as err:  # also of a lock that another has
            log.info("the sketches are read from the catalog: %s", err)
        return self._lock is not None

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def matrix(self, keys: Int64[np.ndarray, " keys"]) -> SketchMatrix | None:
        """The sketches of the models with these keys; None unless all are here."""
        shapes, rows = self._content
        taken = rows.taken(keys, ".sketches")
        if taken is None:
            return None
        parts = (taken[name] for name in ("weights", "codes", "squares"))
        return SketchMatrix(shapes.blocks, shapes.slots, *parts)

    def vectors(self, keys: Int64[np.ndarray, " keys"]) -> Float32[np.ndarray, "keys dim"] | None:
        """The vectors of the models with these keys; None unless all are here."""
        return self._content[1].taken(keys, ".vectors")

    def catch_up(
        self, session: Session, base: str, recipe: Recipe, goes_on: Callable[[float], bool]
    ) -> None:
        """Write what the catalog has and the file has not, for as long as `goes_on`, told the
        share that is written, says so; nothing where another process writes it. Raises `StoreFull`
        if the disk is too full, or refuses."""
        with self._writing:
            if self.claim():
                self._write(session, base, recipe, goes_on)

    def _write(
        self, session: Session, base: str, recipe: Recipe, goes_on: Callable[[float], bool]
    ) -> None:
        before, rows = self._content
        n_models = count_models(session, [Condition("m.base = ?", (base,))])
        new_slots = outcomes.select_sketched_slots(session, base, recipe.id, rows.last_key)
        slots = tuple(sorted({*before.slots, *new_slots}))
        shapes = Shapes(recipe.dim, block_dims(recipe), slots)
        n_bytes = sum(dtype.itemsize for dtype in shapes.columns.values())
        with refused_as(StoreFull, self._path.with_suffix(".sketches")):
            is_well = rows.inode >= 0 and shapes == before
            if len(rows.keys) > 2 * n_models + AT_ONCE or not is_well:
                rows = Rows.empty(self._path, shapes.to_json(), shapes.columns)
                self._content = shapes, rows
            keys, *_ = outcomes.fetch_keys(session, base, recipe, rows.last_key)
            self._check_space(len(keys) * n_bytes)
            at_once = max(AT_ONCE, BYTES_AT_ONCE // max(1, n_bytes))
            for start in range(0, len(keys), at_once):
                if not goes_on(start / len(keys)):
                    return
                some = keys[start : start + at_once]
                rows = rows.append(*_fetch(session, recipe, some, shapes))
                self._content = shapes, rows

    def bring_into_memory(self) -> None:
        """Load the sketches into memory, where the system can: otherwise the first search waits
        for every page."""
        rows = self._content[1]
        if sketches := rows.arrays.get(".sketches"):
            sketches.announce(np.arange(len(rows.keys)))

    def discard(self) -> None:
        """Remove the file: a later writer makes it again."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._content = NOTHING, Rows.read(self._path, b"", NOTHING.columns)

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self._path.parent).free
        if needed and needed + SPARE_BYTES > free:
            room = f"{size(needed)} and {size(SPARE_BYTES)} to spare, {size(free)} are free"
            raise StoreFull(f"{self._path.parent}: the sketch file needs {room}")


def _content(path: Path) -> tuple[Shapes, Rows]:
    """What the files at a path hold; no rows where they are not there, or refused."""
    shapes = Shapes.read(path)
    with contextlib.suppress(OSError, ValueError):
        return shapes, Rows.read(path, shapes.to_json(), shapes.columns)
    return NOTHING, Rows.read(path, b"", NOTHING.columns)


def _fetch(
    session: Session, recipe: Recipe, keys: Int64[np.ndarray, " keys"], shapes: Shapes
) -> tuple[Int64[np.ndarray, " present"], dict[str, np.ndarray]]:
    """Keys, of those that have a vector, and their rows by column."""
    present, vectors = outcomes.fetch_vectors_of(session, recipe, keys)
    matrix = fetch_matrix(session, present.tolist(), recipe, shapes.slots)
    sketches = np.empty(len(present), shapes.columns[".sketches"])
    for name in ("weights", "codes", "squares"):
        sketches[name] = getattr(matrix, name)
    return present, {".sketches": sketches, ".vectors": vectors}


class SketchFiles:
    """The files of one catalog that are open, by path."""

    def __init__(self) -> None:
        self.files: dict[Path, SketchFile] = {}

    def at(self, path: Path) -> SketchFile:
        """The file of keys at a path, with what is beside it; it may have no rows."""
        return self.files.get(path) or self.files.setdefault(path, SketchFile(path))

    def bring_into_memory(self) -> None:
        """Load the files into memory, where the system can."""
        for file in list(self.files.values()):
            file.bring_into_memory()

    def close(self) -> None:
        for file in self.files.values():
            file.close()


# what normalisation knows


class TraitFile:
    """What normalisation knows of one family's models under one recipe and one cohort: rows of
    numbers, which take a thousand times as long to compute as to read, so that every process
    appends those it computed. Threads and processes share it."""

    def __init__(self, path: Path, depends_on: bytes, n_numbers: int) -> None:
        """Open the files, if there are any; `depends_on` is a digest of everything that decides the
        rows but the models themselves."""
        from filelock import FileLock

        header = {"format": FORMAT, "cohort": hashlib.sha256(depends_on).hexdigest()}
        self._header = json.dumps({**header, "numbers": n_numbers}).encode()
        self._path, self._lock = path.with_suffix(".traitkeys"), threading.RLock()
        self._claim = FileLock(path.with_suffix(".traitlock"))
        self._row: np.dtype[Any] = np.dtype(("<f8", (n_numbers,)))
        self._columns: Columns = {".traits": self._row}
        self._rows: Rows | None = None

    def read(
        self, keys: Int64[np.ndarray, " keys"], checksums: UInt64[np.ndarray, " keys"] | None = None
    ) -> tuple[Bool[np.ndarray, " keys"], Float64[np.ndarray, "found numbers"]]:
        """Which of some models, with sketches of these checksums, have a row, and these rows; None
        where these rows were found before."""
        rows = self._rows or self._refreshed()
        if ((places := rows.places(keys)) < 0).any():
            rows = self._refreshed()
            places = rows.places(keys)
        found = places >= 0
        if checksums is not None:
            found[found] = rows.entries["source"][places[found]] == checksums[found]
        numbers: Float64[np.ndarray, "found numbers"] = rows.arrays[".traits"][places[found]]
        is_right = rows.is_right(places[found], ".traits", numbers)
        found[found] = is_right
        return found, numbers[is_right]

    def lacking(self, keys: Int64[np.ndarray, " keys"]) -> Int64[np.ndarray, " lacking"]:
        """The places of those of some models that have no row, right or wrong; none where the file
        has no room for them."""
        rows = self._refreshed()
        has_room = len(keys) * self._row.itemsize <= MOST_TRAIT_BYTES
        return np.flatnonzero(rows.places(keys) < 0) if has_room else np.zeros(0, np.int64)

    def append(
        self,
        keys: Int64[np.ndarray, " keys"],
        checksums: UInt64[np.ndarray, " keys"],
        rows: Float64[np.ndarray, "keys numbers"],
    ) -> None:
        """Add rows, unless another process goes on adding some or the system refuses."""
        try:
            with self._lock, self._claim.acquire(CLAIMED_WITHIN_S, poll_interval=0.001):
                before = self._refreshed()
                if before.inode < 0:
                    before = Rows.empty(self._path, self._header, self._columns)
                if (len(before.keys) + len(rows)) * self._row.itemsize <= MOST_TRAIT_BYTES:
                    self._rows = before.append(keys, {".traits": rows}, checksums)
        except (OSError, StoreFull) as err:
            log.info("traits are not kept in a file: %s", err)

    def _refreshed(self) -> Rows:
        """The rows, with those that were added since."""
        with self._lock:
            self._rows = Rows.read(self._path, self._header, self._columns, self._rows)
            return self._rows
