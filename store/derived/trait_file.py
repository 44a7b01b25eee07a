"""What normalisation knows of a family's models, in files beside the catalog: rows of numbers.

A model's traits depend on its own sketches and on those of the family's cohort. They take a
thousand times as long to compute as to read, so that every process appends those it computed.
`.traitkeys` has a header and an entry for each row of `.traits`. The header names what the rows
depend on but the model: files of another cohort are made anew. An entry has checksums of the
model's sketches, and of the row with the header, the entry's number and the entry: a row that does
not fit them was not written.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import zlib
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from ...arrays import Bool, Float64, Int64
from ...errors import StoreFull
from ..files import open_at, write_atomically

log = logging.getLogger(__name__)

ENTRY = np.dtype([("key", "<i8"), ("sketches", "<u4"), ("row", "<u4")])
NUMBER = np.dtype("<f8")
FORMAT = b"deltadex traits 2"

MOST_BYTES = 4 << 30
"""Of the rows; later ones are not kept."""


class TraitFile:
    """Rows of one family under one recipe and one cohort. Threads and processes share it."""

    def __init__(self, path: Path, depends_on: bytes, n_numbers: int) -> None:
        """Open the files, if there are any.

        Args:
            path: Of the family's derived files.
            depends_on: A digest of everything that decides the rows but the models themselves.
            n_numbers: Of a row.
        """
        self._numbers, self._entries = path.with_suffix(".traits"), path.with_suffix(".traitkeys")
        self._claim = FileLock(path.with_suffix(".traitlock"))
        self._n_numbers = n_numbers
        self._header = hashlib.sha256(
            FORMAT + depends_on + n_numbers.to_bytes(8, "little")
        ).digest()
        self._lock = threading.Lock()
        self._inode = -1
        self._place: dict[int, int] = {}
        self._known = np.zeros(0, dtype=ENTRY)

    def read(
        self, keys: Int64[np.ndarray, " keys"], checksums: Int64[np.ndarray, " keys"]
    ) -> tuple[Bool[np.ndarray, " keys"], Float64[np.ndarray, "found numbers"]]:
        """Which of some models have a row, and the rows of these.

        Args:
            checksums: Of their sketches.
        """
        found, rows = np.zeros(len(keys), dtype=np.bool_), []
        with self._lock:
            try:
                self._refresh()
                with self._numbers.open("rb") as file:
                    for i, (key, checksum) in enumerate(
                        zip(keys.tolist(), checksums.tolist(), strict=True)
                    ):
                        place = self._place.get(key, -1)
                        if place < 0 or int(self._known["sketches"][place]) != checksum:
                            continue
                        file.seek(place * self._row_bytes)
                        data = file.read(self._row_bytes)
                        if self._checksum(place, key, checksum, data) == self._known["row"][place]:
                            found[i] = True
                            rows.append(np.frombuffer(data, NUMBER))
            except OSError:
                found[:], rows = False, []
        return found, np.array(rows, dtype=np.float64).reshape(len(rows), self._n_numbers)

    def append(
        self,
        keys: Int64[np.ndarray, " keys"],
        checksums: Int64[np.ndarray, " keys"],
        rows: Float64[np.ndarray, "keys numbers"],
    ) -> None:
        """Add rows, unless another process adds some now or the system refuses."""
        data = np.ascontiguousarray(rows, dtype=NUMBER)
        entries = np.zeros(len(keys), dtype=ENTRY)
        entries["key"], entries["sketches"] = keys, checksums
        try:
            with self._lock, self._claim.acquire(timeout=0):
                self._refresh()
                n_rows = len(self._known)
                if not self._is_ours():
                    self._numbers.unlink(missing_ok=True)
                    write_atomically(self._entries, self._header)
                    n_rows = 0
                if (n_rows + len(keys)) * self._row_bytes > MOST_BYTES:
                    return
                entries["row"] = [
                    self._checksum(n_rows + i, key, checksum, row.tobytes())
                    for i, (key, checksum, row) in enumerate(
                        zip(keys.tolist(), checksums.tolist(), data, strict=True)
                    )
                ]
                _write(self._numbers, n_rows * self._row_bytes, data.tobytes())
                _write(
                    self._entries, len(self._header) + n_rows * ENTRY.itemsize, entries.tobytes()
                )
        except (OSError, Timeout, StoreFull) as err:
            log.info("traits are not kept in a file: %s", err)

    def _checksum(self, place: int, key: int, of_sketches: int, row: bytes) -> int:
        """Of a row of `.traits`, and of which row it is."""
        names = np.array([place, key, of_sketches], dtype="<i8")
        return zlib.crc32(row, zlib.crc32(self._header + names.tobytes()))

    @property
    def _row_bytes(self) -> int:
        return self._n_numbers * NUMBER.itemsize

    def _is_ours(self) -> bool:
        """Whether the files are of this cohort."""
        try:
            with self._entries.open("rb") as file:
                return file.read(len(self._header)) == self._header
        except FileNotFoundError:
            return False

    def _refresh(self) -> None:
        """Read the entries that were added since."""
        try:
            with self._entries.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._place = inode, {}
                    self._known = np.zeros(0, dtype=ENTRY)
                if file.read(len(self._header)) != self._header:
                    return
                file.seek(len(self._known) * ENTRY.itemsize, os.SEEK_CUR)
                data = file.read()
        except FileNotFoundError:
            self._inode, self._place, self._known = -1, {}, np.zeros(0, dtype=ENTRY)
            return
        whole = len(data) // ENTRY.itemsize * ENTRY.itemsize
        new = np.frombuffer(data[:whole], dtype=ENTRY)
        if len(new):
            start = len(self._known)
            self._place.update((key, start + i) for i, key in enumerate(new["key"].tolist()))
            self._known = np.concatenate([self._known, new])


def _write(path: Path, at: int, data: bytes) -> None:
    """Write data at a position of a file, which ends there."""
    with open_at(path, at) as file:
        file.write(data)
        file.truncate()
