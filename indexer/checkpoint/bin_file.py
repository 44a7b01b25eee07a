"""One torch archive (`.bin`): tensors only, never unpickled otherwise, read by position.

What torch saves is a zip archive that is not compressed inside, so elements can be read where they
are. Where that is, torch itself says: its weights-only reader reads the archive's own list from a
small copy of the archive in which every storage is empty; on the meta device it notes where a
storage would begin, without looking into it.

The directory at the archive's end says where entries begin, and how long their contents are, but
not where within an entry the content begins: that is in the entry's own local header, and follows
from the data descriptor behind the content, where there is one. One of the two is read beside the
rows; nothing is taken to be where it likely is.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter

import torch

from ...errors import ModelError
from ...records import Verification
from ..untrusted_text import shown
from . import files

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
    """One entry of an archive. `crc`: of the content, 0 where none is listed; `descriptor`: bytes
    of the data descriptor between the content and `end`."""

    begin: int
    end: int
    size: int
    crc: int
    descriptor: int

    @property
    def likely_start(self) -> int:
        """Where the content begins if nothing but its descriptor follows it."""
        return self.end - self.descriptor - self.size

    def start_by_header(self, head: files.Buffer | bytes, file: str) -> int:
        if len(head) < LOCAL_HEADER or bytes(head[:4]) != b"PK\x03\x04":
            line = "an archive entry does not begin where it should"
            raise ModelError("bad-header", f"{file}: {line}")
        name_bytes, extra_bytes = struct.unpack_from("<2H", head, 26)
        start: int = self.begin + LOCAL_HEADER + name_bytes + extra_bytes
        if start + self.size > self.end:
            raise ModelError("bad-offsets", f"{file}: an archive entry reaches into the next")
        return start

    def is_described_by(self, tail: files.Buffer | bytes) -> bool:
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

    def __init__(self, source: files.ByteSource) -> None:
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


def read_directory(source: files.ByteSource) -> dict[str, Entry]:
    """The archive's entries by name, from its directory alone; not compressed, or refused."""
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
        raise ModelError("bad-header", f"{name}: compressed inside; save it again uncompressed")
    if len({info.filename for info in infos}) < len(infos):
        raise ModelError("duplicate-tensor", f"{name}: the archive lists a name twice")
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
    """Size of the data descriptor as torch writes it: longer where sizes or places have 8 bytes."""
    if not info.flag_bits & _HAS_DESCRIPTOR:
        return 0
    return 24 if max(info.file_size, info.header_offset) >= _FAR else 16


def _not_an_archive(start: bytes, name: str) -> ModelError:
    if not start or start.startswith(b"PK"):
        return ModelError("truncated", f"{name}: the archive ends early; fetch it again")
    if start == files.LFS_POINTER:
        line = "a Git LFS pointer, not the weights; run `git lfs pull`"
        return ModelError("bad-header", f"{name}: {line}")
    if name.endswith(".npz"):
        return ModelError("bad-header", f"{name}: not a zip archive; save it as safetensors")
    line = "not torch's zip form, and nothing else is unpickled; save it as safetensors"
    return ModelError("legacy-pickle", f"{name}: {line}")


def small_entry(source: files.ByteSource, entry: Entry, limit: int) -> bytes:
    if max(entry.size, entry.end - entry.begin) > limit:
        line = f"an entry beside the tensors is longer than {limit} bytes"
        raise ModelError("bad-header", f"{source.name}: {line}")
    content = bytes(content_of(source.read(entry.begin, entry.end), entry, source.name))
    require_checksum(content, entry, source.name, "an entry beside the tensors")
    return content


def content_of(buffer: files.Buffer, entry: Entry, file: str) -> memoryview:
    """An entry's content in the bytes of the whole entry, its local header included."""
    begin = entry.start_by_header(buffer[:LOCAL_HEADER], file) - entry.begin
    return memoryview(buffer)[begin : begin + entry.size]


