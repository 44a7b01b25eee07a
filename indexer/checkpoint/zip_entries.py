"""The entries of a zip archive that is not compressed inside, over a source of bytes.

What torch saves is such an archive. The directory at its end says where entries begin, and how long
their contents are, but not where within an entry the content begins: that is in the entry's own
local header, and follows from the data descriptor behind the content, where there is one.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass

from ...errors import ModelError
from .byte_source import Buffer, ByteSource
from .tensor_file import LFS_POINTER

MAX_DIRECTORY = 32 << 20
"""Bytes of an archive's own list, some 400,000 tensors; in Python it takes ten times as much."""

LONGEST_END = (64 << 10) + 22 + 20 + 56
"""Bytes of what can follow an archive's list: two records, a locator, a comment."""

SHORTEST_END = 22 + 20 + 56
"""The same without a comment, which torch does not write."""

DAMAGED = (zipfile.BadZipFile, ValueError, OverflowError, RuntimeError, EOFError, struct.error)
"""What zipfile raises beside its own error, for an entry marked as encrypted or far off."""

LOCAL_HEADER = 30
"""Bytes of an entry's local header before its name."""

_HAS_DESCRIPTOR = 0x08
_FAR = 0xFFFFFFFF
"""Sizes and places from here on have eight bytes."""

_END = b"PK\x05\x06"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an archive.

    Attributes:
        begin: Where it begins, with its local header.
        end: Where the next one does.
        size: Bytes of content.
        crc: Of the content; 0 where none is listed.
        descriptor: Bytes of the data descriptor between the content and `end`; 0 without.
    """

    begin: int
    end: int
    size: int
    crc: int
    descriptor: int

    @property
    def likely_start(self) -> int:
        """Where the content begins if nothing but its descriptor follows it."""
        return self.end - self.descriptor - self.size

    def start_by_header(self, head: Buffer | bytes, file: str) -> int:
        """Where the content begins, as the entry's local header says.

        Raises:
            ModelError: it is no header, or the content would reach into the next entry.
        """
        if len(head) < LOCAL_HEADER or bytes(head[:4]) != b"PK\x03\x04":
            line = "an archive entry does not begin where it should"
            raise ModelError("bad-header", f"{file}: {line}")
        name_bytes, extra_bytes = struct.unpack_from("<2H", head, 26)
        start: int = self.begin + LOCAL_HEADER + name_bytes + extra_bytes
        if start + self.size > self.end:
            raise ModelError("bad-offsets", f"{file}: an archive entry reaches into the next")
        return start

    def is_described_by(self, tail: Buffer | bytes) -> bool:
        """Whether these bytes, the last before `end`, are the content's descriptor.

        APPNOTE 6.3.10, 4.3.9: a signature, the CRC, the size twice.
        """
        if not self.descriptor or len(tail) != self.descriptor:
            return False
        sizes = struct.pack("<2Q" if self.descriptor == 24 else "<2L", self.size, self.size)
        # a writer that computes no CRCs lists 0, and describes 0
        return bytes(tail) == b"PK\x07\x08" + struct.pack("<L", self.crc) + sizes


class _SeekableSource(io.RawIOBase):
    """A source as a file to seek in; its end is read once, the rest on demand."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0
        self._read_end(max(source.plan.first, SHORTEST_END))
        if self._end[-22:-18] != _END:
            self._read_end(LONGEST_END)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = (0, self._at, self._source.size)[whence]
        if origin + offset < 0:
            raise OSError("before the beginning of the file")
        self._at = origin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._source.size if size < 0 else min(self._at + size, self._source.size)
        start, self._at = self._at, max(self._at, stop)
        if start >= stop:
            return b""
        if start >= self._end_start:
            return self._end[start - self._end_start : stop - self._end_start]
        return bytes(self._source.read(start, stop))

    def _read_end(self, n_bytes: int) -> None:
        self._end_start = max(0, self._source.size - n_bytes)
        self._end = bytes(self._source.read(self._end_start, self._source.size))

    def listed_bytes(self) -> int:
        """Length of the archive's own list as it declares it. APPNOTE 6.3.10, 4.3.14 to 4.3.16."""
        at = self._end.rfind(_END)
        (listed,) = struct.unpack_from("<L", self._end, at + 12)
        far = self._end.rfind(b"PK\x06\x06", 0, at)
        if listed == _FAR and far >= 0:
            (listed,) = struct.unpack_from("<Q", self._end, far + 40)
        return int(listed)


