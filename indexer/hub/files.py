"""A repository's files: small ones whole, weights by ranges; every answer checked, some kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import numpy as np

from ...errors import ModelError, StoreFull
from ...records import Verification
from ...store.files import atomic_file
from ..checkpoint import (
    ALL_TENSORS,
    DTYPES,
    WHOLE_TENSORS,
    Buffer,
    ByteSource,
    Checkpoint,
    ModelFolder,
    ReadPlan,
    choose_weights,
    open_weights,
    shard_files,
    with_most_bits,
)
from .models import HubModel, describe
from .session import (
    RETRIED,
    Call,
    HubSession,
    Patience,
    cached_file,
    default_session,
    describe_error,
    is_count,
    origin_of,
)

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from hashlib import _Hash


SLACK = 64 << 10
"""Bytes beyond the range that are accepted from a server which sends whole files only."""

_NO_LIMIT = 1 << 62
_CONTENT_RANGE = re.compile(r"^bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})$")
_REFUSED = frozenset({401, 403, 404, 410})
"""What an address answers once its signature has expired."""

_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file of one commit, as the Hub answers a HEAD; `url` is signed, so never shown."""

    repo_id: str
    commit: str
    path: str
    size: int
    etag: str
    url: str = field(repr=False)
    on_hub: bool

    @property
    def what(self) -> str:
        return f"{self.repo_id}: {self.path}"

    @property
    def sha256(self) -> str | None:
        return self.etag if _SHA256.match(self.etag) else None

    @property
    def identity(self) -> str:
        """What it is, wherever it is read: its content in its repository, else its place at one
        commit."""
        if self.sha256 is not None:
            return f"{self.repo_id}\n{self.sha256}\n{self.size}"
        return f"{self.repo_id}\n{self.commit}\n{self.path}\n{self.etag}\n{self.size}"


def locate(session: HubSession, repo_id: str, commit: str, path: str) -> RemoteFile:
    """A file on the Hub without its bytes: a HEAD request gives size, content hash and address."""
    what = f"{repo_id}: {path}"
    session.refuse_offline(what)
    with session.call(what, leaves_hub=False).current():
        response = session.send("HEAD", session.file_url(repo_id, commit or "main", path), {})
    headers = response.headers
    require_commit(response, commit, what)
    target = response.next_request
    etag = headers.get("X-Linked-Etag") or headers.get("ETag") or ""
    length = headers.get("X-Linked-Size") or ""
    if not length and target is None:
        length = headers.get("Content-Length") or ""
    if not etag or not is_count(length):
        raise ModelError("hub-bad-answer", f"{what}: the answer has no ETag or no size")
    return RemoteFile(
        repo_id=repo_id,
        commit=commit,
        path=path,
        size=int(length),
        etag=etag.removeprefix("W/").strip('"'),
        url=str(target.url if target else response.request.url),
        on_hub=target is None,
    )


def require_commit(response: httpx2.Response, commit: str, what: str) -> None:
    """Raise where a file answer is not the Hub's, or speaks of another commit."""
    answered = response.headers.get("X-Repo-Commit")
    if answered is None:
        raise ModelError("hub-bad-answer", f"{what}: the answer is not a Hub's (no X-Repo-Commit)")
    if commit and answered != commit:
        raise ModelError("changed", f"{what}: requested commit {commit[:12]}, got {answered[:12]}")


