"""A torch archive (`.bin`) behind a byte source: only the wanted tensors are fetched.

torch stores the elements uncompressed, so they can be read by range. Where they are, torch
itself says: it reads the archive's own list, weights only, from a small copy of the archive
in which every storage is empty; on the meta device it notes where a storage would begin,
without looking into it. Nothing else is unpickled.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..checkpoint import TensorRef
from ..checkpoint.pickled import ALLOCATES, LONGEST_END, MAX_DIRECTORY, directory_bytes
from ..checkpoint.safetensors_header import DTYPES
from .byte_sources import ByteSource
from .ranged import RangedFile

MAX_LIST = 64 << 20
"""Bytes of the pickled list of tensors."""

_SPELLING = {dtype: name for name, dtype in DTYPES.items()}
_NESTED = ("state_dict", "model", "module")
_LOCAL_HEADER = 30


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor within its storage, in elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the archive: where it begins, where the next does, bytes of content."""

    begin: int
    end: int
    size: int


class RangedBin(RangedFile):
    """One `.bin` in torch's zip form. A TensorRef's range is its whole archive entry."""

    def __init__(self, source: ByteSource, *, ahead: bool = False) -> None:
        entries = _directory(source)
        prefix = next((n[: -len("data.pkl")] for n in entries if n.endswith("/data.pkl")), None)
        if prefix is None:
            raise ModelError("bad-header", f"{source.name}: an archive without data.pkl")
        _require_little_endian(source, entries.get(f"{prefix}byteorder"))
        state, storage_at = _list_tensors(source, entries, prefix)
        self._views: dict[str, _View] = {}
        self._entries: dict[str, _Entry] = {}
        for name, tensor in state.items():
            begin = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
            if begin not in storage_at:
                line = "this torch cannot list it by ranges; update torch, or download it"
                raise ModelError("legacy-pickle", f"{source.name}: {line}")
            self._entries[name] = entries[storage_at[begin]]
            self._views[name] = _View(
                tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
            )
        super().__init__(source, [self._as_ref(name, source.name) for name in state], ahead=ahead)

    def _as_ref(self, name: str, file: str) -> TensorRef:
        view, entry = self._views[name], self._entries[name]
        return TensorRef(
            name=name,
            dtype=_SPELLING.get(view.dtype, str(view.dtype)),
            shape=view.shape,
            file=file,
            start=entry.begin,
            stop=entry.end,
        )

    def _decode(self, buffer: bytearray, ref: TensorRef) -> torch.Tensor:
        view = self._views[ref.name]
        if view.dtype not in _SPELLING:
            raise ModelError("unsupported-dtype", f"{ref.file}: tensor {ref.name!r} is {ref.dtype}")
        content = _content(buffer, self._entries[ref.name], ref.file)
        if 0 in view.shape:
            return torch.zeros(view.shape, dtype=view.dtype)
        try:
            storage = torch.frombuffer(content, dtype=view.dtype)
            return storage.as_strided(view.shape, view.stride, view.offset).contiguous()
        except (RuntimeError, ValueError) as err:
            line = f"{ref.file}: tensor {ref.name!r} lies outside its storage"
            raise ModelError("bad-offsets", line) from err


