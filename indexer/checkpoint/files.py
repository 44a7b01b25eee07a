"""A model's files: a folder and where its links may lead, bytes by position, tensors in them.

No other module opens a model's files, and this one decides which.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch

from ...errors import ModelError
from ...records import Verification
from ..untrusted_text import shown

Config = Mapping[str, object]
"""The object in a JSON file such as config.json; its values may be of any kind."""

MAX_BYTES = 16 * 2**20
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def read_json(
    content: bytes, *, name: str = "config.json", most_bytes: int = MAX_BYTES
) -> dict[str, object]:
    """The JSON object in the bytes of a file called `name`; a refusal quotes nothing of them."""
    if len(content) > most_bytes:
        raise ModelError("bad-config", f"{name}: larger than {most_bytes} bytes")
    try:
        text = content.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as err:
        line = "not JSON in UTF-8; `python -m json.tool FILE` shows where"
        raise ModelError("bad-config", f"{name}: {line}") from err
    if not isinstance(value, dict):
        raise ModelError("bad-config", f"{name}: a JSON {type(value).__name__}, not an object")
    return value


def model_type(config: Config | None) -> str | None:
    value = (config or {}).get("model_type")
    return value if isinstance(value, str) else None


@contextmanager
def reading(name: object) -> Iterator[None]:
    """Make an error of the operating system in the block an `unreadable` of `name`."""
    try:
        yield
    except OSError as err:
        raise ModelError("unreadable", f"{name}: {err.strerror}") from err


Buffer = bytearray | memoryview

MAX_READ_BYTES = 1 << 30
"""Bytes of one system call: macOS refuses more than 2³¹ − 1."""

HASHED_AT_ONCE = 4 << 20

KEPT_BYTES = 256 << 20
"""Of a file whose pages stay mapped while it is open: to map a page again costs as much as to
subtract what is in it."""


READ_AGAIN = frozenset(
    {
        "checksum-mismatch",
        "truncated",
        "bad-header",
        "bad-offsets",
        "duplicate-tensor",
        "missing-tensor",
        "unsupported-dtype",
        "legacy-pickle",
        "unsafe-pickle",
        "non-finite",
        "wrong-base",
    }
)
"""Codes that one byte changed on the way can cause; what ends so is read from the Hub once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """How much of a file one read brings, in bytes.

    Attributes:
        first: The first read, which begins with the header.
        run: The longest read that brings several tensors; 0 reads every tensor alone.
        gap: Unwanted bytes between two tensors that cost less than another read.
        row_gap: The same between rows, where bytes are counted.
        ahead: One read where all neighbours will be wanted too, as in adapters; 0 for none.
        memory: All that was read ahead and is held.
        whole: Whether all bytes are read, to be compared with what is listed of them.
    """

    first: int = 8
    run: int = 0
    gap: int = 0
    row_gap: int = 0
    ahead: int = 0
    memory: int = 0
    whole: bool = False


LOCAL_PLAN = ReadPlan()
"""For files on this machine: a read costs nothing but its own bytes."""

WHOLE_TENSORS = ReadPlan(first=64 << 10, run=32 << 20, gap=64 << 10, row_gap=8 << 10)
"""For ranges of a remote file. 64 KiB hold the header of most files; a request with its headers
takes about as long as 64 KiB, and about 8 KiB of traffic."""

FEW_BYTES = replace(WHOLE_TENSORS, first=4 << 10)
"""The same where bytes are counted: the rest of the header is fetched to the byte."""

ALL_TENSORS = replace(WHOLE_TENSORS, ahead=8 << 20, memory=64 << 20, whole=True)
"""For adapters: every one of many small tensors is wanted, in any order."""


@runtime_checkable
class ByteSource(Protocol):
    """One file's bytes by position. Safe between threads. `bytes_fetched`: that travelled here so
    far; None for a local file."""

    name: str
    size: int
    plan: ReadPlan

    @property
    def bytes_fetched(self) -> int | None: ...

    def read(self, start: int, stop: int) -> Buffer:
        """Bytes `start` to `stop`, all of them, in memory of their own."""

    def verify(self) -> Verification | None:
        """How the bytes were compared with the SHA-256 that is listed for the file, or
        `checksum-mismatch`; `unverified` where the plan reads only some, None where nothing is
        listed."""

    def close(self) -> None: ...