class RemoteBytes:
    """A file of the Hub, read from its signed address, which is requested again when it expires; a
    body that is cut goes on where it stopped. `kept`: where its ranges are kept."""

    def __init__(
        self,
        session: HubSession,
        file: RemoteFile,
        plan: ReadPlan = WHOLE_TENSORS,
        kept: RangeFolder | None = None,
    ) -> None:
        self.name = file.path
        self.size = file.size
        self.plan = plan
        self.bytes_fetched = 0
        self._session = session
        self._file = file
        self._kept = kept
        self._seen: tuple[str, str] | None = None
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> Buffer:
        if self._kept is None:
            return self._fetched(start, stop)
        if (kept := self._kept.get(self._file.identity, start, stop)) is not None:
            return bytearray(kept)
        buffer = self._fetched(start, stop)
        self._kept.put(self._file.identity, start, stop, buffer)
        return buffer

    def _fetched(self, start: int, stop: int) -> Buffer:
        what = self._file.what
        if stop > self.size:
            raise ModelError("truncated", f"{what}: byte {stop} is wanted, {self.size} are there")
        # without zeros, which are a write of their own
        buffer, at = np.empty(stop - start, np.uint8).data, start
        call = self._session.call(what, max_bytes=_NO_LIMIT, on_bytes=self._count)
        expired = False
        with call.current(expected_bytes=stop - start):
            while at < stop:
                file, before = self._file, at
                try:
                    for piece in self._pieces(file, at, stop, call):
                        buffer[at - start : at - start + len(piece)] = piece
                        at += len(piece)
                except _Expired as err:
                    if expired:
                        line = f"{what}: its storage refuses the signed address ({err})"
                        raise ModelError("hub-bad-answer", line) from None
                    expired = True
                    self._locate_again(file)
                except _Again as err:
                    call.failed(err.args[0], brought=at - before)
        return buffer

    def verify(self) -> Verification | None:
        return "unverified" if self._file.sha256 else None

    def close(self) -> None:
        return

    def _pieces(self, file: RemoteFile, start: int, stop: int, call: Call) -> Iterator[memoryview]:
        """The bytes from `start` on as they arrive; `_Again` where they end before `stop`."""
        call.passes = frozenset({416}) if file.on_hub else _REFUSED | {416}
        wanted = {"Range": f"bytes={start}-{stop - 1}"}
        response = self._session.send("GET", file.url, wanted, stream=True)
        try:
            if response.status_code in _REFUSED:
                raise _Expired(response.status_code)
            self._require_same_content(response, file)
            arriving = _first_byte(response, file, start, stop)
            is_whole_file = response.status_code == 200
            for chunk in response.iter_raw():
                begin, arriving = arriving, arriving + len(chunk)
                if arriving > stop and not is_whole_file:
                    raise _bad(file, "more bytes than requested")
                yield memoryview(chunk)[max(0, start - begin) : stop - begin]
                if arriving >= stop and is_whole_file:
                    break
        except RETRIED as err:
            line = f"{file.what}: {describe_error(err)}"
            raise _Again(ModelError("hub-unreachable", line)) from None
        finally:
            response.close()
        if arriving < stop:
            raise _Again(_bad(file, f"answers end at byte {max(start, arriving)} of {stop}"))

    def _require_same_content(self, response: httpx2.Response, file: RemoteFile) -> None:
        """Raise where the address hands out something else than before: storage has its own ETags,
        so they are compared with what the same address said first."""
        etag = response.headers.get("ETag", "")
        if not etag or etag.startswith("W/"):
            return
        with self._lock:
            if file.on_hub:
                self._seen = (file.url, file.etag)
            elif self._seen is None or self._seen[0] != file.url:
                self._seen = (file.url, etag.strip('"'))
            if self._seen[1] != etag.strip('"'):
                raise ModelError("changed", f"{file.what}: another ETag than before")

    def _locate_again(self, file: RemoteFile) -> None:
        with self._lock:
            if self._file is not file:
                return
            fresh = locate(self._session, file.repo_id, file.commit, file.path)
            if (fresh.etag, fresh.size) != (file.etag, file.size):
                raise ModelError("changed", f"{file.what}: another ETag or size than before")
            self._file = fresh

    def _count(self, n_bytes: int) -> None:
        with self._lock:
            self.bytes_fetched += n_bytes


def _first_byte(response: httpx2.Response, file: RemoteFile, start: int, stop: int) -> int:
    """The place in the file of an answer's first byte: `start`, or 0 of a small file that is sent
    whole; raise where it is another range, or of another file."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise _bad(file, "a range in a compressed form")
    declared, size = response.headers.get("Content-Range", ""), str(file.size)
    match = _CONTENT_RANGE.match(declared)
    total = match[3] if match else declared.removeprefix("bytes */")
    is_whole_file = response.status_code == 200
    stated = response.headers.get("Content-Length", size) if is_whole_file else size
    for length in (str(int(total)) if is_count(total) else size, stated):
        if length != size:
            line = f"{file.what}: {length} bytes long, {size} expected"
            raise ModelError("changed", line)
    if is_whole_file:
        if file.size > stop - start + SLACK:
            raise _bad(file, f"the whole file of {size} bytes instead of a range")
        return 0
    if response.status_code != 206 or match is None:
        raise _Again(_bad(file, f"status {response.status_code} for a range"))
    if (int(match[1]), int(match[2])) != (start, stop - 1):
        wanted = f"bytes {start}-{stop - 1}"
        raise _Again(_bad(file, f"bytes {match[1]}-{match[2]} where {wanted} were requested"))
    return start


def _bad(file: RemoteFile, line: str) -> ModelError:
    return ModelError("hub-bad-answer", f"{file.what}: {line}")


class _Again(Exception):
    """An answer that may be better next time; its argument is the error if it never is."""


class _Expired(Exception):
    pass


PIECE = 8 << 20
"""Bytes of one read of what no reader wants, and of what is held until its turn in the file."""

CHUNK = 1 << 20
"""Bytes after which the hash's state is kept, so that a range that is read again is compared."""


