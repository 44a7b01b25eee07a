"""One safetensors file: its header parsed and checked, its tensors and rows read by position."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence

import torch

from ...errors import ModelError
from ..untrusted_text import shown
from .byte_source import Buffer, ByteSource
from .tensor_file import DTYPES, LFS_POINTER, RowBlock, TensorFile, TensorRef

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
    """The list as sizes; None where it is anything else."""
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
    """Bits an element; None for a spelling that is not known."""
    if dtype in DTYPES:
        return 8 * int(DTYPES[dtype].itemsize)
    return 8 if dtype.startswith("F8_") else _OTHER_BITS.get(dtype)
