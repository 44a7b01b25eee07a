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


def assert_same(checkpoint, tensors):
    """It holds these tensors and no others, whichever way they are read."""
    assert set(checkpoint.tensors) == set(tensors)
    streamed = dict(checkpoint.stream(tensors))
    for name, expected in tensors.items():
        for actual in (streamed[name], checkpoint.read(name)):
            assert actual.dtype == expected.dtype
            assert torch.equal(actual, expected)
            assert checkpoint.tensors[name].shape == tuple(expected.shape)