def require_checksum(content: bytes | memoryview, entry: Entry, file: str, what: str) -> None:
    if entry.crc and zlib.crc32(content) != entry.crc:
        line = "its CRC is not the one that the archive lists; fetch it again"
        raise ModelError("checksum-mismatch", f"{file}: {what}: {line}")


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows of one tensor, in one entry: their first byte within its content, one past the
    last, and the elements from a row to the next and from a column to the next."""

    block: files.RowBlock
    entry: Entry
    start: int
    stop: int
    dtype: torch.dtype
    shape: tuple[int, int]
    steps: tuple[int, int]

    @property
    def order(self) -> tuple[int, int, int, str, int]:
        return self.entry.begin, self.start, self.stop, self.block.tensor, self.block.start

    def decode(self, stored: files.Buffer, *, swapped: bool) -> torch.Tensor:
        """The rows, contiguous and in memory of their own, from the bytes `start` to `stop`."""
        if not len(stored):
            return torch.empty(self.shape, dtype=self.dtype)
        content = torch.frombuffer(stored, dtype=torch.uint8).clone()
        if swapped:
            content = content.view(-1, self.dtype.itemsize).flip(1).reshape(-1)
        return content.view(self.dtype).as_strided(self.shape, self.steps).contiguous()


def stored_rows(block: files.RowBlock, tensor: torch.Tensor, entry: Entry) -> StoredRows | None:
    """Where a block's rows are; None where they are all over the storage, as in transposed and
    repeated tensors."""
    shape, steps = tuple(tensor.shape), tensor.stride()
    if len(shape) < 2 or not tensor.numel():
        return None
    for size, step, outer in zip(shape[1:-1], steps[1:-1], steps[:-2], strict=True):
        if outer != size * step:
            return None
    columns, row_step, column_step = shape[-1], steps[-2], steps[-1]
    row_length = (columns - 1) * column_step + 1
    if row_step < row_length or column_step < 1:
        return None
    n_rows, width = block.stop - block.start, tensor.itemsize
    first = int(tensor.storage_offset()) + block.start * row_step
    length = (n_rows - 1) * row_step + row_length if n_rows else 0
    steps, start, stop = (row_step, column_step), first * width, (first + length) * width
    return StoredRows(block, entry, start, stop, tensor.dtype, (n_rows, columns), steps)


def read_rows(
    source: files.ByteSource, wanted: Iterable[StoredRows], *, swapped: bool
) -> Iterator[tuple[StoredRows, torch.Tensor]]:
    reads = _reads(wanted, source.plan.row_gap)
    starts: dict[Entry, int] = {}
    for first, last, run in files.read_together(reads, source.plan.run, source.plan.row_gap):
        buffer = memoryview(source.read(first, last))
        for start, stop, (entry, rows) in run:
            part = buffer[start - first : stop - first]
            if rows is None:
                starts[entry] = entry.start_by_header(part, source.name)
                continue
            if entry not in starts:
                starts[entry] = _start_by_tail(source, entry, part)
            begin, end = starts[entry] + rows.start, starts[entry] + rows.stop
            if start <= begin and end <= stop:
                stored: files.Buffer = part[begin - start : end - start]
            else:
                stored = source.read(begin, end)
            yield rows, rows.decode(stored, swapped=swapped)


def _reads(
    wanted: Iterable[StoredRows], gap: int
) -> Iterator[tuple[int, int, tuple[Entry, StoredRows | None]]]:
    """The ranges in which rows likely are, and, without rows, headers that prove where."""
    by_entry: dict[Entry, list[StoredRows]] = {}
    for rows in sorted(wanted, key=attrgetter("order")):
        by_entry.setdefault(rows.entry, []).append(rows)
    for entry, of_entry in by_entry.items():
        start = max(entry.begin + LOCAL_HEADER, entry.likely_start)
        first, last = start + of_entry[0].start, start + of_entry[-1].stop
        is_near_end = entry.descriptor and 0 <= entry.end - last <= gap
        by_tail = len(of_entry) == 1 and is_near_end and first - entry.begin > gap
        if not by_tail:
            yield entry.begin, entry.begin + LOCAL_HEADER, (entry, None)
        for rows in of_entry:
            stop = entry.end if by_tail else start + rows.stop
            yield start + rows.start, stop, (entry, rows)


def _start_by_tail(source: files.ByteSource, entry: Entry, part: memoryview) -> int:
    """Where the content begins: counted from the descriptor, if that is what the part ends in."""
    if entry.is_described_by(part[len(part) - entry.descriptor :]):
        return entry.likely_start
    head = source.read(entry.begin, entry.begin + LOCAL_HEADER)
    return entry.start_by_header(head, source.name)


_SPELLING = {dtype: name for name, dtype in files.DTYPES.items()} | {
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}

NESTED = ("state_dict", "model", "module")
"""Where trainers put the state dict among other things that they save."""

_FREQUENT_MODULES = re.compile(
    "accelerate|datasets|deepspeed|lightning|numpy|peft|pytorch_lightning|sklearn|tokenizers"
    "|torch|torchvision|transformers|trl"
)
"""Modules beside Python's own whose objects trainers leave in `.bin` files."""

