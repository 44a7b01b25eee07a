"""One NumPy archive (`.npz`), as early MLX saved adapters: arrays by position, never unpickled."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from ...errors import ModelError
from ..untrusted_text import shown
from . import files
from .bin_file import Entry, content_of, read_directory, require_checksum

LONGEST_HEAD = 16 << 10
"""Bytes of an entry that hold its local header and the array's; MLX's are some 200."""

_TYPES = {
    "<f8": "F64", "<f4": "F32", "<f2": "F16", "|V2": "BF16", "|b1": "BOOL",
    "<i8": "I64", "<i4": "I32", "<i2": "I16", "|i1": "I8",
    "<u8": "U64", "<u4": "U32", "<u2": "U16", "|u1": "U8",
}  # fmt: skip
"""By NumPy's spelling, in which MLX calls bfloat16 two bytes without a type."""


@dataclass(frozen=True, slots=True)
class _Array:
    """`offset`: of the values in the entry; `turned`: the first dimension runs fastest."""

    ref: files.TensorRef
    entry: Entry
    offset: int
    turned: bool


class NpzFile(files.TensorFile):
    """One `.npz`; a TensorRef here has no place in the file, only a size."""

    def __init__(self, source: files.ByteSource) -> None:
        self._arrays: dict[str, _Array] = {}
        for name, entry in read_directory(source).items():
            head = source.read(entry.begin, min(entry.end, entry.begin + LONGEST_HEAD))
            array = _array(name, entry, memoryview(head), source.name)
            self._arrays[array.ref.name] = array
        refs = [array.ref for array in self._arrays.values()]
        super().__init__(source, refs, source.size - sum(ref.stop - ref.start for ref in refs))
        self._has_checksums = all(array.entry.crc for array in self._arrays.values())

    def stream_rows(
        self, blocks: Iterable[files.RowBlock]
    ) -> Iterator[tuple[files.RowBlock, torch.Tensor]]:
        for block in sorted(blocks, key=lambda b: (self._extent(self._ref(b.tensor)), b.start)):
            rows = self.read(block.tensor).flatten(0, -2)
            yield block, block.cut(rows[block.start : block.stop])

    def _extent(self, ref: files.TensorRef) -> tuple[int, int]:
        entry = self._arrays[ref.name].entry
        return entry.begin, entry.end

    def _decode(self, buffer: files.Buffer, ref: files.TensorRef) -> torch.Tensor:
        array = self._arrays[ref.name]
        content = content_of(buffer, array.entry, ref.file)
        require_checksum(content, array.entry, ref.file, f"tensor {shown(ref.name)}")
        values = content[array.offset :]
        if array.turned:
            return (
                files.decode(values, replace(ref, shape=ref.shape[::-1]))
                .permute(*reversed(range(len(ref.shape))))
                .contiguous()
            )
        return files.decode(values, ref)


def _array(name: str, entry: Entry, head: memoryview, file: str) -> _Array:
    what = f"{file}: entry {shown(name)}"
    start = entry.start_by_header(head, file) - entry.begin
    stream = io.BytesIO(head[start : start + entry.size])
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        read = read if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, turned, dtype = read(stream)
    # NumPy's reader of a damaged header can fail in any way.
    except Exception as err:
        raise ModelError("bad-header", f"{what} is no array of NumPy") from err
    if dtype.hasobject:
        raise ModelError("unsafe-pickle", f"{what} holds Python objects")
    n_elements = files.count_elements(shape) if min(shape, default=0) >= 0 else None
    n_bytes = (n_elements or 0) * dtype.itemsize
    if n_elements is None or stream.tell() + n_bytes != entry.size:
        raise ModelError("bad-offsets", f"{what} has a shape that does not fit its size")
    ref = files.TensorRef(
        name=name.removesuffix(".npy"),
        dtype=_TYPES.get(dtype.str, dtype.str),
        shape=shape,
        file=file,
        start=entry.begin,
        stop=entry.begin + n_bytes,
    )
    return _Array(ref, entry, stream.tell(), turned and len(shape) > 1)
