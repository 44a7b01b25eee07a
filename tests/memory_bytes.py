"""A weight file that is in memory: read by position like one that is fetched."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from deltadex.indexer.checkpoint.bin_file import BinFile
from deltadex.indexer.checkpoint.files import AT_HAND, ReadPlan


class MemoryBytes:
    """A file that is in memory already: all of it was fetched.

    `ranges` are those that were read, in turn.
    """

    def __init__(self, data: bytes, name: str, plan: ReadPlan = AT_HAND) -> None:
        self.name = name
        self.plan = plan
        self.size = self.bytes_fetched = len(data)
        self.ranges: list[tuple[int, int]] = []
        self._data = data

    def read(self, start: int, stop: int) -> bytearray:
        self.ranges.append((start, stop))
        return bytearray(self._data[start:stop])

    def view(self, start: int, stop: int) -> AbstractContextManager[bytearray]:
        return nullcontext(self.read(start, stop))

    def verify(self) -> None:
        return None

    def close(self) -> None:
        self._data = b""


def open_bin_bytes(data: bytes, file: str) -> BinFile:
    """A `.bin` in memory; all of it counts as read."""
    return BinFile(MemoryBytes(data, file))
