"""A weight file that is in memory: read by position like one that is fetched."""

from __future__ import annotations

import io

import torch

from deltadex.indexer.checkpoint.bin_file import BinFile
from deltadex.indexer.checkpoint.files import LOCAL_PLAN


class MemoryBytes:
    """A file that is in memory already: all of it was fetched.

    `ranges` are those that were read, in turn.
    """

    def __init__(self, data, name, plan=LOCAL_PLAN):
        self.name = name
        self.plan = plan
        self.size = self.bytes_fetched = len(data)
        self.ranges: list[tuple[int, int]] = []
        self._data = data

    def read(self, start, stop):
        self.ranges.append((start, stop))
        return bytearray(self._data[start:stop])

    def verify(self):
        return None

    def close(self):
        self._data = b""


def to_bin(value):
    """What `torch.save` writes of it."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def open_bin_bytes(data, file):
    """A `.bin` in memory; all of it counts as read."""
    return BinFile(MemoryBytes(data, file))
