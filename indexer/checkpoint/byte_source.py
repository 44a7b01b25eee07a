"""The bytes of one file by position, wherever they are: what readers of weight files read from."""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from ...errors import ModelError
from ...records import Verification
from .local_files import reading

Buffer = bytearray | memoryview

MAX_READ_BYTES = 1 << 30
"""Bytes of one system call: macOS refuses more than 2³¹ − 1."""

HASHED_AT_ONCE = 4 << 20


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
        size: Of the file, in bytes.
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
        """Size in bytes and time of the last change."""
        with reading(self.name):
            status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns
