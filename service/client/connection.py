"""Requests to a service: tried again where that may help, jobs waited for, problems as errors."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2

from ... import __version__
from ...connections import bound_connections
from ...errors import (
    CODES,
    REASONS,
    DeltadexError,
    ModelError,
    NotServed,
    RequestError,
    ServiceError,
    StoreFull,
)

PREFIX = "/api/v1"

RETRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S = 5, 0.25, 8.0
"""Of what is tried again; a busy service is asked for as long as the caller waits."""

CONNECT_S = 10.0
CHUNK = 1 << 20

MOST_BYTES = 64 << 20
"""Of an answer that is read into memory, unpacked; as of the Hub's."""

_DEADLINE: ContextVar[float] = ContextVar("_DEADLINE")
"""When the connection's reads and writes of this thread end."""

_AGAIN = (429, 503)
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_CLOSED = ("read-only", "hub-closed", "catalog-closed")
"""Codes of what the operator of a service has not opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A request; `private` ones carry the token, `tries` are made again where it fails, what
    `streams` is not read into memory, a body with `files` is a form, and `fault` says what is wrong
    with an answer."""

    method: str = "GET"
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    files: Mapping[str, tuple[str, bytes]] | None = None
    private: bool = False
    tries: int = RETRIES
    streams: bool = False
    fault: Callable[[Any], str] | None = None

    @property
    def repeatable(self) -> bool:
        """Whether it may reach the service twice: what changes the catalog carries the token."""
        return self.method == "GET" or not self.private


