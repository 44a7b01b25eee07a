"""A remote weight file, read whole and compared with the SHA-256 that is listed for it."""

from __future__ import annotations

import hashlib
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...records import Verification
from .byte_source import Buffer, ByteSource

if TYPE_CHECKING:
    from hashlib import _Hash

PIECE = 8 << 20
"""Bytes of one read of what no reader wants, and of what is held until its turn in the file."""

READ_AGAIN = frozenset(
    {
        "checksum-mismatch",
        "truncated",
        "bad-header",
        "bad-offsets",
        "duplicate-tensor",
        "missing-tensor",
        "unsupported-dtype",
        "legacy-pickle",
        "unsafe-pickle",
        "non-finite",
        "wrong-base",
    }
)
"""Codes that one byte changed on the way can cause; what ends so is read from the Hub once more."""

CHUNK = 1 << 20
"""Bytes after which the hash's state is kept, so that a range that is read again is compared."""


class VerifiedBytes:
    """A source whose bytes travel once each, and are hashed in the order of the file.

    SHA-256 takes bytes in one order only. Readers of weights go forward through a file; what they
    skip is read for the hash and dropped. What is read before its turn (the list at the end of an
    archive, an adapter's tensors in another order) is held until its turn comes: `PIECE` bytes, of
    an adapter `ReadPlan.memory`. Beyond that the bytes between are read first, so that a later read
    of them is a second one. A second read is compared with the hash's states before and after each
    of its chunks: what a reader gets is what was hashed.

    Only `verify` tells whether that is what is listed. Safe between threads, which take turns.
    """

    def __init__(self, source: ByteSource, sha256: str) -> None:
        self.name = source.name
        self.size = source.size
        self.plan = source.plan
        self._source = source
        self._listed = sha256
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._states: list[_Hash] = [self._hash.copy()]
        self._held: dict[int, bytes] = {}
        self._lock = threading.Lock()

    @property
    def bytes_fetched(self) -> int | None:
        return self._source.bytes_fetched

    def read(self, start: int, stop: int) -> Buffer:
        with self._lock:
            return self._read(start, stop)

    def _read(self, start: int, stop: int) -> Buffer:
        known = max(start, min(stop, self._hashed))
        again = self._read_again(start, known) if start < known else bytearray()
        if known == stop:
            return again
        rest = self._read_new(known, stop)
        return bytearray(again) + rest if again else rest

    def view(self, start: int, stop: int) -> AbstractContextManager[Buffer]:
        return nullcontext(self.read(start, stop))

    def verify(self) -> Verification:
        """Read what no reader wanted, and compare.

        Raises:
            ModelError: `checksum-mismatch`.
        """
        with self._lock:
            self._fill(self.size)
            found = self._hash.hexdigest()
        if found != self._listed:
            raise mismatch(self.name, found, self._listed)
        return "sha256"

    def close(self) -> None:
        self._held.clear()
        self._source.close()

    def _read_new(self, start: int, stop: int) -> Buffer:
        """A range of which nothing is hashed yet."""
        if start > self._hashed:
            limit = self.plan.memory if self.plan.ahead else 0 if self._hashed else PIECE
            if sum(map(len, self._held.values())) + stop - start <= limit:
                buffer = self._source.read(start, stop)
                self._compare_with_held(start, buffer)
                self._held[start] = max(self._held.get(start, b""), bytes(buffer), key=len)
                return buffer
            self._fill(start, leave=0 if self.plan.ahead else PIECE)
            if start < self._hashed:
                # what was held from there on is hashed now
                return self._read(start, stop)
        first = min(start, self._hashed)
        buffer = self._source.read(first, stop)
        self._compare_with_held(first, buffer)
        self._take(first, buffer)
        self._take_held()
        return buffer if first == start else bytearray(memoryview(buffer)[start - first :])

    def _read_again(self, start: int, stop: int) -> Buffer:
        """A range that is hashed already; its chunks must lead from one kept state to the next."""
        first = start - start % CHUNK
        last = min(stop + -stop % CHUNK, self._hashed)
        buffer = self._source.read(first, last)
        for begin in range(first, last, CHUNK):
            number = begin // CHUNK
            state = self._states[number].copy()
            state.update(memoryview(buffer)[begin - first : begin - first + CHUNK])
            ends = number + 1 < len(self._states)
            expected = self._states[number + 1] if ends else self._hash
            if state.digest() != expected.digest():
                raise _differs(self.name, begin)
        return bytearray(memoryview(buffer)[start - first : stop - first])

    def _fill(self, stop: int, *, leave: int = 0) -> None:
        """Hash up to `stop`; the last `leave` bytes of it are left to the read that follows."""
        self._take_held()
        while stop - self._hashed > leave:
            held = min((start for start in self._held if start < stop), default=stop)
            end = min(self._hashed + PIECE, held)
            self._take(self._hashed, self._source.read(self._hashed, end))
            self._take_held()

    def _take_held(self) -> None:
        for start in sorted(self._held):
            if start > self._hashed:
                return
            self._take(start, self._held.pop(start))

    def _take(self, start: int, buffer: Buffer | bytes) -> None:
        """Hash what of the buffer is new; it begins no later than where the hash is."""
        view = memoryview(buffer)[self._hashed - start :]
        while view:
            room = CHUNK - self._hashed % CHUNK
            self._hash.update(view[:room])
            self._hashed += len(view[:room])
            view = view[room:]
            if self._hashed % CHUNK == 0:
                self._states.append(self._hash.copy())

    def _compare_with_held(self, start: int, buffer: Buffer) -> None:
        """Require that what was read before its turn came a second time as it was."""
        for begin, held in self._held.items():
            first, last = max(start, begin), min(start + len(buffer), begin + len(held))
            if first < last:
                now = memoryview(buffer)[first - start : last - start]
                if now != memoryview(held)[first - begin : last - begin]:
                    raise _differs(self.name, first)


def mismatch(name: str, found: str, listed: str) -> ModelError:
    """The error of a file whose SHA-256 is not the one that is listed for it."""
    line = f"SHA-256 {found[:16]}… where {listed[:16]}… is listed: its bytes changed on the way"
    return ModelError("checksum-mismatch", f"{name}: {line}")


def _differs(name: str, place: int) -> ModelError:
    line = f"two reads differ after byte {place}: bytes changed on the way"
    return ModelError("checksum-mismatch", f"{name}: {line}")