MAX_NESTING = 3
"""Levels down to which a state dict is searched: `{"state_dict": {"model": {"module": …}}}`."""

MAX_LIST = 64 << 20
"""Bytes of the pickled list of tensors."""

MAX_MARK = 128 << 10
"""Bytes of the entry that holds a word on the byte order, with its name and padding."""

_ALLOCATES = b"\nbytearray\n"
"""The one name that torch's weights-only reader allows and that fills memory by a number."""


class BinFile(files.TensorFile):
    """One `.bin` in torch's zip form; a TensorRef here has no place in the file, only a size. Peak:
    two tensors where one lies unaligned in the file and is read into memory of its own."""

    def __init__(self, source: files.ByteSource) -> None:
        entries = read_directory(source)
        prefixes = (n.removesuffix("data.pkl") for n in entries if n.endswith("/data.pkl"))
        if (prefix := next(prefixes, None)) is None:
            line = "the archive is damaged: it has no list of tensors"
            raise ModelError("truncated", f"{source.name}: {line}")
        order = entries.get(f"{prefix}byteorder")
        mark = b"little" if order is None else small_entry(source, order, MAX_MARK)
        self._swapped = mark.strip() == b"big"
        tensors, entry_at = _list_tensors(source, entries, prefix)
        self._listed = tensors
        self._entries = {name: _entry_of(tensor, entry_at) for name, tensor in tensors.items()}
        used = [entry for entry in self._entries.values() if entry is not None]
        is_plain = any(tensor.layout is torch.strided for tensor in tensors.values())
        if entry_at and is_plain and not used:
            line = "this torch does not say where its tensors are; update torch, 2.7 does"
            raise ModelError("legacy-pickle", f"{source.name}: {line}")
        refs = [_tensor_ref(n, t, self._entries[n], source.name) for n, t in tensors.items()]
        self._checked: set[int] = set()
        self._is_read_in_part = False
        stored = sum(entry.size for name, entry in entries.items() if "/data/" in name)
        super().__init__(source, refs, max(0, source.size - stored))
        self._has_checksums = all(entry.crc for entry in used)

    def read(self, name: str) -> torch.Tensor:
        """One tensor, contiguous; of a storage that many share, its own part where the file is
        mapped."""
        ref = self._ref(name)
        start, stop = self._extent(ref)
        if not self.concurrent or 2 * (ref.stop - ref.start) >= stop - start:
            return super().read(name)
        with self.view(name) as tensor:
            return tensor.clone()

    def stream_rows(
        self, blocks: Iterable[files.RowBlock]
    ) -> Iterator[tuple[files.RowBlock, torch.Tensor]]:
        """The rows by offset; of a file that is read whole, and of tensors whose rows are not one
        after the other, cut from whole tensors, in the same order."""
        blocks = list(dict.fromkeys(blocks))
        places: dict[files.RowBlock, StoredRows | None] = dict.fromkeys(blocks)
        for block in blocks:
            ref, entry = self._ref(block.tensor), self._entries[block.tensor]
            if ref.dtype in files.DTYPES and entry is not None:
                places[block] = stored_rows(block, self._listed[ref.name], entry)
        in_place: list[StoredRows] = []
        if not self._source.plan.whole:
            in_place = [rows for rows in places.values() if rows is not None]
        self._is_read_in_part |= bool(in_place)
        arriving = read_rows(self._source, in_place, swapped=self._swapped)
        cut_from: tuple[str, torch.Tensor] | None = None
        for block in sorted(blocks, key=lambda block: self._row_order(block, places[block])):
            if in_place and places[block] is not None:
                rows, tensor = next(arriving)
                self._count(rows.stop - rows.start)
                yield rows.block, rows.block.cut(tensor)
                continue
            if cut_from is None or cut_from[0] != block.tensor:
                cut_from = block.tensor, self.read(block.tensor).flatten(0, -2)
            yield block, block.cut(cut_from[1][block.start : block.stop]).clone()

    def verify(self) -> Verification | None:
        """`unverified` where of some only rows were read, which have no sum."""
        way = super().verify()
        return "unverified" if self._is_read_in_part and self._has_checksums else way

    def _extent(self, ref: files.TensorRef) -> tuple[int, int]:
        entry = self._entries[ref.name]
        return (entry.begin, entry.end) if entry is not None else (0, 0)

    def _row_order(self, block: files.RowBlock, rows: StoredRows | None) -> tuple[object, ...]:
        if rows is not None:
            return rows.order
        return self._extent(self._ref(block.tensor))[0], 0, 0, block.tensor, block.start

    def _decode(self, buffer: files.Buffer, ref: files.TensorRef) -> torch.Tensor:
        tensor, entry = self._listed[ref.name], self._entries[ref.name]
        if ref.dtype not in files.DTYPES or entry is None:
            line = f"tensor {shown(ref.name)} is {ref.dtype}, which is not read"
            raise ModelError("unsupported-dtype", f"{ref.file}: {line}")
        if ref.stop > entry.size:
            line = f"tensor {shown(ref.name)} repeats {entry.size} stored bytes over {ref.stop}"
            raise ModelError("bad-offsets", f"{ref.file}: {line}")
        if not ref.stop:
            return torch.empty(ref.shape, dtype=tensor.dtype)
        content = content_of(buffer, entry, ref.file)
        # of a local file once: many tensors may share a large storage
        if not self.concurrent or entry.begin not in self._checked:
            require_checksum(content, entry, ref.file, f"tensor {shown(ref.name)}")
            self._checked.add(entry.begin)
        width = tensor.dtype.itemsize
        stored = torch.frombuffer(content, dtype=torch.uint8, count=entry.size // width * width)
        if self._swapped:
            stored = stored.reshape(-1, width).flip(1).reshape(-1)
        elif stored.data_ptr() % width:
            stored = stored.clone()
        elements = stored.view(tensor.dtype)
        return elements.as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        ).contiguous()