def read_directory(source: ByteSource) -> dict[str, Entry]:
    """The archive's entries by name, from its directory alone; of torch's zip form or refused."""
    name, file = source.name, _SeekableSource(source)
    try:
        if not zipfile.is_zipfile(file):
            raise _not_an_archive(bytes(source.read(0, min(8, source.size))), name)
        if file.listed_bytes() > MAX_DIRECTORY:
            line = f"the archive's list is longer than {MAX_DIRECTORY} bytes"
            raise ModelError("bad-header", f"{name}: {line}")
        with zipfile.ZipFile(file) as archive:
            infos, directory_start = archive.infolist(), archive.start_dir
    except (*DAMAGED, OSError) as err:
        raise ModelError("truncated", f"{name}: the archive's list is damaged") from err
    if any(info.filename.endswith("/constants.pkl") for info in infos):
        line = "a TorchScript program, not a state dict; save model.state_dict()"
        raise ModelError("unsafe-pickle", f"{name}: {line}")
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        line = "compressed inside; write it again with torch.save"
        raise ModelError("bad-header", f"{name}: {line}")
    infos.sort(key=lambda info: info.header_offset)
    bounds = [0, *(info.header_offset for info in infos), directory_start, source.size]
    if bounds != sorted(bounds):
        raise ModelError("truncated", f"{name}: the archive's list is damaged")
    return {
        info.filename: Entry(
            info.header_offset, end, info.file_size, info.CRC, _descriptor_bytes(info)
        )
        for info, end in zip(infos, bounds[2:], strict=False)
    }


def _descriptor_bytes(info: zipfile.ZipInfo) -> int:
    """Of the data descriptor as torch writes it: longer where sizes or places have eight bytes."""
    if not info.flag_bits & _HAS_DESCRIPTOR:
        return 0
    return 24 if max(info.file_size, info.header_offset) >= _FAR else 16


def _not_an_archive(start: bytes, name: str) -> ModelError:
    if not start or start.startswith(b"PK"):
        return ModelError("truncated", f"{name}: the archive ends early; fetch it again")
    if start == LFS_POINTER:
        line = "a Git LFS pointer, not the weights; run `git lfs pull`"
        return ModelError("bad-header", f"{name}: {line}")
    line = "not torch's zip form, and nothing else is unpickled; save it as safetensors"
    return ModelError("legacy-pickle", f"{name}: {line}")


def small_entry(source: ByteSource, entry: Entry, limit: int) -> bytes:
    if max(entry.size, entry.end - entry.begin) > limit:
        line = f"an entry beside the tensors is longer than {limit} bytes"
        raise ModelError("bad-header", f"{source.name}: {line}")
    content = bytes(content_of(source.read(entry.begin, entry.end), entry, source.name))
    require_checksum(content, entry, source.name, "an entry beside the tensors")
    return content


def content_of(buffer: Buffer, entry: Entry, file: str) -> memoryview:
    """An entry's content in the bytes of the whole entry, its local header included."""
    begin = entry.start_by_header(buffer[:LOCAL_HEADER], file) - entry.begin
    if begin + entry.size > len(buffer):
        raise ModelError("bad-offsets", f"{file}: an archive entry reaches into the next")
    return memoryview(buffer)[begin : begin + entry.size]


def require_checksum(content: bytes | memoryview, entry: Entry, file: str, what: str) -> None:
    """Raise where content does not have the archive's CRC; 0 is what torch writes for none."""
    if entry.crc and zlib.crc32(content) != entry.crc:
        line = "its CRC is not the one that the archive lists; fetch it again"
        raise ModelError("checksum-mismatch", f"{file}: {what}: {line}")