class Connection:
    """The address of a service, with a pool of connections that threads share.

    Args:
        timeout: Seconds until a question has its answer: tries, pauses and jobs included.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"{url!r}: the address of a service begins with http:// or https://")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise RequestError("token: a token has plain characters only")
        if not timeout > 0:
            raise RequestError(f"timeout must be above 0, got {timeout}")
        path = parts.path.rstrip("/").removesuffix(PREFIX).rstrip("/")
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", ""))
        self._token, self._timeout = token, timeout
        self._client = httpx2.Client(
            base_url=urlunsplit((parts.scheme, parts.netloc, path + PREFIX, "", "")),
            headers={"User-Agent": f"deltadex/{__version__}"},
        )
        bound_connections(self._client, lambda _: _DEADLINE.get() - time.monotonic())

    def ask(self, sending: Sending) -> dict[str, Any]:
        """The document that a request is answered with, once it is there.

        Raises:
            DeltadexError: the class that the service's problem stands for.
            ServiceError: no service of deltadex answers, or not in time, or with something else.
        """
        with self._answered(sending) as answer:
            document = _document(answer, self.url)
        if sending.fault is not None and (fault := sending.fault(document)):
            raise ServiceError(f"{self.url}: not an answer of deltadex: {fault}")
        return document

    def download(self, sending: Sending, target: Path) -> str:
        """Write what a request is answered with into a file; the SHA-256 that was sent with it."""
        for tries_left in reversed(range(RETRIES)):
            with self._answered(sending) as answer:
                try:
                    self._save(answer, target)
                    return _sent_sha256(answer)
                except httpx2.HTTPError as err:
                    if not tries_left:
                        raise ServiceError(f"{self.url}: {_why(err)}") from err
        raise AssertionError

    def _save(self, answer: httpx2.Response, target: Path) -> None:
        """Write a body of as many bytes as are stated; each chunk has the time of a question."""
        length: str = answer.headers.get("Content-Length", "")
        n_bytes = int(length) if length.isdecimal() else 0
        if n_bytes > shutil.disk_usage(target.parent).free:
            raise StoreFull(f"{target}: {n_bytes >> 20} MiB are to be written, fewer are free")
        with target.open("wb") as file:
            _DEADLINE.set(time.monotonic() + self._timeout)
            for chunk in answer.iter_raw(CHUNK):
                if file.tell() + len(chunk) > n_bytes:
                    raise ServiceError(f"{self.url}: more came than the headers say")
                file.write(chunk)
                _DEADLINE.set(time.monotonic() + self._timeout)

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _answered(self, sending: Sending) -> Iterator[httpx2.Response]:
        """The answer, whose body is not read yet; of a job its result."""
        deadline = time.monotonic() + self._timeout
        answer = self._exchange(sending, deadline)
        try:
            while answer.status_code == 202:
                job = quote(str(_document(answer, self.url).get("job")), safe="")
                pause = _retry_after(answer) or FIRST_PAUSE_S
                answer.close()
                if time.monotonic() + pause > deadline:
                    raise ServiceError(
                        f"{self.url}: not answered within {self._timeout:g} s; the service goes on "
                        f"with it as job {job}"
                    )
                time.sleep(pause)
                poll = Sending(path=f"jobs/{job}", streams=sending.streams)
                answer = self._exchange(poll, deadline)
                if answer.status_code == 404 and _code(answer) == "unknown-job":
                    if not sending.repeatable:
                        raise ServiceError(
                            f"{self.url}: the service has forgotten the job, which may be done: "
                            "look before you send it again"
                        )
                    answer = self._exchange(sending, deadline)
            if answer.status_code >= 300:
                raise _error_of(answer, self.url)
            yield answer
        finally:
            answer.close()

    def _exchange(self, sending: Sending, deadline: float) -> httpx2.Response:
        """The first answer that is no request to come back later."""
        pause, failures = FIRST_PAUSE_S, 0
        while True:
            try:
                answer = self._send(sending, deadline)
            except (httpx2.HTTPError, httpx2.InvalidURL) as err:
                may_repeat = sending.repeatable or isinstance(err, _NEVER_SENT)
                failure: DeltadexError = ServiceError(f"{self.url}: {_why(err)}")
                failure.__cause__ = err
                after, is_busy = None, False
            else:
                if answer.status_code not in _AGAIN or _code(answer) == "stopped":
                    return answer
                failure, after = _error_of(answer, self.url), _retry_after(answer)
                is_busy, may_repeat = _code(answer) == "busy", True
            failures += not is_busy
            wait = max(pause, after or 0.0)
            if not may_repeat or failures > sending.tries or time.monotonic() + wait > deadline:
                raise failure
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _send(self, sending: Sending, deadline: float) -> httpx2.Response:
        left = max(1.0, deadline - time.monotonic())
        _DEADLINE.set(time.monotonic() + left)
        headers = {}
        if sending.private and self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = self._client.build_request(
            sending.method,
            sending.path,
            params=dict(sending.query),
            json=None if sending.files else sending.body,
            data=dict(sending.body or {}) if sending.files else None,
            files=sending.files,
            headers=headers,
            timeout=httpx2.Timeout(left, connect=min(left, CONNECT_S)),
        )
        answer = self._client.send(request, stream=True)
        is_streamed = sending.streams and answer.status_code == 200
        return answer if is_streamed else _read_whole(answer, self.url)


def _read_whole(answer: httpx2.Response, url: str) -> httpx2.Response:
    """The same answer with its body in memory; `ServiceError` for one that is too long."""
    body = bytearray()
    try:
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > MOST_BYTES:
                raise ServiceError(f"{url}: an answer of more than {MOST_BYTES >> 20} MiB")
    finally:
        answer.close()
    packing = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(n, v) for n, v in answer.headers.multi_items() if n.lower() not in packing]
    return httpx2.Response(answer.status_code, headers=headers, content=bytes(body))


def _sent_sha256(answer: httpx2.Response) -> str:
    """SHA-256 of a body by its headers (RFC 9530), in hexadecimal; "" where they do not say."""
    digest: str = answer.headers.get("Repr-Digest", "").removeprefix("sha-256=:").removesuffix(":")
    try:
        return base64.b64decode(digest, validate=True).hex()
    except ValueError:
        return ""


def in_path(value: str, below: Collection[str] = ()) -> str:
    """A value as a part of a path; its slashes stay, but before a last step that is one `below` the
    path, and `..` is no step up."""
    steps = (quote(step, safe="") for step in value.split("/"))
    path = "/".join(step.replace(".", "%2E") if not step.strip(".") else step for step in steps)
    above, _, last = path.rpartition("/")
    return f"{above}%2F{last}" if above and last in below else path


def _parsed(answer: httpx2.Response) -> dict[str, Any] | None:
    """The JSON object of an answer; None for anything else."""
    try:
        document = json.loads(answer.content, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _document(answer: httpx2.Response, url: str) -> dict[str, Any]:
    if (document := _parsed(answer)) is None:
        raise ServiceError(f"{url}: no service of deltadex answers there")
    return document


def _code(answer: httpx2.Response) -> str:
    return str((_parsed(answer) or {}).get("code", ""))


def _error_of(answer: httpx2.Response, url: str) -> DeltadexError:
    status, problem = answer.status_code, _parsed(answer) or {}
    code, detail = str(problem.get("code", "")), str(problem.get("detail", ""))
    if answer.is_redirect:
        return ServiceError(f"{url}: moved to {answer.headers.get('Location')}; connect to that")
    if not code:
        return ServiceError(f"{url}: no service of deltadex answers there (status {status})")
    if status == 401:
        return ServiceError(f"{url}: the token is missing or wrong: token=…, or $DELTADEX_TOKEN")
    if code in _CLOSED:
        return NotServed(f"{url}: {detail}")
    if code in CODES:
        return CODES[code](detail)
    if code in REASONS and status == 422:
        return ModelError(code, detail)
    if status < 500 and code not in ("not-found", "method-not-allowed", "unknown-host"):
        return RequestError(detail)
    return ServiceError(f"{url}: {detail}")


def _retry_after(answer: httpx2.Response) -> float | None:
    text = answer.headers.get("Retry-After", "").strip()
    return float(text) if text.isdecimal() and len(text) < 6 else None


def _why(err: Exception) -> str:
    if isinstance(err, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"no service can be reached there ({err or 'no answer'})"
    if isinstance(err, httpx2.TimeoutException):
        return "the service does not answer in time"
    return f"the service ended the connection ({err or type(err).__name__})"
