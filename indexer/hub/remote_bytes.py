"""One file on the Hub: where its bytes are, ranges of them, every answer checked; and the file read
whole, compared with the SHA-256 that is listed for it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx2

from ...errors import ModelError
from ...records import Verification
from ..checkpoint import WHOLE_TENSORS, Buffer, ByteSource, ReadPlan
from .call import RETRIED, Call, describe_error, is_count
from .session import HubSession

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
    """One file of one commit, as the Hub answers a HEAD.

    Attributes:
        url: Where its bytes are handed out; signed, so never shown.
        on_hub: Whether that is the Hub itself, which may see the token.
    """

    repo_id: str
    commit: str
    path: str
    size: int
    etag: str
    url: str = field(repr=False)
    on_hub: bool

    @property
    def what(self) -> str:
        """Repository and file, as messages name them."""
        return f"{self.repo_id}: {self.path}"

    @property
    def sha256(self) -> str | None:
        """The content's hash, where the Hub knows it (files in large-file storage)."""
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
    call = session.call(what)
    call.leaves_hub = False
    with call.current():
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
    """A file of the Hub, read from its signed address.

    A body that is cut goes on where it stopped; an expired address is requested again.
    """

    def __init__(
        self, session: HubSession, file: RemoteFile, plan: ReadPlan = WHOLE_TENSORS
    ) -> None:
        self.name = file.path
        self.size = file.size
        self.plan = plan
        self.bytes_fetched = 0
        self._session = session
        self._file = file
        self._seen: tuple[str, str] | None = None
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> bytearray:
        what = self._file.what
        if stop > self.size:
            raise ModelError("truncated", f"{what}: byte {stop} is wanted, {self.size} are there")
        transfer = _Transfer(what, start, stop)
        call = self._session.call(what)
        call.max_bytes, call.on_bytes = _NO_LIMIT, self._count
        expired = False
        with call.current(expected_bytes=stop - start):
            while not transfer.complete:
                file, before = self._file, transfer.next
                try:
                    self._fetch(file, transfer, call)
                except _Expired as err:
                    if expired:
                        line = f"{what}: its storage refuses the signed address ({err})"
                        raise ModelError("hub-bad-answer", line) from None
                    expired = True
                    self._locate_again(file)
                except _Again as err:
                    call.failed(err.error, brought=transfer.next - before)
        return transfer.buffer

    def view(self, start: int, stop: int) -> AbstractContextManager[bytearray]:
        return nullcontext(self.read(start, stop))

    def verify(self) -> Verification | None:
        """Ranges alone are compared with nothing; see `VerifiedBytes`."""
        return "unverified" if self._file.sha256 else None

    def close(self) -> None:
        return

    def _fetch(self, file: RemoteFile, transfer: _Transfer, call: Call) -> None:
        call.passes = frozenset({416}) if file.on_hub else _REFUSED | {416}
        wanted = {"Range": f"bytes={transfer.next}-{transfer.stop - 1}"}
        response = self._session.send("GET", file.url, wanted, stream=True)
        try:
            if response.status_code in _REFUSED:
                raise _Expired(response.status_code)
            self._require_same_content(response, file)
            transfer.begin(response, file.size)
            for chunk in response.iter_raw():
                transfer.add(chunk)
                if transfer.complete and transfer.is_whole_file:
                    break
        except RETRIED as err:
            line = f"{transfer.what}: {describe_error(err)}"
            raise _Again(ModelError("hub-unreachable", line)) from None
        finally:
            response.close()
        if not transfer.complete:
            line = f"{transfer.what}: answers end at byte {transfer.next} of {transfer.stop}"
            raise _Again(ModelError("hub-bad-answer", line))

    def _require_same_content(self, response: httpx2.Response, file: RemoteFile) -> None:
        """Raise where the address hands out something else than before.

        Storage has its own ETags, which need not be the Hub's, so they are compared
        with what the same address said first.
        """
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


class _Transfer:
    def __init__(self, what: str, start: int, stop: int) -> None:
        self.what = what
        self.buffer = bytearray(stop - start)
        self.next = self._start = start
        self.stop = stop
        self._arriving = start
        self.is_whole_file = False

    @property
    def complete(self) -> bool:
        return self.next == self.stop

    def begin(self, response: httpx2.Response, size: int) -> None:
        """Check that an answer is the missing part of the range; its body is not read."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise self._bad("a range in a compressed form")
        declared = response.headers.get("Content-Range", "")
        match = _CONTENT_RANGE.match(declared)
        total = match[3] if match else declared.removeprefix("bytes */")
        if is_count(total) and int(total) != size:
            raise ModelError("changed", f"{self.what}: {total} bytes long, {size} expected")
        self.is_whole_file = response.status_code == 200
        if self.is_whole_file:
            length = response.headers.get("Content-Length", str(size))
            if length != str(size):
                raise ModelError("changed", f"{self.what}: {length} bytes long, {size} expected")
            if size > self.stop - self.next + SLACK:
                raise self._bad(f"the whole file of {size} bytes instead of a range")
            self._arriving = 0
        elif response.status_code != 206 or match is None:
            raise _Again(self._bad(f"status {response.status_code} for a range"))
        elif (int(match[1]), int(match[2])) != (self.next, self.stop - 1):
            wanted = f"bytes {self.next}-{self.stop - 1}"
            raise _Again(self._bad(f"bytes {match[1]}-{match[2]} where {wanted} were requested"))
        else:
            self._arriving = self.next

    def add(self, chunk: bytes) -> None:
        """Keep the wanted part of the next piece of the body."""
        begin, end = self._arriving, self._arriving + len(chunk)
        self._arriving = end
        if end > self.stop and not self.is_whole_file:
            raise self._bad("more bytes than requested")
        end = min(end, self.stop)
        if end > self.next:
            piece = memoryview(chunk)[self.next - begin : end - begin]
            self.buffer[self.next - self._start : end - self._start] = piece
            self.next = end

    def _bad(self, line: str) -> ModelError:
        return ModelError("hub-bad-answer", f"{self.what}: {line}")


class _Again(Exception):
    """An answer that may be better next time; carries the error if it never is."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(error)
        self.error = error


