"""One safetensors file on disk, read by position."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from ...errors import ModelError
from .base import RowBlock, TensorRef
from .safetensors_header import decode, header_length, parse_header, shown

_MOST_AT_ONCE = 1 << 30
"""Bytes of one system call: macOS refuses more than 2³¹ − 1."""


class SafetensorsFile:
    """One safetensors file: tensors read into memory of their own, or seen where they lie.

    Reading survives a file that is cut short meanwhile; a view does not, as in every program
    that maps files, but costs a third. Views are forgotten when their block ends, so that
    mapped pages do not add up. Peak: one tensor.
    """

    concurrent = True

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self.bytes_read = 0
        self._lock = threading.Lock()
        self._mapped: mmap.mmap | None = None
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

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype. Safe between threads."""
        ref = self._ref(name)
        return decode(self._read(ref.start, ref.stop), ref)

    @contextmanager
    def view(self, name: str) -> Iterator[torch.Tensor]:
        """One tensor in the mapped file. Safe between threads."""
        ref = self._ref(name)
        self._require_unchanged()
        mapped = self._map()
        try:
            yield decode(memoryview(mapped)[ref.start : ref.stop], ref)
        finally:
            if hasattr(mapped, "madvise"):
                first = ref.start - ref.start % mmap.PAGESIZE
                mapped.madvise(mmap.MADV_DONTNEED, first, ref.stop - first)
        with self._lock:
            self.bytes_read += ref.stop - ref.start
        self._require_unchanged()

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
        self._mapped = None
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

    def _map(self) -> mmap.mmap:
        with self._lock:
            if self._mapped is None:
                try:
                    self._mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY)
                except (OSError, ValueError) as err:
                    raise ModelError("unreadable", f"{self._name}: {err}") from err
            return self._mapped

    def _read(self, start: int, stop: int) -> memoryview:
        """The bytes from `start` to `stop`, in memory that was not cleared before."""
        size = stop - start
        view, done = np.empty(size, np.uint8).data, 0
        try:
            while done < len(view):
                part = view[done : done + _MOST_AT_ONCE]
                got = os.preadv(self._descriptor, [part], start + done)
                if got == 0:
                    break
                done += got
        except OSError as err:
            raise ModelError("unreadable", f"{self._name}: {err.strerror}") from err
        with self._lock:
            self.bytes_read += done
        self._require_unchanged(whole=done == len(view))
        return view

    def _require_unchanged(self, *, whole: bool = True) -> None:
        try:
            same = self._file_state() == self._state
        except OSError as err:
            raise ModelError("unreadable", f"{self._name}: {err.strerror}") from err
        if not (same and whole):
            line = "the file changed while it was read; index it again"
            raise ModelError("changed", f"{self._name}: {line}")

    def _file_state(self) -> tuple[int, int]:
        """Size in bytes and time of the last change."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns
