"""`.bin` files: torch's zip form, tensors only, mapped; never unpickled otherwise."""

from __future__ import annotations

import io
import pickle
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import torch

from ...errors import ModelError
from .base import RowBlock, TensorRef
from .safetensors_header import DTYPES, LFS_POINTER, shown

_SPELLING = {dtype: name for name, dtype in DTYPES.items()} | {
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_Opened = io.BytesIO | io.BufferedReader
_NESTED = ("state_dict", "model", "module")

MAX_DIRECTORY = 32 << 20
"""Bytes of an archive's own list, some 400,000 tensors; in Python it takes ten times as much."""

MAX_LIST = 64 << 20
"""Bytes of the pickled list of tensors."""

_DAMAGED = (ValueError, OverflowError, RuntimeError, EOFError, struct.error)
"""What zipfile raises beside its own error, for an entry that says it is encrypted or far off."""

LONGEST_END = (64 << 10) + 22 + 20 + 56
"""Bytes of what can follow an archive's list: two records, a locator, a comment."""

ALLOCATES = b"\nbytearray\n"
"""The one name that torch's weights-only reader allows and that fills memory by a number."""


class PickledCheckpoint:
    """The tensors of one zip-form `.bin`, mapped from disk or already in memory.

    A TensorRef here has no place in the file: start is 0, stop its own size in bytes.
    Peak: one tensor, beside what is in memory already.
    """

    concurrent = False

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        *,
        file: str,
        bytes_total: int,
        bytes_read: int,
    ) -> None:
        self._file = file
        self._in_memory = bytes_read == bytes_total
        self._tensors = dict(tensors)
        self.bytes_total = bytes_total
        self.bytes_read = bytes_read
        self.tensors: Mapping[str, TensorRef] = {
            name: _tensor_ref(name, tensor, file) for name, tensor in tensors.items()
        }

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype, contiguous."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelError("missing-tensor", f"{self._file}: no tensor {shown(name)}")
        ref = self.tensors[name]
        if ref.dtype not in DTYPES:
            line = f"tensor {shown(name)} is {ref.dtype}, which is not read"
            raise ModelError("unsupported-dtype", f"{self._file}: {line}")
        if ref.stop > (stored := min(tensor.untyped_storage().nbytes(), self.bytes_total)):
            line = f"tensor {shown(name)} repeats {stored} stored bytes over {ref.stop}"
            raise ModelError("bad-offsets", f"{self._file}: {line}")
        if not self._in_memory:
            self.bytes_read += ref.stop
        return tensor.clone(memory_format=torch.contiguous_format)

    def view(self, name: str) -> AbstractContextManager[torch.Tensor]:
        """The same, for a block."""
        return nullcontext(self.read(name))

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors in the order of the file's own list."""
        place = {name: i for i, name in enumerate(self._tensors)}
        for name in sorted(dict.fromkeys(names), key=lambda name: place.get(name, -1)):
            yield name, self.read(name)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows, cut from whole tensors."""
        for name, of_one in groupby(sorted(blocks, key=attrgetter("tensor")), attrgetter("tensor")):
            rows = self.read(name).flatten(0, -2)
            for block in of_one:
                yield block, rows[block.start : block.stop]

    def close(self) -> None:
        self._tensors.clear()


def open_bin(path: Path) -> PickledCheckpoint:
    """A `.bin` on disk, mapped.

    Raises:
        ModelError: `legacy-pickle`, `unsafe-pickle`, `bad-header`, `truncated`,
            `unreadable`, `no-weights`.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            listed = _read_directory(file, path.name, size)
        tensors = _load(path, path.name)
    except OSError as err:
        raise ModelError("unreadable", f"{path.name}: {err.strerror or err}") from err
    return PickledCheckpoint(tensors, file=path.name, bytes_total=size, bytes_read=listed)


def open_bin_bytes(data: bytes, file: str) -> PickledCheckpoint:
    """A `.bin` that is in memory already; all of it counts as read.

    Raises:
        ModelError: as `open_bin`.
    """
    _read_directory(io.BytesIO(data), file, len(data))
    tensors = _load(io.BytesIO(data), file)
    return PickledCheckpoint(tensors, file=file, bytes_total=len(data), bytes_read=len(data))


def _read_directory(file: _Opened, name: str, size: int) -> int:
    """Bytes of the archive that are no tensors, once it is known to be of torch's zip form."""
    start = file.read(8)
    try:
        if not zipfile.is_zipfile(file):
            raise _not_an_archive(start, name)
        if (listed := directory_bytes(file, size)) > MAX_DIRECTORY:
            line = f"a list of {listed} bytes, at most {MAX_DIRECTORY} are read"
            raise ModelError("bad-header", f"{name}: {line}")
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _require_modest_pickle(archive, entries, name)
    except (zipfile.BadZipFile, *_DAMAGED) as err:
        raise ModelError("truncated", f"{name}: the archive's list is damaged") from err
    if any(entry.filename.endswith("/constants.pkl") for entry in entries):
        line = "a TorchScript program, not a state dict; save model.state_dict()"
        raise ModelError("unsafe-pickle", f"{name}: {line}")
    # torch maps a compressed entry as if it were not, and gives its bytes as numbers.
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        line = "compressed inside; write it again with torch.save"
        raise ModelError("bad-header", f"{name}: {line}")
    stored = sum(entry.file_size for entry in entries if "/data/" in entry.filename)
    return max(0, size - stored)


