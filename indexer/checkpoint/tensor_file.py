"""Checkpoints as lists of tensors, and one weight file of them: safetensors, read by position."""

from __future__ import annotations

import json
import math
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Protocol, TypeVar, runtime_checkable

import torch

from ...errors import ModelError
from ...records import Verification
from ..untrusted_text import shown
from .files import Buffer, ByteSource

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Types that are read; a header may name others, whose tensors are refused."""

Item = TypeVar("Item")

LFS_POINTER = b"version "
"""The first bytes of what git leaves in place of a large file that it did not fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """One tensor as its file's header declares it.

    Attributes:
        dtype: Safetensors spelling: F64 F32 F16 BF16 I8 U8 ….
        start: First byte, from the beginning of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    stop: int

    def rows(self, start: int, stop: int) -> TensorRef:
        """Some rows of it, leading dimensions flattened: shape (stop − start, columns)."""
        columns = self.shape[-1]
        width = (self.stop - self.start) // math.prod(self.shape[:-1])
        return replace(
            self,
            shape=(stop - start, columns),
            start=self.start + start * width,
            stop=self.start + stop * width,
        )


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows `start` to `stop` of a tensor, its leading dimensions flattened."""

    tensor: str
    start: int
    stop: int


@runtime_checkable
class Checkpoint(Protocol):
    """The tensors of one model: listed from headers, read one at a time.

    Attributes:
        tensors: Every tensor by name, as the headers declare it.
        bytes_total: Size of all weight files, in bytes.
        bytes_read: Bytes fetched so far, headers included.
        concurrent: Whether several threads may as well read one tensor each as one thread all.
    """

    tensors: Mapping[str, TensorRef]
    bytes_total: int
    concurrent: bool

    @property
    def bytes_read(self) -> int: ...

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype, finite or not."""

    def view(self, name: str) -> AbstractContextManager[torch.Tensor]:
        """The same for as long as the block lasts, without a copy where that can be had.

        What was read while the file changed is refused at the end of the block.
        """

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors in the order that reads them best: by file, then offset.

        Peak: one tensor, plus what a remote reader coalesces.
        """

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """Some rows of some tensors, (rows, columns), in the order that reads them best."""

    def verify(self) -> Verification | None:
        """How the weight files' bytes were compared with what is listed of them.

        Reads the rest of remote files that are read whole. None where nothing is listed.

        Raises:
            ModelError: `checksum-mismatch`.
        """

    def close(self) -> None: ...


Run = list[tuple[int, int, TensorRef]]
"""First byte, one past the last, and the tensor, of each that one read brings."""