def _list_tensors(
    source: files.ByteSource, entries: Mapping[str, Entry], prefix: str
) -> tuple[dict[str, torch.Tensor], dict[int, Entry]]:
    name, entry = source.name, entries[f"{prefix}data.pkl"]
    pickled = small_entry(source, entry, MAX_LIST)
    if _ALLOCATES in pickled:
        raise ModelError("unsafe-pickle", f"{name}: holds more than tensors: 'bytearray'")
    try:
        skeleton, entry_at = _skeleton(pickled, entries, prefix)
        with places_noted():
            state = torch.load(skeleton, map_location="meta", weights_only=True, mmap=False)
        tensors = _named_tensors(state)
    except pickle.UnpicklingError as err:
        raise ModelError("unsafe-pickle", f"{name}: {_offence(str(err))}") from err
    except NotImplementedError as err:
        line = "holds tensors of a kind that torch cannot list unread, as quantised ones"
        raise ModelError("unsupported-dtype", f"{name}: {line}") from err
    except RuntimeError as err:
        raise ModelError("truncated", f"{name}: the archive is damaged") from err
    # A damaged pickle can make torch's restricted reader fail in any way.
    except Exception as err:
        line = f"its list of tensors is damaged ({type(err).__name__})"
        raise ModelError("unsafe-pickle", f"{name}: {line}") from err
    if not tensors:
        raise ModelError("no-weights", f"{name}: no tensors by name; expected a state dict")
    return tensors, entry_at


