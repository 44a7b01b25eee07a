"""A model's files: a folder and where its links may lead, small files of JSON, bytes by position.

No other module opens a model's files, and this one decides which.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from ...errors import ModelError
from ...records import Verification

Config = Mapping[str, object]
"""The object in a JSON file such as config.json; its values may be of any kind."""

MAX_BYTES = 16 * 2**20
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def read_json(content: bytes, *, name: str = "config.json") -> dict[str, object]:
    """The JSON object in the bytes of a file called `name`; a refusal quotes nothing of them."""
    if len(content) > MAX_BYTES:
        raise ModelError("bad-config", f"{name}: larger than {MAX_BYTES} bytes")
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
    """The architecture that a config.json names."""
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


AT_HAND = ReadPlan()
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
    """One file's bytes by position. Safe between threads.

    Attributes:
        name: The file's name, to begin a reason with.
        plan: How much to read at once.
        bytes_fetched: Bytes that travelled here so far; None for a file at hand.
    """

    name: str
    size: int
    plan: ReadPlan

    @property
    def bytes_fetched(self) -> int | None: ...

    def read(self, start: int, stop: int) -> Buffer:
        """Bytes `start` to `stop`, all of them, in memory of their own."""

    def view(self, start: int, stop: int) -> AbstractContextManager[Buffer]:
        """The same for as long as the block lasts, without a copy where that can be had."""

    def verify(self) -> Verification | None:
        """How the bytes were compared with the SHA-256 that is listed for the file.

        `unverified` where the plan reads only some; None where nothing is listed.

        Raises:
            ModelError: `checksum-mismatch`.
        """

    def close(self) -> None: ...


class LocalFile:
    """A file on disk, be it a model's own or in the Hub client's cache.

    Reading survives a file that is cut short meanwhile; a view does not, as in every program
    that maps files, but costs a third. Views are forgotten when their block ends, so that
    mapped pages do not add up. Both refuse a file that changed since it was opened.
    """

    bytes_fetched = None

    def __init__(
        self, descriptor: int, name: str, *, whole: bool = False, listed: str | None = None
    ) -> None:
        """A source over an open file.

        Args:
            descriptor: Of a regular file; it is closed with the source.
            whole: Hash the file when it is verified, where its hash is listed.
            listed: The SHA-256 that it should have, in hexadecimal.
        """
        self.name, self._listed = name, listed
        self.plan = replace(AT_HAND, whole=whole)
        self._lock = threading.Lock()
        self._mapped: mmap.mmap | None = None
        self._descriptor = descriptor
        with ExitStack() as opened:
            opened.callback(self.close)
            self._state = self._file_state()
            opened.pop_all()
        self.size = self._state[0]

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes `start` to `stop`, in memory that was not cleared before."""
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
        """Bytes `start` to `stop` of the mapped file."""
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
            if hasattr(mapped, "madvise") and stop > start:
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
_SIGNED = (".safetensors", ".bin", ".json", ".gguf")
"""Endings of the files whose change makes a model another one."""

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""For a path without links: a link or a pipe that takes its place meanwhile is not followed, and
not waited for."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The files of a model on disk by name; `ModelFiles` for one of these folders.

    A link is followed to a file inside `given`. In a snapshot of the Hub client's cache it is also
    followed to a blob of the same repository.

    Attributes:
        path: The folder, absolute and without links.
        given: The folder that the user named, likewise: the model's own or one above it.
        whole: Whether weight files are read whole, so that what is listed of them can be compared.
    """

    path: Path
    given: Path
    whole: bool = False

    @classmethod
    def at(cls, path: Path, given: Path | None = None, *, whole: bool = False) -> ModelFolder:
        """The folder at a path, which may itself be a link."""
        real = Path(os.path.realpath(path))
        return cls(real, real if given is None else Path(os.path.realpath(given)), whole)

    def names(self) -> set[str]:
        """The names of everything in the folder."""
        with reading(self.path):
            try:
                return set(os.listdir(self.path))
            except (FileNotFoundError, NotADirectoryError) as err:
                raise ModelError("not-found", f"{self.path}: no such folder") from err

    def has(self, file: str) -> bool:
        """Whether anything has that name, be it a link to nowhere."""
        return os.path.lexists(self.path / file)

    def size(self, file: str) -> int:
        """Bytes of a file."""
        with reading(_printable(file)):
            return self._real(file).stat().st_size

    def content(self, file: str) -> bytes:
        """A small file, whole; of a larger one as much as shows that it is too large."""
        return self.start(file, MAX_BYTES + 1)

    def start(self, file: str, size: int) -> bytes:
        """At most `size` bytes of a file."""
        with reading(_printable(file)), os.fdopen(self._open(file), "rb") as opened:
            return opened.read(size)

    def json(self, file: str) -> dict[str, object]:
        """The JSON object in a small file."""
        return read_json(self.content(file), name=file)

    def source(self, file: str) -> LocalFile:
        """A weight file, to be read by position."""
        return LocalFile(
            self._open(file), _printable(file), whole=self.whole, listed=self.listed_sha256(file)
        )

    def listed_sha256(self, file: str) -> str | None:
        """The SHA-256 by which the Hub client's cache names a file; None of other files."""
        place = self._real(file)
        return place.name if place.parent.name == "blobs" and _SHA256.match(place.name) else None

    def sha256(self, file: str) -> str:
        """SHA-256 of a file's bytes, in hexadecimal: what the Hub calls its LFS id."""
        with reading(_printable(file)), os.fdopen(self._open(file), "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    def signature(self) -> str:
        """A hash of the names, sizes and change times of the folder's weight and config files.

        Of a link that is not followed, those of the link itself.
        """
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

    def _open(self, file: str) -> int:
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
