"""One weight file behind a byte source, of which only the wanted tensors are fetched."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from operator import attrgetter

import torch

from ...errors import ModelError
from ..checkpoint import RowBlock, TensorRef, decode, header_length, parse_header
from .byte_sources import ByteSource

FIRST_READ = 64 << 10
"""Bytes of the first request: enough for the header of most files."""

FIRST_OF_FEW = 4 << 10
"""The same where bytes are counted; the header's rest is fetched to the byte."""

MAX_GAP = 64 << 10
"""Unwanted bytes between two wanted tensors that cost less than another request."""

MAX_ROW_GAP = 8 << 10
"""The same where bytes are counted: about what a request and its headers take."""

MAX_RUN = 32 << 20
"""Bytes of one request that fetches several tensors."""

AHEAD = 8 << 20
"""Bytes fetched at once where neighbours will be wanted too: in adapters."""

MAX_KEPT = 64 << 20
"""Bytes fetched at once that are kept for tensors yet to be asked for."""


class RangedFile(ABC):
    """One weight file, read by ranges. Safe between threads.

    Peak: one run of tensors, at most `MAX_RUN` or one tensor, and a copy of one tensor;
    with `ahead`, `MAX_KEPT` as well.
    """

    concurrent = False

    def __init__(self, source: ByteSource, refs: Sequence[TensorRef], *, ahead: bool) -> None:
        self._source = source
        self._in_order = sorted(refs, key=lambda ref: (ref.start, ref.stop))
        self._kept: dict[int, bytearray] = {}
        blocks = runs(self._in_order, max_bytes=AHEAD) if ahead else ()
        self._blocks = {ref.name: _span(block) for block in blocks for ref in block}
        self._lock = threading.Lock()
        self.tensors: Mapping[str, TensorRef] = {ref.name: ref for ref in self._in_order}
        self.bytes_total = source.size

    @property
    def bytes_read(self) -> int:
        return self._source.bytes_read

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype."""
        ref = self._ref(name)
        if not self._blocks:
            return self._decode(self._bytes(ref.start, ref.stop), ref)
        start, buffer = self._block(ref)
        return self._decode(buffer[ref.start - start : ref.stop - start], ref)

    def view(self, name: str) -> AbstractContextManager[torch.Tensor]:
        """The same, for a block."""
        return nullcontext(self.read(name))

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors by offset, neighbours fetched together."""
        refs = [self._ref(name) for name in set(names)]
        refs.sort(key=lambda ref: (ref.start, ref.stop, ref.name))
        for run in runs(refs, max_bytes=MAX_RUN):
            start, stop = _span(run)
            buffer = self._bytes(start, stop)
            for ref in run:
                yield ref.name, self._decode(_cut(buffer, start, ref), ref)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows, cut from whole tensors: not every format can be read by rows."""
        for name, of_one in groupby(sorted(blocks, key=attrgetter("tensor")), attrgetter("tensor")):
            rows = self.read(name).flatten(0, -2)
            for block in of_one:
                yield block, rows[block.start : block.stop]

    def close(self) -> None:
        self._kept.clear()

    @abstractmethod
    def _decode(self, buffer: bytearray, ref: TensorRef) -> torch.Tensor:
        """The tensor in the bytes from `ref.start` to `ref.stop`."""

    def _bytes(self, start: int, stop: int) -> bytearray:
        return self._source.read(start, stop)

    def _ref(self, name: str) -> TensorRef:
        ref = self.tensors.get(name)
        if ref is None:
            raise ModelError("missing-tensor", f"{self._source.name}: no tensor {name!r}")
        return ref

    def _block(self, ref: TensorRef) -> tuple[int, bytearray]:
        """Where a tensor's block begins, and its bytes; the longest unused ones make room."""
        start, stop = self._blocks[ref.name]
        with self._lock:
            buffer = self._kept.pop(start, None)
            if buffer is None:
                buffer = self._bytes(start, stop)
            self._kept[start] = buffer
            kept = sum(map(len, self._kept.values()))
            while kept > MAX_KEPT and len(self._kept) > 1:
                kept -= len(self._kept.pop(next(iter(self._kept))))
        return start, buffer


class RangedSafetensors(RangedFile):
    """One safetensors file; what the first request brings beyond the header is used too."""

    def __init__(
        self, source: ByteSource, *, ahead: bool = False, first_read: int = FIRST_READ
    ) -> None:
        file, size = source.name, source.size
        head = source.read(0, min(first_read, size))
        length = header_length(bytes(head[:8]), file=file, file_size=size)
        if 8 + length > len(head):
            head += source.read(len(head), 8 + length)
        self._head = bytes(head)
        super().__init__(source, parse_header(self._head, file=file, file_size=size), ahead=ahead)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows by offset; only what is all but adjacent is fetched together."""
        of = {self._ref(b.tensor).rows(b.start, b.stop): b for b in blocks}
        refs = sorted(of, key=lambda ref: (ref.start, ref.stop))
        for run in runs(refs, max_bytes=MAX_RUN, max_gap=MAX_ROW_GAP):
            start, stop = _span(run)
            buffer = self._bytes(start, stop)
            for ref in run:
                yield of[ref], self._decode(_cut(buffer, start, ref), ref)

    def _decode(self, buffer: bytearray, ref: TensorRef) -> torch.Tensor:
        return decode(buffer, ref)

    def _bytes(self, start: int, stop: int) -> bytearray:
        known = bytearray(self._head[start:stop])
        if len(known) == stop - start:
            return known
        return known + self._source.read(start + len(known), stop)


def runs(
    refs: Sequence[TensorRef], *, max_bytes: int, max_gap: int = MAX_GAP
) -> Iterator[list[TensorRef]]:
    """Neighbours that one request fetches, from refs in the order of the file.

    A tensor larger than `max_bytes` is a run of its own.
    """
    run: list[TensorRef] = []
    for ref in refs:
        if run:
            start, stop = _span(run)
            if ref.start - stop > max_gap or max(stop, ref.stop) - start > max_bytes:
                yield run
                run = []
        run.append(ref)
    if run:
        yield run


def _span(run: Sequence[TensorRef]) -> tuple[int, int]:
    return run[0].start, max(ref.stop for ref in run)


def _cut(buffer: bytearray, start: int, ref: TensorRef) -> bytearray:
    if ref.start == start and ref.stop - start == len(buffer):
        return buffer
    return buffer[ref.start - start : ref.stop - start]
