"""One call to the Hub: its retries, its waits, and the moment when it is given up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import httpx2

from ...errors import ModelError
from .patience import Patience
from .refusals import asked_wait_s, refusal

log = logging.getLogger(__name__)

MAX_REDIRECTS = 10
MAX_ANSWER = 64 << 20
"""Bytes of an answer that is read as a whole, unpacked: a page of a listing is the largest."""

RETRIED = (
    httpx2.TimeoutException,
    httpx2.NetworkError,
    httpx2.RemoteProtocolError,
    httpx2.ProxyError,
)
_CURRENT: ContextVar[Call | None] = ContextVar("deltadex_hub_call", default=None)

Send = Callable[[httpx2.Request], httpx2.Response]


@dataclass(slots=True, kw_only=True)
class Call:
    """One call in progress, with the name that messages give it.

    Attributes:
        origin: (scheme, host, port) that may see the token.
        passes: Statuses of 400 and more that the caller deals with.
        leaves_hub: Whether redirects to another origin are followed.
        max_bytes: Of one answer's body, as it arrives and unpacked.
        cancelled: Ends every pause when set.
        on_bytes: Told of every piece of a body that arrives.
    """

    what: str
    origin: tuple[str, str, int]
    patience: Patience
    passes: frozenset[int] = frozenset()
    leaves_hub: bool = True
    max_bytes: int = MAX_ANSWER
    cancelled: threading.Event = field(default_factory=threading.Event)
    on_bytes: Callable[[int], None] | None = None
    deadline: float = 0.0
    failures: int = 0
    waited_s: float = 0.0

    @contextmanager
    def current(self, expected_bytes: int = 0) -> Iterator[Call]:
        """Make this the call that the thread's requests belong to, and start its clock."""
        allowance = expected_bytes / self.patience.bytes_per_second
        self.deadline = time.monotonic() + self.patience.call_s + allowance
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)

    def exchange(self, send: Send, request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        """The answer to a request, asked for again while that is worth it.

        Raises:
            ModelError: for every answer that is not one, and for every limit reached.
        """
        while True:
            try:
                response = self._follow(send, request)
                if self._is_final(response):
                    return response if stream else self._read_whole(response)
            except RETRIED as err:
                self.failed(ModelError("hub-unreachable", f"{self.what}: {describe_error(err)}"))
            except (httpx2.HTTPError, httpx2.InvalidURL) as err:
                raise ModelError("hub-bad-answer", f"{self.what}: {describe_error(err)}") from None

    def failed(self, error: ModelError) -> None:
        """Pause before the next try, or raise `error` where there shall be none."""
        self.failures += 1
        pause = self.patience.pause_s(self.failures)
        if self.failures >= self.patience.tries or time.monotonic() + pause > self.deadline:
            raise error from None
        log.info("%s; trying again in %.0f s", error.reason, pause)
        self._sleep(pause)

    def made_progress(self) -> None:
        """Count failures from zero again; the deadline stays."""
        self.failures = 0

    def check_time(self) -> None:
        """Raise where the call has taken too long as a whole, or is to be stopped."""
        if self.cancelled.is_set():
            raise ModelError("hub-unreachable", f"{self.what}: stopped")
        if time.monotonic() > self.deadline:
            raise ModelError(
                "hub-unreachable", f"{self.what}: the Hub is too slow; run again later"
            )

    def _follow(self, send: Send, request: httpx2.Request) -> httpx2.Response:
        history: list[httpx2.Response] = []
        while len(history) <= MAX_REDIRECTS:
            self.check_time()
            if origin_of(request.url) != self.origin:
                request.headers.pop("authorization", None)
            response = send(request)
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = _WatchedStream(response.stream, self)
            response.history = list(history)
            target = response.next_request
            if target is None or (not self.leaves_hub and origin_of(target.url) != self.origin):
                return response
            response.close()
            history.append(response)
            request = target
        raise ModelError("hub-bad-answer", f"{self.what}: redirected in circles")

    def _is_final(self, response: httpx2.Response) -> bool:
        """Whether to hand the answer on; False after the pause that a retry needs."""
        status = response.status_code
        if status < 400 or status in self.passes:
            if response.headers.get("content-type", "").lower().startswith("text/html"):
                response.close()
                line = "a web page instead of data; is a proxy or a login page in between?"
                raise ModelError("hub-bad-answer", f"{self.what}: {line}")
            return True
        response.close()
        error = refusal(response, self.what)
        if error.code not in ("rate-limited", "hub-unreachable"):
            raise error
        asked = asked_wait_s(response)
        if asked is None:
            self.failed(error)
        else:
            self._wait_as_asked(asked, error)
        return False

    def _wait_as_asked(self, asked: float, error: ModelError) -> None:
        self.failures += 1
        left = self.patience.rate_limit_s - self.waited_s
        if asked > left or self.failures > self.patience.tries:
            wait = f"it asks to wait {asked:.0f} s"
            raise ModelError(error.code, f"{error.reason} ({wait})")
        pause = asked + min(1.0, self.patience.first_pause_s)
        log.warning("the Hub asks to wait %.0f s (%s)", asked, self.what)
        self.waited_s += pause
        self.deadline += pause
        self._sleep(pause)

    def check_size(self, n_bytes: int) -> None:
        """Raise where an answer is larger than it may be."""
        if n_bytes > self.max_bytes:
            line = f"an answer of more than {self.max_bytes} bytes"
            raise ModelError("hub-bad-answer", f"{self.what}: {line}")

    def _read_whole(self, response: httpx2.Response) -> httpx2.Response:
        """The same answer with its body, unpacked no further than `max_bytes`."""
        body = bytearray()
        try:
            for piece in response.iter_bytes():
                body += piece
                self.check_size(len(body))
        finally:
            response.close()
        headers = httpx2.Headers(response.headers)
        if headers.pop("content-encoding", None) is not None:
            headers.pop("content-length", None)
        whole = httpx2.Response(
            response.status_code,
            headers=headers,
            content=bytes(body),
            request=response.request,
            history=response.history,
            extensions=response.extensions,
        )
        whole.next_request = response.next_request
        return whole

    def _sleep(self, seconds: float) -> None:
        if self.cancelled.wait(seconds):
            raise ModelError("hub-unreachable", f"{self.what}: stopped")


class _WatchedStream(httpx2.SyncByteStream):
    """A body whose bytes are counted, and which ends with its call."""

    def __init__(self, inner: httpx2.SyncByteStream, call: Call) -> None:
        self._inner = inner
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        call, total = self._call, 0
        for chunk in self._inner:
            call.check_time()
            total += len(chunk)
            if call.on_bytes is not None:
                call.on_bytes(len(chunk))
            call.check_size(total)
            yield chunk

    def close(self) -> None:
        self._inner.close()


def current_call() -> Call | None:
    """The call that this thread's requests belong to."""
    return _CURRENT.get()


def origin_of(url: httpx2.URL) -> tuple[str, str, int]:
    """(scheme, host, port) of an address."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme, 0)


def describe_error(err: Exception) -> str:
    """One line on a transport error that cannot hold an address."""
    if isinstance(err, httpx2.TimeoutException):
        return "no answer in time"
    if isinstance(err, httpx2.ConnectError):
        text = str(err).splitlines()[0] if str(err) else ""
        return (
            f"no connection to the Hub ({text})"
            if text and "://" not in text
            else "no connection to the Hub"
        )
    if isinstance(err, (httpx2.NetworkError, httpx2.RemoteProtocolError)):
        return "the connection was cut"
    return f"an answer that cannot be used ({type(err).__name__})"