class LocalFile:
    """A file on disk. Reading survives a file that is cut short meanwhile; a view does not, as in
    every program that maps files, but costs a third. Views are forgotten when their block ends, so
    that mapped pages do not add up; `often`: those of a file of at most `KEPT_BYTES` are not. Both
    refuse a file that changed since it was opened."""

    bytes_fetched = None

    def __init__(self, folder: ModelFolder, file: str) -> None:
        self.name, self._often = _printable(file), folder.often
        self._listed = folder.listed_sha256(file)
        self.plan = replace(LOCAL_PLAN, whole=folder.whole)
        self._lock = threading.Lock()
        self._mapped: mmap.mmap | None = None
        self._descriptor = folder.descriptor(file)
        with ExitStack() as opened:
            opened.callback(self.close)
            self._state = self._file_state()
            opened.pop_all()
        self.size = self._state[0]

    def read(self, start: int, stop: int) -> memoryview:
        view, done = np.empty(stop - start, np.uint8).data, 0
        with reading(self.name):
            while done < len(view):
                part = view[done : done + MAX_READ_BYTES]
                got = os.preadv(self._descriptor, [part], start + done)
                if got == 0:
                    break
                done += got
        self._require_unchanged(whole=done == len(view))
        return view

    @contextmanager
    def view(self, start: int, stop: int) -> Iterator[memoryview]:
        self._require_unchanged()
        with self._lock:
            if self._mapped is None:
                try:
                    self._mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY)
                except (OSError, ValueError) as err:
                    raise ModelError("unreadable", f"{self.name}: {err}") from err
            mapped = self._mapped
        try:
            yield memoryview(mapped)[start:stop]
        finally:
            is_kept = self._often and self.size <= KEPT_BYTES
            if hasattr(mapped, "madvise") and stop > start and not is_kept:
                first = start - start % mmap.PAGESIZE
                mapped.madvise(mmap.MADV_DONTNEED, first, stop - first)
        self._require_unchanged()

    def verify(self) -> Verification | None:
        if self._listed is None:
            return None
        if not self.plan.whole:
            return "unverified"
        digest = hashlib.sha256()
        for start in range(0, self.size, HASHED_AT_ONCE):
            digest.update(self.read(start, min(start + HASHED_AT_ONCE, self.size)))
        if digest.hexdigest() != self._listed:
            line = f"its SHA-256 is not {self._listed[:16]}…, as its cache calls it: "
            line += "delete it and fetch it again"
            raise ModelError("checksum-mismatch", f"{self.name}: {line}")
        return "sha256"

    def close(self) -> None:
        self._mapped = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _require_unchanged(self, *, whole: bool = True) -> None:
        if not (self._file_state() == self._state and whole):
            line = "the file changed while it was read; index it again"
            raise ModelError("changed", f"{self.name}: {line}")

    def _file_state(self) -> tuple[int, int]:
        with reading(self.name):
            status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns


