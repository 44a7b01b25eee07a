"""Rows of a family's files of sketches, mapped into memory, and their checksums (XXH3, 64 bits).

A checksum is of a row's bytes and of what the row is: the file, its format, the slots, the row's
number, and the model's key. Rows and files that were exchanged differ from their checksums.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from ...arrays import Float32, Int64, UInt8, UInt64
from ...records import Slot
from ..sketch_codes import code_bytes

KEY = np.dtype("<i8")
CHECKSUM = np.dtype("<u8")
_NAME = struct.Struct("<qq")

FORMAT = 2
"""Of the files; files of another are made again."""

CHECKED = (".sketches", ".weights", ".vectors")
"""Files whose rows have checksums, in the order of a row of `.sums`."""


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
            ".sums": (CHECKSUM, (len(CHECKED),)),
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
        document = {"format": FORMAT, "dim": self.dim, "blocks": dict(self.blocks), "slots": slots}
        checksum = xxhash.xxh3_64_hexdigest(json.dumps(document).encode())
        return json.dumps({**document, "checksum": checksum}).encode()


class DamagedRows(Exception):
    """Rows of a file differ from their checksums.

    Attributes:
        keys: Of their models.
    """

    def __init__(self, keys: Int64[np.ndarray, " damaged"]) -> None:
        super().__init__(f"damaged rows of models {keys.tolist()}")
        self.keys = keys


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The content of the files. It is replaced, never changed, for the threads that read it.

    Attributes:
        identity: Of the files: `file_identity`.
        codes, weights: As `SketchMatrix` has them, mapped.
        sums: Checksums of the rows of each file of `CHECKED`.
        mapped: What holds the codes; None where there are none.
    """

    identity: bytes
    shapes: Shapes
    keys: Int64[np.ndarray, " models"]
    codes: UInt8[np.ndarray, "models slots bytes"]
    weights: Float32[np.ndarray, "models slots blocks"]
    vectors: Float32[np.ndarray, "models dim"]
    sums: UInt64[np.ndarray, "models files"]
    mapped: mmap.mmap | None
    _compared: dict[str, tuple[Int64[np.ndarray, " models"], bool]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, shapes: Shapes, keys: Int64[np.ndarray, " models"]) -> Rows:
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
            file_identity(path, shapes),
            shapes,
            keys,
            arrays[".sketches"],
            arrays[".weights"],
            arrays[".vectors"],
            arrays[".sums"],
            maps[".sketches"],
        )

    def sketches_at(
        self, places: Int64[np.ndarray, " places"]
    ) -> tuple[Float32[np.ndarray, "places slots blocks"], UInt8[np.ndarray, "places slots bytes"]]:
        """Weights and codes of some rows.

        Raises:
            DamagedRows: some are not as they were written.
        """
        codes, weights = self.codes[places], self.weights[places]
        self._check(places, {".sketches": codes, ".weights": weights})
        return weights, codes

    def vectors_at(self, places: Int64[np.ndarray, " places"]) -> Float32[np.ndarray, "places dim"]:
        """The vectors of some rows.

        Raises:
            DamagedRows: some are not as they were written.
        """
        vectors: Float32[np.ndarray, "places dim"] = self.vectors[places]
        self._check(places, {".vectors": vectors})
        return vectors

    def _check(self, places: Int64[np.ndarray, " places"], read: Mapping[str, np.ndarray]) -> None:
        is_damaged, keys = np.zeros(len(places), dtype=np.bool_), self.keys[places]
        for ending, rows in read.items():
            sums = checksums(self.identity + ending.encode(), rows, places, keys)
            is_damaged |= sums != self.sums[places, CHECKED.index(ending)]
        if is_damaged.any():
            raise DamagedRows(keys[is_damaged])

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


NOTHING = Shapes(0, {}, ())
"""Of files that were not written yet."""


def read_shapes(path: Path) -> Shapes:
    """What the rows of a file of sketches are.

    Raises:
        OSError, ValueError, TypeError, KeyError: it cannot be read, is damaged, or of another
            format.
    """
    note = json.loads(path.with_suffix(".slots").read_text("utf-8"))
    blocks = {str(block): int(dim) for block, dim in note["blocks"].items()}
    shapes = Shapes(int(note["dim"]), blocks, tuple(Slot(*slot) for slot in note["slots"]))
    if note != json.loads(shapes.to_json()):
        raise ValueError("damaged, or of another format")
    return shapes


def read_keys(path: Path) -> Int64[np.ndarray, " models"]:
    """The keys of the rows of a file of sketches, as far as they are whole.

    Raises:
        OSError: they cannot be read.
    """
    data = path.with_suffix(".keys").read_bytes()
    whole = data[: len(data) // KEY.itemsize * KEY.itemsize]
    keys: Int64[np.ndarray, " models"] = np.frombuffer(whole, dtype=KEY).astype(np.int64)
    return keys


def file_identity(path: Path, shapes: Shapes) -> bytes:
    """What tells files from those of other families, recipes and slots, and of other formats."""
    return xxhash.xxh3_64_digest(f"{path.stem}\n".encode() + shapes.to_json())


def checksums(
    of_file: bytes,
    rows: np.ndarray,
    places: Int64[np.ndarray, " rows"],
    keys: Int64[np.ndarray, " rows"],
) -> UInt64[np.ndarray, " rows"]:
    """The checksum of each row of a file.

    Args:
        of_file: The files' identity, and the ending of this one.
        places: Of the rows in the file.
        keys: Of their models.
    """
    data = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    names = zip(places.tolist(), keys.tolist(), strict=True)
    sums = (
        xxhash.xxh3_64_intdigest(row.data, xxhash.xxh3_64_intdigest(of_file + _NAME.pack(*name)))
        for row, name in zip(data, names, strict=True)
    )
    return np.fromiter(sums, CHECKSUM, count=len(rows))


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