class _Expired(Exception):
    pass


PIECE = 8 << 20
"""Bytes of one read of what no reader wants, and of what is held until its turn in the file."""

CHUNK = 1 << 20
"""Bytes after which the hash's state is kept, so that a range that is read again is compared."""


class SourceOver:
    """A source of the bytes of another one, by ranges; `read` says how."""

    def __init__(self, source: ByteSource) -> None:
        self.name, self.size, self.plan = source.name, source.size, source.plan
        self._source = source

    @property
    def bytes_fetched(self) -> int | None:
        return self._source.bytes_fetched

    def read(self, start: int, stop: int) -> Buffer:
        return self._source.read(start, stop)

    def view(self, start: int, stop: int) -> AbstractContextManager[Buffer]:
        return nullcontext(self.read(start, stop))

    def verify(self) -> Verification | None:
        return self._source.verify()

    def close(self) -> None:
        self._source.close()


class VerifiedBytes(SourceOver):
    """A source whose bytes travel once each, and are hashed in the order of the file.

    SHA-256 takes bytes in one order only. Readers of weights go forward through a file; what they
    skip is read for the hash and dropped. What is read before its turn (the list at the end of an
    archive, an adapter's tensors in another order) is held until its turn comes: `PIECE` bytes, of
    an adapter `ReadPlan.memory`. Beyond that the bytes between are read first, so that a later read
    of them is a second one. A second read is compared with the hash's states before and after each
    of its chunks: what a reader gets is what was hashed.

    Only `verify` tells whether that is what is listed. Safe between threads, which take turns.
    """

    def __init__(self, source: ByteSource, sha256: str) -> None:
        super().__init__(source)
        self._listed = sha256
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._states: list[_Hash] = [self._hash.copy()]
        self._held: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> Buffer:
        with self._lock:
            return self._read(start, stop)

    def _read(self, start: int, stop: int) -> Buffer:
        known = max(start, min(stop, self._hashed))
        again = self._read_again(start, known) if start < known else bytearray()
        if known == stop:
            return again
        rest = self._read_new(known, stop)
        return bytearray(again) + rest if again else rest

    def verify(self) -> Verification:
        """Read what no reader wanted, and compare.

        Raises:
            ModelError: `checksum-mismatch`.
        """
        with self._lock:
            self._fill(self.size)
            found = self._hash.hexdigest()
        if found != self._listed:
            line = f"SHA-256 {found[:16]}… where {self._listed[:16]}… is listed"
            line += ": its bytes changed on the way"
            raise ModelError("checksum-mismatch", f"{self.name}: {line}")
        return "sha256"

    def close(self) -> None:
        self._held.clear()
        super().close()

    def _read_new(self, start: int, stop: int) -> Buffer:
        """A range of which nothing is hashed yet."""
        if start > self._hashed:
            limit = self.plan.memory if self.plan.ahead else 0 if self._hashed else PIECE
            if sum(map(len, self._held.values())) + stop - start <= limit:
                buffer = self._source.read(start, stop)
                self._compare_with_held(start, buffer)
                self._held[start] = max(self._held.get(start, b""), bytes(buffer), key=len)
                return buffer
            self._fill(start, leave=0 if self.plan.ahead else PIECE)
            if start < self._hashed:
                # what was held from there on is hashed now
                return self._read(start, stop)
        first = min(start, self._hashed)
        buffer = self._source.read(first, stop)
        self._compare_with_held(first, buffer)
        self._take(first, buffer)
        self._take_held()
        return buffer if first == start else bytearray(memoryview(buffer)[start - first :])

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
                raise _differs(self.name, begin)
        return bytearray(memoryview(buffer)[start - first : stop - first])

    def _fill(self, stop: int, *, leave: int = 0) -> None:
        """Hash up to `stop`; the last `leave` bytes of it are left to the read that follows."""
        self._take_held()
        while stop - self._hashed > leave:
            held = min((start for start in self._held if start < stop), default=stop)
            end = min(self._hashed + PIECE, held)
            self._take(self._hashed, self._source.read(self._hashed, end))
            self._take_held()

    def _take_held(self) -> None:
        for start in sorted(self._held):
            if start > self._hashed:
                return
            self._take(start, self._held.pop(start))

    def _take(self, start: int, buffer: Buffer | bytes) -> None:
        """Hash what of the buffer is new; it begins no later than where the hash is."""
        view = memoryview(buffer)[self._hashed - start :]
        while view:
            room = CHUNK - self._hashed % CHUNK
            self._hash.update(view[:room])
            self._hashed += len(view[:room])
            view = view[room:]
            if self._hashed % CHUNK == 0:
                self._states.append(self._hash.copy())

    def _compare_with_held(self, start: int, buffer: Buffer) -> None:
        """Require that what was read before its turn came a second time as it was."""
        for begin, held in self._held.items():
            first, last = max(start, begin), min(start + len(buffer), begin + len(held))
            if first < last:
                now = memoryview(buffer)[first - start : last - start]
                if now != memoryview(held)[first - begin : last - begin]:
                    raise _differs(self.name, first)


def _differs(name: str, place: int) -> ModelError:
    line = f"two reads differ after byte {place}: bytes changed on the way"
    return ModelError("checksum-mismatch", f"{name}: {line}")