class VerifiedBytes:
    """A source whose bytes travel once each, and are hashed in the order of the file.

    SHA-256 takes bytes in one order only. Readers of weights go forward through a file; what they
    skip is read for the hash and dropped. The first reads (a header and what comes with it, the
    list at the end of an archive) are held until their turn comes: `PIECE` bytes. Of an adapter,
    all that is read is held, `ReadPlan.ahead` bytes at once, up to `ReadPlan.memory`. Beyond that
    the bytes between are read first, so that a later read of them is a second one. A second read is
    compared with the hash's states before and after each of its chunks: what a reader gets is what
    was hashed.

    Only `verify` tells whether that is what is listed. Safe between threads, which take turns.
    """

    def __init__(self, source: ByteSource, sha256: str | None) -> None:
        self.name, self.size, self.plan = source.name, source.size, source.plan
        self._source = source
        self._listed = sha256
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._states: list[_Hash] = [self._hash.copy()]
        self._held: dict[int, bytes] = {}
        self._again: dict[int, bytes] = {}
        self._lock = threading.Lock()

    @property
    def bytes_fetched(self) -> int | None:
        return self._source.bytes_fetched

    def read(self, start: int, stop: int) -> Buffer:
        parts: list[Buffer] = []
        with self._lock:
            while start < stop:
                parts.append(self._part(start, stop))
                start += len(parts[-1])
        return parts[0] if len(parts) == 1 else bytearray().join(parts)

    def verify(self) -> Verification | None:
        """Read what no reader wanted, and compare, or raise `checksum-mismatch`."""
        if self._listed is None:
            return None
        with self._lock:
            while self._hash_next(self.size):
                pass
            found = self._hash.hexdigest()
        if found != self._listed:
            line = f"SHA-256 {found[:16]}… where {self._listed[:16]}… is listed"
            line += ": its bytes changed on the way"
            raise ModelError("checksum-mismatch", f"{self.name}: {line}")
        return "sha256"

    def close(self) -> None:
        self._held.clear()
        self._again.clear()
        self._source.close()

    def _part(self, start: int, stop: int) -> Buffer:
        """Bytes from `start` on, as many as are hashed, or held, or new."""
        if start < self._hashed:
            return self._again_part(start, min(stop, self._hashed))
        for begin, held in self._held.items():
            if begin <= start < begin + len(held):
                return bytearray(held[start - begin : stop - begin])
        end = min((begin for begin in self._held if begin > start), default=max(stop, self.size))
        stop = min(stop, end)
        # the first read is a header, which may be all that is wanted
        is_first = not self._hashed and not self._held
        ahead = stop if is_first else max(stop, min(start + self.plan.ahead, end))
        leave = 0 if self.plan.ahead else PIECE
        while not self._may_hold(ahead - start) and self._hash_next(start, leave=leave):
            pass
        if self._may_hold(ahead - start):
            self._held[start] = bytes(self._source.read(start, ahead))
            return bytearray(self._held[start][: stop - start])
        first = self._hashed
        buffer = self._source.read(first, stop)
        self._take(buffer)
        rest = memoryview(buffer)[start - first :]
        # a view holds what is before it too
        return rest if start - first <= len(buffer) // 4 else bytearray(rest)

    def _may_hold(self, n_bytes: int) -> bool:
        limit = self.plan.memory if self.plan.ahead else 0 if self._hashed else PIECE
        return sum(map(len, self._held.values())) + n_bytes <= limit

    def _again_part(self, start: int, stop: int) -> Buffer:
        """Hashed bytes; of an adapter from blocks of `ReadPlan.ahead`, the last used of which are
        kept, up to `ReadPlan.memory`."""
        size = self.plan.ahead - self.plan.ahead % CHUNK
        if not size:
            return self._read_again(start, stop)
        first = start - start % size
        block = self._again.pop(first, b"")
        if first + len(block) <= start:
            block = bytes(self._read_again(first, min(first + size, self._hashed)))
        self._again[first] = block
        while sum(map(len, self._again.values())) > self.plan.memory and len(self._again) > 1:
            del self._again[next(iter(self._again))]
        return bytearray(block[start - first : stop - first])

    def _read_again(self, start: int, stop: int) -> Buffer:
        """A range that is hashed already; its chunks must lead from one kept state to the next."""
        first = start - start % CHUNK
        last = min(stop + -stop % CHUNK, self._hashed)
        buffer = self._source.read(first, last)
        for begin in range(first, last, CHUNK):
            number = begin // CHUNK
            state = self._states[number].copy()
            state.update(memoryview(buffer)[begin - first : begin - first + CHUNK])
            ends = number + 1 < len(self._states)
            expected = self._states[number + 1] if ends else self._hash
            if state.digest() != expected.digest():
                line = f"two reads differ after byte {begin}: bytes changed on the way"
                raise ModelError("checksum-mismatch", f"{self.name}: {line}")
        return bytearray(memoryview(buffer)[start - first : stop - first])

    def _hash_next(self, stop: int, *, leave: int = 0) -> bool:
        """Hash the next piece before `stop`, which is held or read, and say whether there was one;
        the last `leave` bytes, where none of them is held, are left to the read that follows."""
        held = min((begin for begin in self._held if begin < stop), default=stop)
        if held == stop and stop - self._hashed <= leave:
            return False
        piece = self._held.pop(self._hashed, None)
        end = min(self._hashed + PIECE, held)
        self._take(self._source.read(self._hashed, end) if piece is None else piece)
        return True

    def _take(self, buffer: Buffer | bytes) -> None:
        """Hash the bytes that follow what is hashed."""
        view = memoryview(buffer)
        while view:
            room = CHUNK - self._hashed % CHUNK
            self._hash.update(view[:room])
            self._hashed += len(view[:room])
            view = view[room:]
            if self._hashed % CHUNK == 0:
                self._states.append(self._hash.copy())