def directory_bytes(file: _Opened | io.RawIOBase, size: int) -> int:
    """How long the archive says that its own list is. APPNOTE 6.3.10, 4.3.14 to 4.3.16."""
    file.seek(max(0, size - LONGEST_END))
    end = file.read(LONGEST_END) or b""
    at = end.rfind(b"PK\x05\x06")
    (listed,) = struct.unpack_from("<L", end, at + 12)
    far = end.rfind(b"PK\x06\x06", 0, at)
    if listed == 0xFFFFFFFF and far >= 0:
        (listed,) = struct.unpack_from("<Q", end, far + 40)
    return int(listed)


def _require_modest_pickle(
    archive: zipfile.ZipFile, entries: Sequence[zipfile.ZipInfo], name: str
) -> None:
    """Pass unless the list of tensors is vast, or asks for memory that no file holds.

    Raises:
        ModelError: `bad-header`, `unsafe-pickle`.
    """
    for entry in entries:
        if not entry.filename.endswith("data.pkl"):
            continue
        if entry.file_size > MAX_LIST:
            line = f"a list of tensors of {entry.file_size} bytes"
            raise ModelError("bad-header", f"{name}: {line}, at most {MAX_LIST} are read")
        if entry.compress_type == zipfile.ZIP_STORED and ALLOCATES in archive.read(entry):
            raise ModelError("unsafe-pickle", f"{name}: holds more than tensors: 'bytearray'")


def _not_an_archive(start: bytes, name: str) -> ModelError:
    if not start or start.startswith(b"PK"):
        return ModelError("truncated", f"{name}: the archive ends early; fetch it again")
    if start == LFS_POINTER:
        line = "a Git LFS pointer, not the weights; run `git lfs pull`"
        return ModelError("bad-header", f"{name}: {line}")
    line = "not torch's zip form, and nothing else is unpickled; save it as safetensors"
    return ModelError("legacy-pickle", f"{name}: {line}")


def _load(source: Path | io.BytesIO, name: str) -> dict[str, torch.Tensor]:
    """The tensors of a state dict, bare or one level down, without gradients."""
    try:
        state = torch.load(
            source, map_location="cpu", weights_only=True, mmap=isinstance(source, Path)
        )
    except pickle.UnpicklingError as err:
        raise ModelError("unsafe-pickle", f"{name}: {_offence(str(err))}") from err
    except RuntimeError as err:
        line = f"the archive is damaged: {shown(str(err).partition('.')[0])}"
        raise ModelError("truncated", f"{name}: {line}") from err
    except OSError:
        raise
    # A damaged pickle can make torch's restricted reader fail in any way.
    except Exception as err:
        line = f"its list of tensors is damaged ({type(err).__name__})"
        raise ModelError("unsafe-pickle", f"{name}: {line}") from err
    tensors = _tensors_in(state)
    for key in _NESTED:
        if not tensors and isinstance(state, dict):
            tensors = _tensors_in(state.get(key))
    if not tensors:
        raise ModelError("no-weights", f"{name}: no tensors by name; expected a state dict")
    return tensors


def _tensors_in(state: object) -> dict[str, torch.Tensor]:
    if not isinstance(state, dict):
        return {}
    return {
        name: value.detach()
        for name, value in state.items()
        if isinstance(name, str) and isinstance(value, torch.Tensor)
    }


def _offence(message: str) -> str:
    """What torch's weights-only reader stumbled over, from its long message."""
    if found := re.search(r"GLOBAL (\S+)", message):
        return f"holds more than tensors: {shown(found[1])}"
    found = re.search(r"WeightsUnpickler error:\s*(.*)", message)
    why = shown(found[1].strip()) if found else "no reason given"
    return f"torch's weights-only reader refuses it: {why}; save it as safetensors"


def _tensor_ref(name: str, tensor: torch.Tensor, file: str) -> TensorRef:
    if tensor.layout is not torch.strided:
        dtype = str(tensor.layout)
    elif tensor.is_meta:
        dtype = "meta"
    else:
        dtype = _SPELLING.get(tensor.dtype, str(tensor.dtype))
    return TensorRef(
        name=name,
        dtype=dtype,
        shape=tuple(tensor.shape),
        file=file,
        start=0,
        stop=tensor.numel() * tensor.itemsize,
    )
