"""A file of text: its compression and its encoding, found by its first bytes."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..errors import DataError, DeltadexError

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""UTF-32 first: its mark in little-endian order begins with that of UTF-16."""

BINARY_MAGICS = {
    b"PAR1": "a parquet file",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive",
    b"SQLite format 3\x00": "an SQLite database",
    b"%PDF": "a PDF",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ\x00": "an xz file",
}
HEAD_BYTES = 1 << 16
BINARY_SHARE = 0.05
"""Text has next to no control characters; a tenth of compressed or random bytes are some."""

CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))
BLOCK_BYTES = 1 << 20
HEAD_CHARACTERS = 1 << 20
"""What decides how a file is read: separators, quotes, a header, paragraphs."""

LONGEST_LINE = 1 << 23
"""Characters: 32 MiB in memory at most."""

MOST_TIMES_ITS_SIZE, LEAST_LIMIT = 200, 1 << 28
"""Natural text is packed to a tenth. What is larger unpacked than both is no data set."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of text, which may be compressed by gzip, whatever its name.

    Attributes:
        encoding: Where no byte order mark says another. A byte that does not fit becomes a
            surrogate.
        content: Its bytes, where they were read: a pipe is read once. Control characters are not
            refused then.
    """

    path: Path
    encoding: str = "utf-8"
    content: bytes | None = None

    @classmethod
    def read(cls, path: Path) -> TextFile:
        """A file, or a pipe, that is read at once.

        Raises:
            DataError: it cannot be read.
        """
        try:
            return cls(path, content=path.read_bytes())
        except OSError as err:
            raise DataError(f"{path}: {err.strerror}") from err

    @property
    def digest(self) -> str:
        """16 characters that tell contents apart."""
        return hashlib.sha256(self.content or b"").hexdigest()[:16]

    @contextmanager
    def open(self) -> Iterator[io.TextIOWrapper]:
        """Its characters, with their ends of lines.

        Peak: `BLOCK_BYTES` of the file and the same decompressed.

        Raises:
            DataError: no such file, a binary file, a damaged or truncated gzip file, broken UTF-16.
        """
        with ExitStack() as files, translated_errors(self.path):
            raw = io.FileIO(self.path) if self.content is None else io.BytesIO(self.content)
            unread = cast(io.RawIOBase, raw)
            source = files.enter_context(io.BufferedReader(unread, BLOCK_BYTES))
            data = source
            if source.peek(2)[:2] == GZIP_MAGIC:
                unpacked = files.enter_context(_LimitedGzip(self.path, source))
                data = io.BufferedReader(cast(io.RawIOBase, unpacked), BLOCK_BYTES)
            head = data.peek(HEAD_BYTES)[:HEAD_BYTES]
            mark = next((name for mark, name in BYTE_ORDER_MARKS if head.startswith(mark)), None)
            if mark is None and self.content is None:
                _refuse_binary(self.path, head)
            errors = "strict" if mark in ("utf-16", "utf-32") else "surrogateescape"
            yield files.enter_context(
                io.TextIOWrapper(data, encoding=mark or self.encoding, errors=errors, newline="")
            )

    def head(self) -> str:
        """The first `HEAD_CHARACTERS`.

        Raises:
            DataError: the file is empty, or what `open` refuses.
        """
        with self.open() as characters:
            head = characters.read(HEAD_CHARACTERS)
        if not head.strip():
            raise DataError(f"{self.path}: the file is empty")
        return head

    def lines(self) -> Iterator[str | None]:
        """The lines with their ends; None for a line of more than `LONGEST_LINE` characters."""
        with self.open() as characters:
            read = characters.readline
            while line := read(LONGEST_LINE):
                if len(line) < LONGEST_LINE or line[-1] in "\r\n":
                    yield line
                    continue
                while (rest := read(LONGEST_LINE)) and rest[-1] not in "\r\n":
                    pass
                yield None


@contextmanager
def errors_as(kind: type[DeltadexError]) -> Iterator[None]:
    """A `DataError` of the block as an error of another kind, in the same words."""
    try:
        yield
    except DataError as err:
        raise kind(str(err)) from err


def refuse_pipe(path: Path) -> None:
    """Raises `DataError` for what is no file on a disk, before an open waits for its other end."""
    with translated_errors(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a folder" if stat.S_ISDIR(mode) else "a device"
        raise DataError(f"{path}: {kind}, not a file; write the data to a file and name that")


def unpacked_limit(path: Path) -> int:
    """The most bytes that a file may have when it is unpacked."""
    return max(LEAST_LIMIT, MOST_TIMES_ITS_SIZE * path.stat().st_size)


def too_large(path: Path) -> DataError:
    return DataError(
        f"{path}: {path.stat().st_size:,} bytes that unpack to more than "
        f"{unpacked_limit(path) >> 20:,} MiB; if these are data, write them unpacked as .csv or "
        ".jsonl"
    )


class _LimitedGzip(gzip.GzipFile):
    """A gzip file that ends in a `DataError` where it unpacks to more than `unpacked_limit`."""

    def __init__(self, path: Path, source: io.BufferedIOBase) -> None:
        super().__init__(fileobj=source, mode="rb")
        self._path, self._left = path, unpacked_limit(path)

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._path)
        return data


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """What can go wrong while a data file is read, as a `DataError` with its remedy."""
    try:
        yield
    except FileNotFoundError as err:
        raise DataError(f"{path}: no such file") from err
    except EOFError as err:
        raise DataError(
            f"{path}: the gzip file ends before its data does; copy or download it again"
        ) from err
    except (gzip.BadGzipFile, zlib.error) as err:
        raise DataError(f"{path}: a damaged gzip file ({err}); copy or download it again") from err
    except OSError as err:
        raise DataError(f"{path}: {err.strerror or err}") from err
    except UnicodeDecodeError as err:
        raise DataError(
            f"{path}: its byte order mark says {err.encoding.upper()}, which its bytes are not "
            f"({err.reason}); save it as UTF-8"
        ) from err


def _refuse_binary(path: Path, head: bytes) -> None:
    kind = next((kind for magic, kind in BINARY_MAGICS.items() if head.startswith(magic)), None)
    if kind is not None:
        raise DataError(f"{path}: {kind}, not a file of text; give it the ending of its format")
    controls = len(head) - len(head.translate(None, CONTROL_BYTES))
    if controls > BINARY_SHARE * len(head):
        raise DataError(
            f"{path}: a binary file, or UTF-16 without a byte order mark; save it as UTF-8 text"
        )