FOLDER_VARIABLE = "DELTADEX_CACHE"
"""Names the folder; empty for none."""

LIMIT = 4 << 30
"""Bytes of all kept ranges."""

AT_ONCE = 16
"""A 16th of the limit is written before the folder is measured again: others write too."""

LEAVE_FREE = 1 << 30
"""Bytes that stay free on the disk, for the catalog and everybody else."""

TEMPORARY_S = 3600.0
"""Seconds after which a temporary file belongs to a process that was killed."""

_MAGIC = b"deltadex range 1\n"
_ENDING = ".range"


def default_folder() -> Path | None:
    """Where ranges are kept: in `$DELTADEX_CACHE`, else in the user's cache; None for nowhere."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        return Path(folder).expanduser() / "base-ranges" if folder else None
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("deltadex", appauthor=False)) / "base-ranges"


@dataclass(slots=True)
class RangeFolder:
    """Ranges on disk, by what they are of, up to so many bytes; the least recently used are removed
    first. Safe between threads and processes."""

    folder: Path | None = field(default_factory=default_folder)
    limit: int = LIMIT
    bytes_used: int = 0
    _touched: set[str] = field(default_factory=set)
    _room: int = 0
    _is_writable: bool = True
    _is_trusted: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, identity: str, start: int, stop: int) -> bytes | None:
        if self.folder is None or not self._is_trusted:
            return None
        key = _key(identity, start, stop)
        path = self.folder / (key + _ENDING)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        content = _checked(stored, key, stop - start)
        with suppress(OSError):
            if content is None:
                path.unlink()
            else:
                os.utime(path)
        if content is not None:
            with self._lock:
                self.bytes_used += len(content)
                self._touched.add(key)
        return content

    def put(self, identity: str, start: int, stop: int, content: Buffer) -> None:
        if self.folder is None or not self._is_writable:
            return
        key = _key(identity, start, stop)
        with self._lock:
            self._touched.add(key)
            try:
                stored = b"".join((_MAGIC, _digest(content, key), content))
                if self._has_room(self.folder, len(stored)):
                    with atomic_file(self.folder / (key + _ENDING), lasts=False) as file:
                        file.write_bytes(stored)
            except (OSError, StoreFull) as err:
                self._is_writable = False
                log.debug("%s: %s: no more of the base is kept there", self.folder, err)

    def forget(self) -> bool:
        """Remove what was read from here or written, and read no more; whether any was read. The
        Hub lists no checksum of a range: what turns out to be wrong may have changed on the way
        here."""
        with self._lock:
            for key in self._touched:
                assert self.folder is not None
                with suppress(OSError):
                    (self.folder / (key + _ENDING)).unlink()
            self._touched.clear()
            was_read, self.bytes_used = self.bytes_used > 0, 0
            self._is_trusted = False
        return was_read

    def _has_room(self, folder: Path, n_bytes: int) -> bool:
        if n_bytes > self.limit // AT_ONCE:
            return False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < LEAVE_FREE + n_bytes:
            return False
        if n_bytes > self._room:
            self._make_room(folder)
        self._room -= n_bytes
        return True

    def _make_room(self, folder: Path) -> None:
        """Remove the ranges that were used longest ago, and what killed processes left."""
        files = []
        for path in folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                if path.suffix == _ENDING:
                    files.append((status.st_mtime, status.st_size, path))
                elif time.time() - status.st_mtime > TEMPORARY_S and path.suffix == ".partial":
                    path.unlink()
        self._room = self.limit // AT_ONCE
        left = self.limit - self._room
        for _, size, path in sorted(files, reverse=True):
            left -= size
            if left < 0:
                with suppress(OSError):
                    path.unlink()


def _key(identity: str, start: int, stop: int) -> str:
    return hashlib.sha256(f"{identity}\n{start}\n{stop}".encode()).hexdigest()[:40]


def _digest(content: Buffer | bytes, key: str) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(content)
    return digest.digest()


def _checked(stored: bytes, key: str, n_bytes: int) -> bytes | None:
    begin = len(_MAGIC) + 32
    if len(stored) != begin + n_bytes or not stored.startswith(_MAGIC):
        return None
    content = stored[begin:]
    return content if stored[len(_MAGIC) : begin] == _digest(content, key) else None


MAX_SMALL_FILE = 16 << 20

_HASH = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")


def read_small_file(
    model: HubModel,
    name: str,
    *,
    session: HubSession | None = None,
    max_bytes: int = MAX_SMALL_FILE,
    patience: Patience | None = None,
) -> bytes:
    """A small file's content at the model's commit, from the local cache or the Hub; nothing is
    written to disk. A content that does not match its ETag is requested again, a larger file
    refused."""
    session = session or default_session()
    name = model.path(name)
    what = f"{model.id}: {name}"
    path = cached_file(session.cache_dir, model.id, model.sha, name)
    if path is not None:
        content = ModelFolder.at(path.parent).start(path.name, max_bytes + 1)
        if len(content) > max_bytes:
            raise ModelError("hub-bad-answer", f"{what}: larger than {max_bytes} bytes")
        return content
    session.refuse_offline(what)
    call = session.call(what, patience, max_bytes=max_bytes)
    url = session.file_url(model.id, model.sha or "main", name)
    with call.current(expected_bytes=max_bytes):
        while True:
            response = session.send("GET", url, {})
            require_commit(next(iter(response.history), response), model.sha, what)
            if response.status_code == 200 and _is_content_of(response, session.origin):
                return response.content
            call.failed(ModelError("hub-bad-answer", f"{what}: another content than it should be"))


def _is_content_of(response: httpx2.Response, hub: tuple[str, str, int]) -> bool:
    """Whether the content has the hash by which the Hub's last answer names it, if one does."""
    answers = [r for r in (response, *reversed(response.history)) if origin_of(r.url) == hub]
    named = [r.headers.get(header, "") for header in ("X-Linked-Etag", "ETag") for r in answers]
    hashes = filter(_HASH.fullmatch, (etag.removeprefix("W/").strip('"') for etag in named))
    if (expected := next(hashes, None)) is None:
        return True
    content = response.content
    if len(expected) == 64:
        return hashlib.sha256(content).hexdigest() == expected
    blob = b"blob %d\0" % len(content) + content
    return expected in (
        hashlib.sha1(data, usedforsecurity=False).hexdigest() for data in (blob, content)
    )