class TensorFile(ABC):
    """One weight file over its bytes; a `Checkpoint` by itself. Safe between threads.

    Peak: one tensor; of a remote file one run of tensors, at most `ReadPlan.run` or one tensor,
    a copy of one tensor, and `ReadPlan.memory`.
    """

    def __init__(self, source: ByteSource, refs: Sequence[TensorRef], listed_bytes: int) -> None:
        """`listed_bytes`: the part of the file that is no tensor, and was read to list them."""
        self._source = source
        self._lock = threading.Lock()
        self._used_bytes = listed_bytes
        self._ahead: dict[int, Buffer] = {}
        self.concurrent = source.bytes_fetched is None
        self.bytes_total = source.size
        self.tensors: Mapping[str, TensorRef] = {ref.name: ref for ref in refs}
        together = self._runs(refs, source.plan.ahead, source.plan.gap) if source.plan.ahead else ()
        self._block_of = {ref.name: _span(run) for run in together for _, _, ref in run}

    @property
    def bytes_read(self) -> int:
        """Bytes that travelled; of a file at hand, the header's and the tensors' own."""
        fetched = self._source.bytes_fetched
        return self._used_bytes if fetched is None else fetched

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype, in memory of its own."""
        ref = self._ref(name)
        start, stop = self._extent(ref)
        if name in self._block_of:
            first, block = self._block(name)
            return self._decode(bytearray(memoryview(block)[start - first : stop - first]), ref)
        tensor = self._decode(self._bytes(start, stop), ref)
        self._count(ref.stop - ref.start)
        return tensor

    @contextmanager
    def view(self, name: str) -> Iterator[torch.Tensor]:
        """One tensor in the mapped file; of a remote file, the same as `read`."""
        if not self.concurrent:
            yield self.read(name)
            return
        ref = self._ref(name)
        with self._source.view(*self._extent(ref)) as buffer:
            yield self._decode(buffer, ref)
        self._count(ref.stop - ref.start)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors by offset, neighbours read together."""
        refs = [self._ref(name) for name in dict.fromkeys(names)]
        if self.concurrent:
            for ref in sorted(refs, key=self._extent):
                yield ref.name, self.read(ref.name)
            return
        for ref, tensor in self._read_together(refs, max_gap=self._source.plan.gap):
            yield ref.name, tensor

    @abstractmethod
    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """Some rows of some tensors by offset, each in memory of its own."""

    def verify(self) -> Verification | None:
        return self._source.verify()

    def close(self) -> None:
        self._ahead.clear()
        self._source.close()

    @abstractmethod
    def _extent(self, ref: TensorRef) -> tuple[int, int]:
        """Where in the file the bytes that `_decode` wants begin and end."""

    @abstractmethod
    def _decode(self, buffer: Buffer, ref: TensorRef) -> torch.Tensor:
        """The contiguous tensor in the bytes of its extent, in their memory where that can be."""

    def _bytes(self, start: int, stop: int) -> Buffer:
        return self._source.read(start, stop)

    def _ref(self, name: str) -> TensorRef:
        ref = self.tensors.get(name)
        if ref is None:
            line = f"{self._source.name}: no tensor {shown(name)}"
            raise ModelError("missing-tensor", line)
        return ref

    def _count(self, n_bytes: int) -> None:
        with self._lock:
            self._used_bytes += n_bytes

    def _read_together(
        self, refs: Iterable[TensorRef], *, max_gap: int
    ) -> Iterator[tuple[TensorRef, torch.Tensor]]:
        for run in self._runs(refs, self._source.plan.run, max_gap):
            first, last = _span(run)
            buffer = self._bytes(first, last)
            for start, stop, ref in run:
                tensor = self._decode(_cut(buffer, start - first, stop - first), ref)
                self._count(ref.stop - ref.start)
                yield ref, tensor

    def _runs(self, refs: Iterable[TensorRef], max_bytes: int, max_gap: int) -> Iterator[Run]:
        spans = ((*self._extent(ref), ref) for ref in sorted(refs, key=attrgetter("name")))
        return read_together(spans, max_bytes, max_gap)

    def _block(self, name: str) -> tuple[int, Buffer]:
        """Where a tensor's block begins, and its bytes; those unused for longest make room."""
        start, stop = self._block_of[name]
        with self._lock:
            block = self._ahead.pop(start, None)
            if block is None:
                block = self._bytes(start, stop)
            self._ahead[start] = block
            total = sum(map(len, self._ahead.values()))
            while total > self._source.plan.memory and len(self._ahead) > 1:
                total -= len(self._ahead.pop(next(iter(self._ahead))))
        return start, block


def read_together(
    spans: Iterable[tuple[int, int, Item]], max_bytes: int, max_gap: int
) -> Iterator[list[tuple[int, int, Item]]]:
    """Spans in the order of the file, as runs of which one read brings each.

    A span is its first byte, one past its last, and what it is of. One that is longer than
    `max_bytes` is a run of its own.
    """
    run: list[tuple[int, int, Item]] = []
    first = last = 0
    for start, stop, item in sorted(spans, key=itemgetter(0, 1)):
        if run and (start - last > max_gap or max(last, stop) - first > max_bytes):
            yield run
            run = []
        if not run:
            first, last = start, stop
        run.append((start, stop, item))
        last = max(last, stop)
    if run:
        yield run


def _span(run: Run) -> tuple[int, int]:
    return run[0][0], max(stop for _, stop, _ in run)