_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_SIGNED = (".safetensors", ".bin", ".json", ".gguf", ".npz")
"""Endings of the files whose change makes a model another one."""

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""For a path without links: a link or a pipe that takes its place meanwhile is not followed, and
not waited for."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The files of a model on disk by name. A link is followed to a file inside `given`; in a
    snapshot of the Hub client's cache also to a blob of the same repository. `whole`: weight files
    are read whole, so that what is listed of them can be compared; `often`: and by many models."""

    path: Path
    given: Path
    whole: bool = False
    often: bool = False

    @classmethod
    def at(
        cls, path: Path, given: Path | None = None, *, whole: bool = False, often: bool = False
    ) -> ModelFolder:
        real = Path(os.path.realpath(path))
        return cls(real, real if given is None else Path(os.path.realpath(given)), whole, often)

    def names(self) -> set[str]:
        with reading(self.path):
            try:
                return set(os.listdir(self.path))
            except (FileNotFoundError, NotADirectoryError) as err:
                raise ModelError("not-found", f"{self.path}: no such folder") from err

    def has(self, file: str) -> bool:
        return os.path.lexists(self.path / file)

    def size(self, file: str) -> int:
        with reading(_printable(file)):
            return self._real(file).stat().st_size

    def content(self, file: str) -> bytes:
        """A small file, whole; of a larger one as much as shows that it is too large."""
        return self.start(file, MAX_BYTES + 1)

    def start(self, file: str, size: int) -> bytes:
        with reading(_printable(file)), os.fdopen(self.descriptor(file), "rb") as opened:
            return opened.read(size)

    def json(self, file: str) -> dict[str, object]:
        return read_json(self.content(file), name=file)

    def source(self, file: str) -> LocalFile:
        return LocalFile(self, file)

    def listed_sha256(self, file: str) -> str | None:
        """The SHA-256 by which the Hub client's cache names a file; None of other files."""
        place = self._real(file)
        return place.name if place.parent.name == "blobs" and _SHA256.match(place.name) else None

    def sha256(self, file: str) -> str:
        """SHA-256 of a file's bytes, in hexadecimal: what the Hub calls its LFS id."""
        with reading(_printable(file)), os.fdopen(self.descriptor(file), "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    def signature(self) -> str:
        """A hash of the names, sizes and change times of the folder's weight and config files; of a
        link that is not followed, those of the link itself."""
        digest = hashlib.sha256()
        try:
            with os.scandir(self.path) as entries:
                described = [entry for entry in entries if entry.name.endswith(_SIGNED)]
            for entry in sorted(described, key=attrgetter("name")):
                status = self._status(entry)
                if status is not None:
                    digest.update(os.fsencode(entry.name))
                    digest.update(f"/{status.st_size}/{status.st_mtime_ns}\n".encode())
        except OSError as err:
            raise ModelError("unreadable", f"{err.filename or self.path}: {err.strerror}") from err
        return digest.hexdigest()[:32]

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        """Size and times of a file, or of a link that is not followed; None of anything else."""
        if entry.is_symlink():
            try:
                status = self._real(entry.name).stat()
            except (ModelError, FileNotFoundError):
                return entry.stat(follow_symlinks=False)
            except OSError:
                return None
        else:
            status = entry.stat()
        return status if stat.S_ISREG(status.st_mode) else None

    def descriptor(self, file: str) -> int:
        """A descriptor of a regular file, for reading; never of a pipe, device or socket."""
        place, name = self._real(file), _printable(file)
        with reading(name):
            _require_regular(place.lstat(), name)
            descriptor = os.open(place, _OPEN_FLAGS)
            try:
                _require_regular(os.fstat(descriptor), name)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor

    def _real(self, file: str) -> Path:
        """Where a file lies, or would, once all links are followed; else `outside-folder`."""
        place = Path(os.path.realpath(self.path / file))
        if place.is_relative_to(self.given) or place.parent == self._blobs:
            return place
        line = "a link leads out of the folder; put the file itself there"
        raise ModelError("outside-folder", f"{_printable(file)}: {line}")

    @property
    def _blobs(self) -> Path | None:
        """The blobs beside this snapshot: `models--X--Y/snapshots/COMMIT` has them in its cache."""
        for snapshots in self.path.parents:
            if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--"):
                return snapshots.parent / "blobs"
        return None


def _require_regular(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ModelError("unreadable", f"{name}: not a file")


def _printable(file: str) -> str:
    """A file's name for a reason; its other characters are spelled out (`\\udce9`)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in file)


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

_SCALED_DTYPES = {"F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu}
"""Types that mean something only beside scales, or as scales."""

Item = TypeVar("Item")
Span = tuple[int, int, Item]
"""First byte, one past the last, and what it is of."""

LFS_POINTER = b"version "
"""The first bytes of what git leaves in place of a large file that it did not fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """One tensor as its file's header declares it; `dtype` as safetensors spells it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    stop: int

    def rows(self, block: RowBlock) -> TensorRef:
        """Some rows of it, leading dimensions flattened: shape (rows, columns). Whole rows where
        values have no bytes of their own."""
        columns = self.shape[-1]
        width = (self.stop - self.start) // math.prod(self.shape[:-1])
        start, stop = self.start + block.start * width, self.start + block.stop * width
        if block.columns is not None and width % columns == 0:
            stop = start + block.columns * width // columns
            columns = block.columns
        return replace(self, shape=(block.stop - block.start, columns), start=start, stop=stop)


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows `start` to `stop` of a tensor, its leading dimensions flattened; of a single row only
    the first `columns`, where they are given."""

    tensor: str
    start: int
    stop: int
    columns: int | None = None

    def __post_init__(self) -> None:
        assert self.columns is None or self.stop == self.start + 1

    def cut(self, rows: torch.Tensor) -> torch.Tensor:
        """The columns that are wanted, of whole rows."""
        return rows if self.columns is None else rows[:, : self.columns]


@runtime_checkable
class Checkpoint(Protocol):
    """The tensors of one model: listed from headers, read one at a time. `bytes_read`: headers
    included; `concurrent`: several threads may as well read one tensor each as one thread all."""

    tensors: Mapping[str, TensorRef]
    bytes_total: int
    concurrent: bool

    @property
    def bytes_read(self) -> int: ...

    def read(self, name: str) -> torch.Tensor: ...
    def view(self, name: str) -> AbstractContextManager[torch.Tensor]:
        """The same for a block, without a copy where that can be had; refused at its end where the
        file changed."""

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors in the order that reads them best: by file, then offset."""

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """Some rows of some tensors, (rows, columns), in the order that reads them best."""

    def verify(self) -> Verification | None:
        """How the weight files' bytes were compared with what is listed of them, or
        `checksum-mismatch`; None where nothing is listed. Reads the rest of remote files that are
        read whole."""

    def close(self) -> None: ...


class TensorFile:
    """One weight file over its bytes. Safe between threads. Peak: one tensor; of a remote file one
    run of tensors, at most `ReadPlan.run` or one tensor, a copy of one, and `ReadPlan.memory`."""

    def __init__(self, source: ByteSource, refs: Sequence[TensorRef], listed_bytes: int) -> None:
        """`listed_bytes`: the part of the file that is no tensor, and was read to list them."""
        self._has_checksums = False
        self._source = source
        self._lock = threading.Lock()
        self._used_bytes = listed_bytes
        self.concurrent = source.bytes_fetched is None
        self.bytes_total = source.size
        self.tensors: Mapping[str, TensorRef] = {ref.name: ref for ref in refs}

    @property
    def bytes_read(self) -> int:
        """Bytes that travelled; of a local file, the header's and the tensors' own."""
        fetched = self._source.bytes_fetched
        return self._used_bytes if fetched is None else fetched

    def read(self, name: str) -> torch.Tensor:
        ref = self._ref(name)
        tensor = self._decode(self._source.read(*self._extent(ref)), ref)
        self._count(ref.stop - ref.start)
        return tensor

    @contextmanager
    def view(self, name: str) -> Iterator[torch.Tensor]:
        if not isinstance(self._source, LocalFile):
            yield self.read(name)
            return
        ref = self._ref(name)
        with self._source.view(*self._extent(ref)) as buffer:
            yield self._decode(buffer, ref)
        self._count(ref.stop - ref.start)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        refs = [self._ref(name) for name in dict.fromkeys(names)]
        if self.concurrent:
            for ref in sorted(refs, key=self._extent):
                yield ref.name, self.read(ref.name)
            return
        for ref, tensor in self._read_together(refs, max_gap=self._source.plan.gap):
            yield ref.name, tensor

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows by offset; only what is all but adjacent is read together."""
        wanted: dict[TensorRef, list[RowBlock]] = {}
        for block in blocks:
            wanted.setdefault(self._ref(block.tensor).rows(block), []).append(block)
        for ref, rows in self._read_together(wanted, max_gap=self._source.plan.row_gap):
            for block in wanted[ref]:
                yield block, block.cut(rows)

    def verify(self) -> Verification | None:
        """`crc` where no SHA-256 was compared, and every tensor that was read had its own sum."""
        way = self._source.verify()
        return "crc" if way != "sha256" and self._has_checksums else way

    def close(self) -> None:
        self._source.close()

    def _extent(self, ref: TensorRef) -> tuple[int, int]:
        """Where in the file the bytes that `_decode` wants begin and end."""
        return ref.start, ref.stop

    def _decode(self, buffer: Buffer, ref: TensorRef) -> torch.Tensor:
        """The contiguous tensor in the bytes of its extent, in their memory where that can be."""
        return decode(buffer, ref)

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
        spans = ((*self._extent(ref), ref) for ref in sorted(refs, key=attrgetter("name")))
        for first, last, run in read_together(spans, self._source.plan.run, max_gap):
            buffer = self._source.read(first, last)
            for start, stop, ref in run:
                tensor = self._decode(_cut(buffer, start - first, stop - first), ref)
                self._count(ref.stop - ref.start)
                yield ref, tensor


def read_together(
    spans: Iterable[Span[Item]], max_bytes: int, max_gap: int
) -> Iterator[tuple[int, int, list[Span[Item]]]]:
    """Spans in the file's order, as runs of which one read brings each, with a run's first byte and
    one past its last; a span longer than `max_bytes` is a run of its own."""
    run: list[Span[Item]] = []
    first = last = 0
    for start, stop, item in sorted(spans, key=itemgetter(0, 1)):
        if run and (start - last > max_gap or max(last, stop) - first > max_bytes):
            yield first, last, run
            run = []
        if not run:
            first, last = start, stop
        run.append((start, stop, item))
        last = max(last, stop)
    if run:
        yield first, last, run


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
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class SafetensorsFile(TensorFile):
    def __init__(self, source: ByteSource) -> None:
        file, size = source.name, source.size
        head = bytes(source.read(0, min(source.plan.first, size)))
        length = header_length(head[:8], file=file, file_size=size)
        if 8 + length > len(head):
            head += source.read(len(head), 8 + length)
        refs = parse_header(head[8 : 8 + length], file=file, file_size=size)
        super().__init__(source, refs, 8 + length)


def header_length(first8: bytes, *, file: str, file_size: int) -> int:
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


def parse_header(header: bytes, *, file: str, file_size: int) -> list[TensorRef]:
    """The tensors that a file's header declares, by position in the file.

    As by the safetensors library, tensors that overlap, leave holes, or do not end where the file
    ends are refused. Unlike there, so is a duplicate tensor name, and an unknown dtype is left as
    it is. A file may be refused because it is no checkpoint at all: until every check has passed,
    a reason quotes no number and no name of it.
    """
    start = 8 + len(header)
    entries = enumerate(_entries(header, file).items(), start=1)
    refs = [_tensor_ref(name, entry, number, file, start) for number, (name, entry) in entries]
    refs.sort(key=attrgetter("start", "stop"))
    _require_tiling(refs, start, file, file_size)
    return refs


def decode(buffer: Buffer, ref: TensorRef) -> torch.Tensor:
    """The tensor whose bytes `buffer` holds, in its memory unless that is read-only or
    misaligned."""
    dtype = DTYPES.get(ref.dtype) or _SCALED_DTYPES.get(ref.dtype)
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
    n_bits, n_elements = 8 * (offsets[1] - offsets[0]), count_elements(shape)
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
    if isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values):
        return tuple(values)
    return None


def count_elements(shape: tuple[int, ...]) -> int | None:
    """How many elements a tensor of this shape has; None where torch can have no such tensor."""
    if len(shape) > MAX_DIMS:
        return None
    extent = math.prod(max(size, 1) for size in shape)
    if extent >= 2**63:
        return None
    return 0 if 0 in shape else extent


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not _LONE_SURROGATE.search(value)


def _bits(dtype: str) -> int | None:
    if dtype in DTYPES:
        return 8 * int(DTYPES[dtype].itemsize)
    return 8 if dtype.startswith("F8_") else _OTHER_BITS.get(dtype)