class HubWeights:
    def __init__(
        self,
        model: HubModel,
        plan: ReadPlan = WHOLE_TENSORS,
        *,
        adapter: bool | None = None,
        session: HubSession | None = None,
        kept: RangeFolder | None = None,
    ) -> None:
        """`kept`: where ranges are kept, of files that are not read whole."""
        self._described = model
        self._adapter = model.kind == "adapter" if adapter is None else adapter
        self._session = session or default_session()
        self._kept = kept
        self._places: dict[str, RemoteFile] = {}
        self._plan = ALL_TENSORS if self._adapter else plan

    def sha256(self) -> str | None:
        """The hash of the files' content, before a byte of them is read: of one file its own; of
        shards that of their hexadecimal hashes, sorted, one a line; None where the Hub does not
        know it. Costs one HEAD a file, which opening them then does not need."""
        name = self._name
        if name is None:
            return None
        shards = shard_files(name, self.content(name) if name.endswith(".json") else b"")
        if shards == [name]:
            return self._hash(name)
        hashes = [self._hash(shard) for shard in shards]
        known = sorted(value for value in hashes if value is not None)
        if len(known) < len(hashes):
            return None
        return hashlib.sha256("\n".join(known).encode()).hexdigest()

    def open(self) -> Checkpoint:
        """The checkpoint, headers read; an adapter's small tensors are fetched many at a time."""
        if self._name is None:
            expected = "adapter_model.safetensors or .bin" if self._adapter else "model.safetensors"
            line = f"no weight file; expected {expected}"
            raise ModelError("no-weights", f"{self._described.id}: {line}")
        return open_weights(self, self._name)

    def has(self, file: str) -> bool:
        return file in (self._model.files or ())

    def content(self, file: str) -> bytes:
        return read_small_file(self._model, file, session=self._session)

    def source(self, file: str) -> ByteSource:
        """A weight file, cached or to be read by ranges; of a whole file, the hash is compared."""
        cached = self._cached(file)
        if cached is not None:
            return ModelFolder.at(cached.parent, whole=self._plan.whole).source(cached.name)
        listed = self._locate(file)
        kept = None if self._plan.whole else self._kept
        remote = RemoteBytes(self._session, listed, self._plan, kept)
        if self._plan.whole and (listed.sha256 or self._plan.ahead):
            return VerifiedBytes(remote, listed.sha256)
        return remote

    @cached_property
    def _model(self) -> HubModel:
        """The description with its files and commit; requested where the listing lacks them."""
        model = self._described
        if model.files is not None and model.sha:
            return model
        return describe(model.name, model.sha or None, session=self._session)

    @cached_property
    def _name(self) -> str | None:
        names = self._model.files or ()
        return with_most_bits(self, choose_weights(names, adapter=self._adapter), names)

    def _hash(self, file: str) -> str | None:
        cached = self._cached(file)
        if cached is not None:
            return ModelFolder.at(cached.parent).listed_sha256(cached.name)
        return self._locate(file).sha256

    def _cached(self, file: str) -> Path | None:
        model = self._model
        return cached_file(self._session.cache_dir, model.id, model.sha, model.path(file))

    def _locate(self, file: str) -> RemoteFile:
        path = self._model.path(file)
        if path not in self._places:
            self._places[path] = locate(self._session, self._model.id, self._model.sha, path)
        return self._places[path]


def stated_bytes(model: HubModel) -> int | None:
    """Bytes of the parameters that the listing counts, headers apart; None where it counts none, or
    of a type of unknown width."""
    if not model.dtypes or any(d not in DTYPES and not d.startswith("F8") for d in model.dtypes):
        return None
    return sum(n * (DTYPES[d].itemsize if d in DTYPES else 1) for d, n in model.dtypes.items())


def request_bytes(model: HubModel, session: HubSession) -> int:
    """The size of the weight file by a HEAD request, or that of all shards by their index."""
    name = choose_weights(model.files or (), adapter=model.kind == "adapter")
    if name is None:
        raise ModelError("no-weights", f"{model.id}: no weight file")
    if not name.endswith(".json"):
        places = (model.path(file) for file in shard_files(name))
        return sum(locate(session, model.id, model.sha, place).size for place in places)
    try:
        index = json.loads(read_small_file(model, name, session=session))
        size = index["metadata"]["total_size"]
    except (ValueError, RecursionError, KeyError, TypeError):
        size = None
    if not isinstance(size, (int, float)) or not 0 < size < 1 << 60:
        raise ModelError("bad-header", f"{model.id}: {name} does not say how large its shards are")
    return int(size)