class _TailedFile(io.RawIOBase):
    """A source as a file to seek in; its end is fetched once, the rest when asked for."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0
        self._tail_start = max(0, source.size - LONGEST_END)
        self._tail = source.read(self._tail_start, source.size)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = (0, self._at, self._source.size)[whence]
        if origin + offset < 0:
            raise OSError("before the beginning of the file")
        self._at = origin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._source.size if size < 0 else min(self._at + size, self._source.size)
        begin, self._at = self._at, max(self._at, end)
        if begin >= end:
            return b""
        if begin >= self._tail_start:
            return bytes(self._tail[begin - self._tail_start : end - self._tail_start])
        return bytes(self._source.read(begin, end))


def _directory(source: ByteSource) -> dict[str, _Entry]:
    """The archive's entries by name, from its directory alone."""
    file = _TailedFile(source)
    try:
        if zipfile.is_zipfile(file) and directory_bytes(file, source.size) > MAX_DIRECTORY:
            raise ModelError("bad-header", f"{source.name}: the archive's list is too long")
        with zipfile.ZipFile(file) as archive:
            infos, directory_at = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as err:
        start = bytes(source.read(0, min(4, source.size)))
        if start == b"PK\x03\x04" or source.size == 0:
            raise ModelError("truncated", f"{source.name}: the archive ends early") from err
        line = "not torch's zip form; it would have to be unpickled, save it again"
        raise ModelError("legacy-pickle", f"{source.name}: {line}") from err
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise ModelError("bad-header", f"{source.name}: a compressed archive, not torch's")
    infos.sort(key=lambda info: info.header_offset)
    ends = [*(info.header_offset for info in infos[1:]), directory_at]
    return {
        info.filename: _Entry(info.header_offset, end, info.file_size)
        for info, end in zip(infos, ends, strict=True)
    }


def _list_tensors(
    source: ByteSource, entries: Mapping[str, _Entry], prefix: str
) -> tuple[dict[str, torch.Tensor], dict[int, str]]:
    """The tensors on the meta device, and each entry's name by the place torch notes."""
    pickled = entries[f"{prefix}data.pkl"]
    if pickled.end - pickled.begin > MAX_LIST:
        raise ModelError("bad-header", f"{source.name}: a list of tensors of {pickled.size} bytes")
    content = _content(source.read(pickled.begin, pickled.end), pickled, source.name)
    if ALLOCATES in bytes(content):
        raise ModelError("unsafe-pickle", f"{source.name}: holds more than tensors: 'bytearray'")
    skeleton, storage_at = _skeleton(bytes(content), entries, prefix)
    try:
        state = torch.load(skeleton, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as err:
        raise ModelError("unsafe-pickle", f"{source.name}: holds more than tensors") from err
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError, TypeError) as err:
        raise ModelError("truncated", f"{source.name}: its list of tensors is damaged") from err
    for key in _NESTED:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        line = f"{source.name}: holds a {type(state).__name__}, not tensors"
        raise ModelError("unsafe-pickle", line)
    return {name: t for name, t in state.items() if _is_plain(name, t)}, storage_at


def _is_plain(name: object, value: object) -> bool:
    return (
        isinstance(name, str) and isinstance(value, torch.Tensor) and value.layout == torch.strided
    )


def _skeleton(
    pickled: bytes, entries: Iterable[str], prefix: str
) -> tuple[io.BytesIO, dict[int, str]]:
    """The archive with empty storages, and each entry by where its content would be."""
    file = io.BytesIO()
    storages = [name for name in entries if name.startswith(f"{prefix}data/")]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as copy:
        copy.writestr(f"{prefix}data.pkl", pickled)
        copy.writestr(f"{prefix}version", b"3\n")
        for name in storages:
            copy.writestr(name, b"")
        places = {
            copy.getinfo(name).header_offset + _LOCAL_HEADER + len(name.encode()): name
            for name in storages
        }
    file.seek(0)
    return file, places


def _content(buffer: bytearray, entry: _Entry, file: str) -> bytearray:
    """An entry's content from the bytes of the whole entry, its local header included."""
    if len(buffer) < _LOCAL_HEADER or buffer[:4] != b"PK\x03\x04":
        raise ModelError("bad-header", f"{file}: an archive entry does not begin where it should")
    names = int.from_bytes(buffer[26:28], "little") + int.from_bytes(buffer[28:30], "little")
    begin = _LOCAL_HEADER + names
    if begin + entry.size > len(buffer):
        raise ModelError("bad-offsets", f"{file}: an archive entry reaches into the next")
    return buffer[begin : begin + entry.size]


def _require_little_endian(source: ByteSource, entry: _Entry | None) -> None:
    if entry is None:
        return
    content = _content(source.read(entry.begin, entry.end), entry, source.name)
    if content.strip() != b"little":
        raise ModelError("unsupported-dtype", f"{source.name}: stored in big-endian order")
