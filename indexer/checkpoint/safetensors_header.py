"""Safetensors headers, parsed and checked; bytes to tensors. The same for files and ranges."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from ...errors import ModelError
from .base import TensorRef

MAX_HEADER = 100_000_000
"""Bytes; the limit of the safetensors library."""

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Types that are read; others may stand in a header but not be asked for."""

_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64, "U64": 64, "U32": 32, "U16": 16}


def header_length(first8: bytes, *, file: str, file_size: int) -> int:
    """Length in bytes of the JSON header that follows the first 8 bytes.

    Raises:
        ModelError: `truncated` or `bad-header`.
    """
    if len(first8) < 8 or file_size < 8:
        raise ModelError("truncated", f"{file}: {file_size} bytes are too few for a header")
    length = int.from_bytes(first8[:8], "little")
    if length > MAX_HEADER:
        raise ModelError("bad-header", f"{file}: header of {length} bytes, at most {MAX_HEADER}")
    if 8 + length > file_size:
        raise ModelError("truncated", f"{file}: header of {length} bytes in a file of {file_size}")
    return length


def parse_header(head: bytes, *, file: str, file_size: int) -> tuple[TensorRef, ...]:
    """The tensors that a file declares, by position in the file.

    `head` holds at least the 8 length bytes and the header. Like the safetensors library,
    it refuses tensors that overlap, leave holes, or do not end where the file ends.

    Raises:
        ModelError: `truncated`, `bad-header`, `bad-offsets`, `duplicate-tensor`.
    """
    length = header_length(head[:8], file=file, file_size=file_size)
    entries = _parse_json(head[8 : 8 + length], file)
    refs = sorted(
        (_tensor_ref(name, entry, file, 8 + length) for name, entry in entries.items()),
        key=lambda ref: (ref.start, ref.stop),
    )
    end = 8 + length
    for ref in refs:
        if ref.stop > file_size:
            raise ModelError(
                "truncated", f"{file}: tensor {ref.name!r} ends at {ref.stop} of {file_size} bytes"
            )
        if ref.start != end:
            what = "overlaps another" if ref.start < end else "leaves a hole before it"
            raise ModelError("bad-offsets", f"{file}: tensor {ref.name!r} {what}")
        end = ref.stop
    if end != file_size:
        raise ModelError("bad-offsets", f"{file}: {file_size - end} bytes belong to no tensor")
    return tuple(refs)


def decode(buffer: bytearray, ref: TensorRef) -> torch.Tensor:
    """The tensor whose bytes `buffer` holds; shares its memory.

    Raises:
        ModelError: `unsupported-dtype`.
    """
    dtype = DTYPES.get(ref.dtype)
    if dtype is None:
        raise ModelError("unsupported-dtype", f"{ref.file}: tensor {ref.name!r} is {ref.dtype}")
    if not buffer:
        return torch.zeros(ref.shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype).reshape(ref.shape)


def _parse_json(text: bytes, file: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
            raise ModelError("duplicate-tensor", f"{file}: the name {twice!r} stands twice")
        return found

    try:
        entries = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as err:
        raise ModelError("bad-header", f"{file}: the header is not JSON") from err
    if not isinstance(entries, dict):
        raise ModelError("bad-header", f"{file}: the header is not a JSON object")
    entries.pop("__metadata__", None)
    return entries


def _tensor_ref(name: str, entry: object, file: str, data_start: int) -> TensorRef:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = (fields.get(k) for k in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(offsets):
        raise ModelError("bad-header", f"{file}: tensor {name!r} is not fully described")
    assert isinstance(shape, list)
    assert isinstance(offsets, list)
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelError("bad-offsets", f"{file}: tensor {name!r} has offsets {offsets}")
    bits = _bits(dtype)
    n_bytes = offsets[1] - offsets[0]
    if bits is not None and math.prod(shape) * bits != n_bytes * 8:
        raise ModelError(
            "bad-offsets", f"{file}: tensor {name!r} of shape {shape} {dtype} has {n_bytes} bytes"
        )
    return TensorRef(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        file=file,
        start=data_start + offsets[0],
        stop=data_start + offsets[1],
    )


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**62 for v in values
    )


def _bits(dtype: str) -> int | None:
    """Bits an element; None for a spelling that is not known."""
    if dtype in DTYPES:
        return 8 * DTYPES[dtype].itemsize
    return 8 if dtype.startswith("F8_") else _BITS.get(dtype)