def _cut(buffer: Buffer, start: int, stop: int) -> Buffer:
    if start == 0 and stop == len(buffer):
        return buffer
    return bytearray(memoryview(buffer)[start:stop])


MAX_HEADER = 25_000_000
"""Bytes: the Hub client's limit, enough for some 180,000 tensors.

The safetensors library allows 100,000,000, but hostile JSON of that size takes gigabytes.
"""

MAX_DIMS = 64
"""Dimensions of one tensor; NumPy's limit."""

_OTHER_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}
_SURROGATE = re.compile("[\ud800-\udfff]")


class SafetensorsFile(TensorFile):
    """One safetensors file. What the first read brings beyond the header is used too."""

    def __init__(self, source: ByteSource) -> None:
        file, size = source.name, source.size
        head = bytes(source.read(0, min(source.plan.first, size)))
        length = header_length(head[:8], file=file, file_size=size)
        if 8 + length > len(head):
            head += source.read(len(head), 8 + length)
        self._data_start = 8 + length
        self._known = head[self._data_start :]
        super().__init__(source, parse_header(head, file=file, file_size=size), 8 + length)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows by offset; only what is all but adjacent is read together."""
        block_of = {self._ref(b.tensor).rows(b.start, b.stop): b for b in blocks}
        for ref, rows in self._read_together(block_of, max_gap=self._source.plan.row_gap):
            yield block_of[ref], rows

    def _extent(self, ref: TensorRef) -> tuple[int, int]:
        return ref.start, ref.stop

    def _decode(self, buffer: Buffer, ref: TensorRef) -> torch.Tensor:
        return decode(buffer, ref)

    def _bytes(self, start: int, stop: int) -> Buffer:
        first = start - self._data_start
        known = self._known[first : stop - self._data_start]
        if len(known) == stop - start:
            return bytearray(known)
        rest = super()._bytes(start + len(known), stop)
        return bytearray(known) + rest if known else rest


def header_length(first8: bytes, *, file: str, file_size: int) -> int:
    """Length in bytes of the JSON header that follows the first 8 bytes."""
    if len(first8) < 8 or file_size < 8:
        raise ModelError("truncated", f"{file}: {file_size} bytes are too few for a header")
    if first8[:8] == LFS_POINTER:
        line = "a Git LFS pointer, not the weights; run `git lfs pull`"
        raise ModelError("bad-header", f"{file}: {line}")
    length = int.from_bytes(first8[:8], "little")
    if length > MAX_HEADER:
        line = f"no safetensors file, or a header of more than {MAX_HEADER} bytes"
        raise ModelError("bad-header", f"{file}: {line}")
    if 8 + length > file_size:
        line = f"{file_size} bytes are less than the header; fetch it again"
        raise ModelError("truncated", f"{file}: {line}")
    return length


def parse_header(head: bytes, *, file: str, file_size: int) -> tuple[TensorRef, ...]:
    """The tensors that a file declares, by position in the file.

    `head` begins with the 8 length bytes and the header. As by the safetensors library,
    tensors that overlap, leave holes, or do not end where the file ends are refused.
    Unlike there, so is a duplicate tensor name, and an unknown dtype is left as it is.
    A file may be refused because it is no checkpoint at all: until every check has passed,
    a reason quotes no number and no name of it.
    """
    length = header_length(head[:8], file=file, file_size=file_size)
    if len(head) < 8 + length:
        line = f"{len(head)} bytes are less than the header"
        raise ModelError("truncated", f"{file}: {line}")
    entries = _entries(head[8 : 8 + length], file)
    refs = sorted(
        (
            _tensor_ref(name, entry, number, file, 8 + length)
            for number, (name, entry) in enumerate(entries.items(), start=1)
        ),
        key=lambda ref: (ref.start, ref.stop),
    )
    _require_tiling(refs, 8 + length, file, file_size)
    return tuple(refs)


def decode(buffer: Buffer, ref: TensorRef) -> torch.Tensor:
    """The tensor whose bytes `buffer` holds, sharing its memory where that can be done.

    Copied are read-only and misaligned buffers.
    """
    dtype = DTYPES.get(ref.dtype)
    if dtype is None:
        line = f"tensor {shown(ref.name)} is {shown(ref.dtype)}, which is not read"
        raise ModelError("unsupported-dtype", f"{ref.file}: {line}")
    view = memoryview(buffer)
    if view.nbytes != ref.stop - ref.start:
        line = f"tensor {shown(ref.name)} has {view.nbytes} of {ref.stop - ref.start} bytes"
        raise ModelError("truncated", f"{ref.file}: {line}")
    if not view.nbytes:
        return torch.empty(ref.shape, dtype=dtype)
    tensor = torch.frombuffer(bytearray(view) if view.readonly else view, dtype=dtype)
    if tensor.data_ptr() % dtype.itemsize:
        tensor = tensor.clone()
    return tensor.reshape(ref.shape)


def _entries(text: bytes, file: str) -> dict[str, object]:
    """The header's object by tensor name; objects inside are tuples of pairs."""
    try:
        pairs = json.loads(text.decode("utf-8"), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as err:
        raise ModelError("bad-header", f"{file}: the header is not JSON") from err
    if not isinstance(pairs, tuple):
        raise ModelError("bad-header", f"{file}: the header is not a JSON object")
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ModelError("duplicate-tensor", f"{file}: duplicate tensor name in the header")
    entries.pop("__metadata__", None)
    return entries


def _tensor_ref(name: str, entry: object, number: int, file: str, data_start: int) -> TensorRef:
    pairs = entry if isinstance(entry, tuple) else ()
    fields = dict(pairs)
    dtype = fields.get("dtype")
    shape, offsets = _sizes(fields.get("shape")), _sizes(fields.get("data_offsets"))
    proper = _is_text(name) and _is_text(dtype) and len(fields) == len(pairs)
    if not proper or shape is None or offsets is None:
        line = f"entry {number} of the header lacks a proper dtype, shape or data_offsets"
        raise ModelError("bad-header", f"{file}: {line}")
    assert isinstance(dtype, str)
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        line = f"entry {number} of the header has no proper pair of offsets"
        raise ModelError("bad-offsets", f"{file}: {line}")
    n_bits, n_elements = 8 * (offsets[1] - offsets[0]), _n_elements(shape)
    element_bits = _bits(dtype)
    if n_elements is None or (element_bits and n_elements * element_bits != n_bits):
        line = f"entry {number} of the header has a shape that does not fit its offsets"
        raise ModelError("bad-offsets", f"{file}: {line}")
    return TensorRef(
        name=name,
        dtype=dtype,
        shape=shape,
        file=file,
        start=data_start + offsets[0],
        stop=data_start + offsets[1],
    )


def _require_tiling(refs: Sequence[TensorRef], start: int, file: str, size: int) -> None:
    end = start
    for ref in refs:
        if ref.start != end:
            line = "two tensors overlap" if ref.start < end else "a hole lies between two tensors"
            raise ModelError("bad-offsets", f"{file}: {line}")
        end = ref.stop
    if end > size:
        line = f"its tensors do not end within its {size} bytes; fetch it again"
        raise ModelError("truncated", f"{file}: {line}")
    if end < size:
        raise ModelError("bad-offsets", f"{file}: bytes after the last tensor belong to none")


def _sizes(values: object) -> tuple[int, ...] | None:
    if not isinstance(values, list):
        return None
    if not all(type(value) is int and 0 <= value < 2**63 for value in values):
        return None
    return tuple(values)


def _n_elements(shape: tuple[int, ...]) -> int | None:
    """Elements of a tensor; None where torch could not number them."""
    if len(shape) > MAX_DIMS:
        return None
    extent = math.prod(max(size, 1) for size in shape)
    if extent >= 2**63:
        return None
    return 0 if 0 in shape else extent


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not _SURROGATE.search(value)


def _bits(dtype: str) -> int | None:
    if dtype in DTYPES:
        return 8 * int(DTYPES[dtype].itemsize)
    return 8 if dtype.startswith("F8_") else _OTHER_BITS.get(dtype)