def _skeleton(
    pickled: bytes, entries: Mapping[str, Entry], prefix: str
) -> tuple[io.BytesIO, dict[int, Entry]]:
    file = io.BytesIO()
    storages = [name for name in entries if name.startswith(f"{prefix}data/")]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as copy:
        # with names alone zipfile would take the time, and refuses one before 1980 or after 2107
        copy.writestr(zipfile.ZipInfo(f"{prefix}data.pkl"), pickled)
        copy.writestr(zipfile.ZipInfo(f"{prefix}version"), b"3\n")
        for name in storages:
            copy.writestr(zipfile.ZipInfo(name), b"")
        entry_at = {
            copy.getinfo(name).header_offset + LOCAL_HEADER + len(name.encode()): entries[name]
            for name in storages
        }
    file.seek(0)
    return file, entry_at


def places_noted() -> AbstractContextManager[object]:
    """Where torch notes a storage's place: on the meta device, older ones in fake mode only."""
    if hasattr(torch.serialization, "_is_meta_location"):
        return nullcontext()
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def _named_tensors(state: object, levels: int = MAX_NESTING) -> dict[str, torch.Tensor]:
    """The tensors of a state dict, without gradients: nested ones first, as the rest beside a
    nested state dict belongs to the training."""
    if not isinstance(state, dict):
        return {}
    for key in NESTED if levels else ():
        if tensors := _named_tensors(state.get(key), levels - 1):
            return tensors
    return {
        name: value.detach()
        for name, value in state.items()
        if isinstance(name, str) and isinstance(value, torch.Tensor)
    }


def _offence(message: str) -> str:
    """What torch's reader refuses. The name that a file gives an object is shown if there is such
    an object; else its module, if that is one that everybody knows. Nothing is imported."""
    match = re.search(r"GLOBAL ([\w.]+)", message)
    if match is None:
        return "torch's weights-only reader refuses it; save it as safetensors"
    name = match[1]
    place, _, attribute = name.rpartition(".")
    loaded = sys.modules.get(place or "builtins")
    if loaded is None or attribute not in vars(loaded):
        root = name.partition(".")[0]
        is_known = root in sys.stdlib_module_names or _FREQUENT_MODULES.fullmatch(root)
        name = f"an object of {root}" if is_known else "an object of an unknown module"
    return f"holds more than tensors: {name}"


def _entry_of(tensor: torch.Tensor, entry_at: Mapping[int, Entry]) -> Entry | None:
    if tensor.layout is not torch.strided:
        return None
    place = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    return entry_at.get(place) if place is not None else None


def _tensor_ref(name: str, tensor: torch.Tensor, entry: Entry | None, file: str) -> files.TensorRef:
    if tensor.layout is not torch.strided:
        dtype = str(tensor.layout)
    elif entry is None:
        dtype = "meta"
    elif tensor.is_neg():
        dtype = "a negated view"
    else:
        dtype = _SPELLING.get(tensor.dtype, str(tensor.dtype))
    if entry is not None and tensor.numel():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = tensor.storage_offset() + sum((size - 1) * step for size, step in steps)
        if (last + 1) * tensor.itemsize > entry.size:
            line = "the archive is damaged: a tensor lies outside its storage"
            raise ModelError("truncated", f"{file}: {line}")
    n_bytes, shape = tensor.numel() * tensor.itemsize, tuple(tensor.shape)
    return files.TensorRef(name=name, dtype=dtype, shape=shape, file=file, start=0, stop=n_bytes)
