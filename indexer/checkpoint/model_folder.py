"""A model's folder: the one module that opens a model's files, and decides where links may lead."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from ...errors import ModelError
from .byte_source import LocalFile
from .local_files import MAX_BYTES, read_json, reading

_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_SIGNED = (".safetensors", ".bin", ".json", ".gguf")
"""Endings of the files whose change makes a model another one."""

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Of a path without links: a link or a pipe that takes its place meanwhile is not followed, and
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
        """A descriptor of a regular file, for reading; never of a pipe, device or socket.

        Raises:
            ModelError: `outside-folder` or `unreadable`.
        """
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
        """Where a file lies once all links are followed.

        Raises:
            ModelError: `outside-folder`; whether anything is there does not matter.
        """
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
