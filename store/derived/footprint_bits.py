"""The touched tokens of a large family's models as bits, a row a model: read from a file beside the
catalog that can be made again. Of a hundred thousand models it says within a second how many of
their tokens a file of texts lacks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ...arrays import Bool, Int64
from ...errors import StoreFull
from ..files import atomic_file, derived_path, make_folder
from ..session import Session
from ..tables.footprints import NAMING, footprint_stamp

AT_ONCE = 2_000
"""Models that are read from the catalog, or compared, at a time."""


def footprint_file(catalog: Path, base: str) -> Path:
    """Where the rows of a family are kept."""
    return derived_path(catalog, base, "footprints", ".tokens")


@dataclass(frozen=True, slots=True)
class FootprintBits:
    """Rows `key`, `touched` and `bits`, of the models whose footprints name tokens."""

    rows: np.ndarray

    @classmethod
    def read(cls, session: Session, base: str) -> FootprintBits:
        """Those of a family, of a large one from its file, which is written where it is missing, of
        other footprints, or damaged."""
        path = footprint_file(session.access.path, base)
        stamp = xxhash.xxh3_64_intdigest(footprint_stamp(session, base).encode())
        rows = _stored(path, stamp)
        if rows is None:
            blocks = list(_selected(session, base))
            rows = np.concatenate([np.zeros(1, blocks[0].dtype), *blocks])
            rows[0]["key"], rows[0]["touched"] = _signed(stamp), _digest(rows)
            if len(rows) > AT_ONCE:
                _write(path, rows)
        return cls(rows[1:])

    @property
    def keys(self) -> Int64[np.ndarray, " models"]:
        return np.asarray(self.rows["key"])

    def shares_among(self, tokens: Bool[np.ndarray, " tokens"]) -> np.ndarray:
        """Of each model's touched tokens, the share that is among these."""
        width = self.rows["bits"].shape[1]
        wanted = np.zeros(8 * width, dtype=bool)
        wanted[: len(tokens)] = tokens[: len(wanted)]
        mask = np.packbits(wanted)
        counts = [
            np.bitwise_count(some["bits"] & mask).sum(axis=1, dtype=np.int64)
            for some in np.array_split(self.rows, 1 + len(self.rows) // AT_ONCE)
        ]
        return np.asarray(np.concatenate(counts) / np.maximum(1, self.rows["touched"]))


def _write(path: Path, rows: np.ndarray) -> None:
    with suppress(StoreFull):
        make_folder(path.parent)
        with atomic_file(path, lasts=False) as file, file.open("wb") as opened:
            np.save(opened, rows)


def _row_type(n_bytes: int) -> np.dtype[Any]:
    return np.dtype([("key", "<i8"), ("touched", "<i8"), ("bits", "u1", (n_bytes,))])


def _signed(number: int) -> np.int64:
    return np.uint64(number).astype(np.int64)


def _digest(rows: np.ndarray) -> np.int64:
    return _signed(xxhash.xxh3_64_intdigest(rows[1:].view(np.uint8).data))


def _stored(path: Path, stamp: int) -> np.ndarray | None:
    try:
        rows = np.load(path)
        is_current = rows[0]["key"] == _signed(stamp)
        return rows if is_current and rows[0]["touched"] == _digest(rows) else None
    # whatever is wrong with a file that can be made again
    except Exception:
        return None


def _selected(session: Session, base: str) -> Iterator[np.ndarray]:
    """Blocks of rows from the catalog, all as wide as the family's largest vocabulary."""
    numbers = session.execute(f"SELECT f.model, f.vocabulary {NAMING} ORDER BY f.model", [base])
    n_bytes = (max((size for _, size in numbers), default=0) + 7) // 8
    yield np.zeros(0, _row_type(n_bytes))
    with ThreadPoolExecutor(2) as threads:
        for first in range(0, len(numbers), AT_ONCE):
            some = numbers[first : first + AT_ONCE]
            found = session.execute(
                f"SELECT f.model, f.touched, f.vocabulary, f.tokens {NAMING} "
                "AND f.model BETWEEN ? AND ? ORDER BY f.model",
                [base, some[0][0], some[-1][0]],
            )
            rows = np.zeros(len(found), _row_type(n_bytes))
            rows["key"] = [row[0] for row in found]
            rows["touched"] = [row[1] for row in found]
            bits = threads.map(lambda row: _bits(row[3], row[2]), found)
            for place, content in zip(rows["bits"], bits, strict=True):
                place[: len(content)] = content
            yield rows


def _bits(content: bytes, vocabulary: int) -> np.ndarray:
    n_bytes = (vocabulary + 7) // 8
    try:
        return np.frombuffer(zlib.decompressobj().decompress(content, n_bytes), np.uint8)
    except zlib.error:
        return np.zeros(0, np.uint8)
