"""One safetensors file on disk, read by position."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from ...errors import ModelError
from .base import Memory, RowBlock, TensorRef
from .safetensors_header import decode, header_length, parse_header, shown

_MOST_AT_ONCE = 1 << 30
"""Bytes of one system call: macOS refuses more than 2³¹ − 1."""


class SafetensorsFile:
    """One safetensors file, read into fresh memory.

    Not mapped: a file that is cut short meanwhile gives a short read, not a dead process.
    Peak: one tensor.
    """

    concurrent = True

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self.bytes_read = 0
        self._lock = threading.Lock()
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as err:
            raise ModelError("unreadable", f"{path.name}: {err.strerror}") from err
        try:
            self._state = self._file_state()
            self.bytes_total = self._state[0]
            refs = self._read_header()
        except BaseException:
            self.close()
            raise
        self.tensors: Mapping[str, TensorRef] = {ref.name: ref for ref in refs}

    def read(self, name: str, memory: Memory | None = None) -> torch.Tensor:
        """One tensor in its stored dtype. Safe between threads that bring their own memory."""
        ref = self._ref(name)
        return decode(self._read(ref.start, ref.stop, memory), ref)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors by offset."""
        refs = {name: self._ref(name) for name in names}
        for name, _ in sorted(refs.items(), key=lambda item: item[1].start):
            yield name, self.read(name)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows by offset."""
        refs = {block: self._ref(block.tensor).rows(block.start, block.stop) for block in blocks}
        for block, ref in sorted(refs.items(), key=lambda item: item[1].start):
            yield block, decode(self._read(ref.start, ref.stop), ref)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _ref(self, name: str) -> TensorRef:
        ref = self.tensors.get(name)
        if ref is None:
            raise ModelError("missing-tensor", f"{self._name}: no tensor {shown(name)}")
        return ref

    def _read_header(self) -> tuple[TensorRef, ...]:
        size = self.bytes_total
        first8 = bytes(self._read(0, min(8, size)))
        length = header_length(first8, file=self._name, file_size=size)
        head = first8 + bytes(self._read(8, 8 + length))
        return parse_header(head, file=self._name, file_size=size)

    def _read(self, start: int, stop: int, memory: Memory | None = None) -> memoryview:
        """The bytes from `start` to `stop`, in memory that was not cleared before."""
        size = stop - start
        view, done = (memory(size) if memory else np.empty(size, np.uint8)).data, 0
        try:
            while done < len(view):
                part = view[done : done + _MOST_AT_ONCE]
                got = os.preadv(self._descriptor, [part], start + done)
                if got == 0:
                    break
                done += got
            state = self._file_state()
        except OSError as err:
            raise ModelError("unreadable", f"{self._name}: {err.strerror}") from err
        with self._lock:
            self.bytes_read += done
        if done < len(view) or state != self._state:
            line = "the file changed while it was read; index it again"
            raise ModelError("changed", f"{self._name}: {line}")
        return view

    def _file_state(self) -> tuple[int, int]:
        """Size in bytes and time of the last change."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns
