"""One Hub as one user, and one call to it: token, client, limits, retries, what a refusal means."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import httpx2
from huggingface_hub import (
    constants,
    get_session,
    hf_hub_url,
    is_offline_mode,
    set_client_factory,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers, parse_ratelimit_headers  # type: ignore[attr-defined]

from ...connections import bound_connections
from ...errors import ModelError

log = logging.getLogger(__name__)

RequestKind = Literal["api", "resolve", "storage"]
"""`api` and `resolve` are the Hub's two budgets: questions about models, and files of models.
Ranges on a signed address are `storage`, which the Hub does not count."""

CACHE = "/api/resolve-cache/"
"""Where the Hub redirects requests for small files to."""


def origin_of(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme, 0)


def kind_of(url: httpx2.URL, hub: tuple[str, str, int]) -> RequestKind:
    if origin_of(url) != hub:
        return "storage"
    return "resolve" if "/resolve/" in url.path or CACHE in url.path else "api"


SAME_WINDOW_S = 5.0
"""Two answers whose windows end within this time speak of the same one."""


@dataclass(slots=True)
class LocalBudget:
    """A token bucket for each kind of request, of one process. Safe between threads.

    Without a word of the Hub it grants everything.
    """

    _windows: dict[RequestKind, tuple[int, float]] = field(default_factory=dict)
    """Requests that are left, and when there are new ones."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, kind: RequestKind) -> float:
        """Take one request. Returns 0, or the seconds after which to ask again."""
        with self._lock:
            now = time.monotonic()
            remaining, ends_at = self._windows.get(kind, (0, now))
            if now >= ends_at:
                self._windows.pop(kind, None)
            elif remaining > 0:
                self._windows[kind] = remaining - 1, ends_at
            else:
                return ends_at - now
            return 0.0

    def observe(self, kind: RequestKind, remaining: int, reset_s: float) -> None:
        """Learn what the Hub says: requests left, and seconds until there are new ones."""
        ends_at = time.monotonic() + reset_s
        with self._lock:
            known = self._windows.get(kind)
            if known is not None and ends_at <= known[1] + SAME_WINDOW_S:
                # answers overtake one another: the smallest count is the latest
                remaining, ends_at = min(known[0], remaining), known[1]
            self._windows[kind] = remaining, ends_at


@dataclass(frozen=True, slots=True)
class RateLimit:
    requests: int
    window_s: int


@dataclass(slots=True)
class Traffic:
    """Answers that came, by kind of request. Safe between threads."""

    counts: Counter[RequestKind] = field(default_factory=Counter)
    limits: dict[RequestKind, RateLimit] = field(default_factory=dict)
    redirects_small_files: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, response: httpx2.Response, kind: RequestKind) -> None:
        with self._lock:
            self.counts[kind] += 1
            self.redirects_small_files |= CACHE in response.request.url.path


_COUNT = re.compile(r"[0-9]{1,15}")
SET_TOKEN = "check the id; if it is private, set HF_TOKEN to a token that may read it"
DISABLED = "Access to this resource is disabled."
BAD_TOKEN = "Invalid credentials in Authorization header"

_BY_ERROR_CODE = {
    "GatedRepo": ("gated", "the repository is gated; ask for access on its page and set HF_TOKEN"),
    "RepoNotFound": ("private-or-missing", f"no such repository, or a private one; {SET_TOKEN}"),
    "RevisionNotFound": ("not-found", "no such revision"),
    "EntryNotFound": ("not-found", "no such file in the repository"),
}

MAX_REDIRECTS = 10

MAX_ANSWER = 64 << 20
"""Bytes of an answer that is read as a whole, unpacked: a page of a listing is the largest."""

RETRIED = (
    httpx2.TimeoutException,
    httpx2.NetworkError,
    httpx2.RemoteProtocolError,
    httpx2.ProxyError,
)

NOT_THERE = (httpx2.ConnectError, httpx2.TimeoutException, httpx2.ProxyError)

FIRST_CONNECT_S, FIRST_READ_S = 3.0, 10.0
"""Limits for a server that has not answered this process yet: to connect, and to answer at all."""

SILENCE_S = 60.0
"""How long such a server counts as not there once a try failed."""


@dataclass(slots=True)
class Contact:
    """Whether a server is there, as far as this process knows. Before its first answer a try that
    finds nobody is the last one, for every call, for `SILENCE_S`."""

    answered: bool = False
    _failure: str = ""
    _failed_at: float = 0.0

    def lost(self, failure: str) -> bool:
        """Take note of a try that found nobody; whether that is the last word for now."""
        self._failure, self._failed_at = failure, time.monotonic()
        return not self.answered

    @property
    def failure(self) -> str:
        """Why nothing is tried now; empty where it is."""
        is_recent = time.monotonic() < self._failed_at + SILENCE_S
        return self._failure if is_recent and not self.answered else ""


CURRENT_CALL: ContextVar[Call | None] = ContextVar("deltadex_hub_call", default=None)
"""The call that this thread's requests belong to."""

Send = Callable[[httpx2.Request], httpx2.Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits of one call to the Hub; all times in seconds.

    Attributes:
        read_s: Without a single byte arriving.
        call_s: For the whole call with its retries, waits for rate limits apart.
        bytes_per_second: A call that fetches many bytes may take that much longer.
        least_bytes_per_second: Of one answer, from `read_s` after its beginning on.
        rate_limit_s: Waits that the Hub demands, within one call.
        tries: Failures in a row before a call is given up.
        least_bytes: An answer that was cut and brought fewer is a failure in the same row.
    """

    connect_s: float = 10.0
    read_s: float = 30.0
    call_s: float = 120.0
    bytes_per_second: float = 100_000.0
    least_bytes_per_second: float = 1_000.0
    rate_limit_s: float = 300.0
    tries: int = 5
    least_bytes: int = 1 << 14
    first_pause_s: float = 1.0
    longest_pause_s: float = 8.0


def is_count(text: str) -> bool:
    return _COUNT.fullmatch(text) is not None


def refusal(response: httpx2.Response, what: str) -> ModelError:
    status, headers = response.status_code, response.headers
    code, line = "hub-bad-answer", f"the Hub answers {status}"
    known = _BY_ERROR_CODE.get(headers.get("X-Error-Code", ""))
    if headers.get("X-Error-Message") == DISABLED or status == 451:
        code, line = "disabled", "the Hub has disabled the repository"
    elif headers.get("X-Error-Message") == BAD_TOKEN:
        code, line = "unauthorized", "the Hub does not know the token; check HF_TOKEN"
    elif known is not None:
        code, line = known
    elif status in (401, 404):
        code, line = "private-or-missing", f"no such file, or a private one ({status}); {SET_TOKEN}"
    elif status == 403:
        code, line = "unauthorized", "access is refused (403); check HF_TOKEN's rights"
    elif status == 429:
        code, line = "rate-limited", "too many requests; run again later, or set HF_TOKEN"
    elif status == 408 or status >= 500:
        code, line = "hub-unreachable", f"{line}; run again later"
    return ModelError(code, f"{what}: {line}")


def retry_delay_s(response: httpx2.Response) -> float | None:
    """Seconds to wait before the next request, by `RateLimit` or `Retry-After`."""
    if response.status_code == 429:
        with suppress(ValueError, OverflowError):
            limit = parse_ratelimit_headers(response.headers)
            if limit is not None and limit.remaining == 0:
                return float(limit.reset_in_seconds)
    value = response.headers.get("Retry-After", "").strip()
    if is_count(value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


# tenacity (and stamina over it) was tried: questions that are asked within a call share its
# failures in a row, bytes that came begin the row anew, and a wait that the Hub demands moves the
# deadline. As callbacks of a library that takes 71 lines in place of 46.
@dataclass(slots=True, kw_only=True)
class Call:
    """One call in progress, with the name that messages give it. `leaves_hub`: redirects to another
    origin than the session's are followed; `max_bytes`: of one answer's body."""

    what: str
    session: HubSession
    patience: Patience
    passes: frozenset[int] = frozenset()
    leaves_hub: bool = True
    max_bytes: int = MAX_ANSWER
    on_bytes: Callable[[int], None] | None = None
    deadline: float = 0.0
    failures: int = 0
    waited_s: float = 0.0

    @contextmanager
    def current(self, expected_bytes: int = 0) -> Iterator[Call]:
        allowance = expected_bytes / self.patience.bytes_per_second
        self.deadline = time.monotonic() + self.patience.call_s + allowance
        token = CURRENT_CALL.set(self)
        try:
            yield self
        finally:
            CURRENT_CALL.reset(token)

    def exchange(self, send: Send, request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        """The answer to a request, requested again where that may help."""
        contact = self.session.contact
        if contact.failure:
            raise ModelError("hub-unreachable", f"{self.what}: {contact.failure}")
        while True:
            try:
                response = self._follow(send, request)
                if self._is_final(response):
                    return response if stream else self._read_whole(response)
            except RETRIED as err:
                error = ModelError("hub-unreachable", f"{self.what}: {describe_error(err)}")
                if isinstance(err, NOT_THERE) and contact.lost(describe_error(err)):
                    raise error from None
                self.failed(error)
            except (httpx2.HTTPError, httpx2.InvalidURL) as err:
                raise ModelError("hub-bad-answer", f"{self.what}: {describe_error(err)}") from None

    def failed(self, error: ModelError, brought: int = 0) -> None:
        """Pause before the next try, or raise `error` where there shall be none; `brought`: bytes
        of the answer that was cut."""
        self.failures = 1 if brought >= self.patience.least_bytes else self.failures + 1
        patience = self.patience
        pause = min(patience.longest_pause_s, patience.first_pause_s * 2.0 ** (self.failures - 1))
        if self.failures >= patience.tries or time.monotonic() + pause > self.deadline:
            raise error from None
        log.info("%s; trying again in %.0f s", error.reason, pause)
        self._sleep(pause)

    def check_time(self) -> None:
        """Raise where the call has taken too long as a whole, or is to be stopped."""
        self._sleep(0.0)
        if time.monotonic() > self.deadline:
            line = "the Hub is too slow; run again later"
            raise ModelError("hub-unreachable", f"{self.what}: {line}")

    def _follow(self, send: Send, request: httpx2.Request) -> httpx2.Response:
        history: list[httpx2.Response] = []
        while len(history) <= MAX_REDIRECTS:
            self.check_time()
            kind = kind_of(request.url, self.session.origin)
            if kind == "storage":
                request.headers.pop("authorization", None)
            else:
                self._take_request(kind)
            if self.failures:
                # what follows a wrong answer may still be in the connection, and reach others
                request.headers["Connection"] = "close"
            response = send(request)
            self._observe(response, kind)
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = _WatchedStream(response.stream, self)
            response.history = list(history)
            target = response.next_request
            leaves_hub = target is not None and origin_of(target.url) != self.session.origin
            if target is None or (leaves_hub and not self.leaves_hub):
                return response
            response.close()
            history.append(response)
            request = target
        raise ModelError("hub-bad-answer", f"{self.what}: redirected in circles")

    def _take_request(self, kind: RequestKind) -> None:
        """Wait until the Hub allows another request, which is no failure; a wait beyond the call's
        patience is not believed."""
        while 0 < (delay := self.session.budget.take(kind)) <= self.patience.rate_limit_s:
            pause = delay + min(1.0, self.patience.first_pause_s)
            log.info("%s: waits %.0f s for the Hub's next requests", self.what, pause)
            self.deadline += pause
            self._sleep(pause)

    def _observe(self, response: httpx2.Response, kind: RequestKind) -> None:
        budget, traffic = self.session.budget, self.session.traffic
        self.session.contact.answered = True
        traffic.count(response, kind)
        if kind == "storage":
            return
        delay = retry_delay_s(response) if response.status_code == 429 else None
        if delay is not None:
            budget.observe(kind, 0, delay)
        with suppress(ValueError, OverflowError):
            if (stated := parse_ratelimit_headers(response.headers)) is None:
                return
            if delay is None:
                budget.observe(kind, stated.remaining, float(stated.reset_in_seconds))
            if stated.limit and stated.window_seconds:
                traffic.limits[kind] = RateLimit(stated.limit, stated.window_seconds)

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
        delay = retry_delay_s(response)
        if delay is None:
            self.failed(error)
        else:
            self._delay(delay, error)
        return False

    def _delay(self, delay: float, error: ModelError) -> None:
        """Wait as long as the Hub demands, or raise `error` where that is too long."""
        self.failures += 1
        left = self.patience.rate_limit_s - self.waited_s
        if delay > left or self.failures > self.patience.tries:
            raise ModelError(error.code, f"{error.reason} (it demands a wait of {delay:.0f} s)")
        pause = delay + min(1.0, self.patience.first_pause_s)
        log.warning("the Hub demands a wait of %.0f s (%s)", delay, self.what)
        self.waited_s += pause
        self.deadline += pause
        self._sleep(pause)

    def check_size(self, n_bytes: int) -> None:
        if n_bytes > self.max_bytes:
            line = f"an answer of more than {self.max_bytes} bytes"
            raise ModelError("hub-bad-answer", f"{self.what}: {line}")

    def _read_whole(self, response: httpx2.Response) -> httpx2.Response:
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
        if self.session.cancelled.wait(seconds):
            raise ModelError("hub-unreachable", f"{self.what}: stopped")


class _WatchedStream(httpx2.SyncByteStream):
    """A body whose bytes are counted, and which ends with its call."""

    def __init__(self, inner: httpx2.SyncByteStream, call: Call) -> None:
        self._inner = inner
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        call, total, started = self._call, 0, time.monotonic()
        for chunk in self._inner:
            call.check_time()
            total, seconds = total + len(chunk), time.monotonic() - started
            least = seconds * call.patience.least_bytes_per_second
            if seconds > call.patience.read_s and total < least:
                line = f"the server is too slow: {total} bytes in {seconds:.0f} s; run again later"
                raise ModelError("hub-unreachable", f"{call.what}: {line}")
            if call.on_bytes is not None:
                call.on_bytes(len(chunk))
            call.check_size(total)
            yield chunk

    def close(self) -> None:
        self._inner.close()


def describe_error(err: Exception) -> str:
    if isinstance(err, httpx2.TimeoutException):
        return "no answer in time"
    if isinstance(err, httpx2.ConnectError):
        text = next(iter(str(err).splitlines()), "")
        detail = f" ({text})" if text and "://" not in text else ""
        return f"no connection to the Hub{detail}"
    if isinstance(err, (httpx2.NetworkError, httpx2.RemoteProtocolError)):
        return "the connection was cut"
    return f"an answer that cannot be used ({type(err).__name__})"


_COMMIT = re.compile(r"^[0-9a-f]{40}$")


def cached_file(cache_dir: Path, repo_id: str, commit: str, name: str) -> Path | None:
    if not _COMMIT.match(commit):
        return None
    try:
        path = try_to_load_from_cache(repo_id, name, cache_dir=cache_dir, revision=commit)
    except (ValueError, OSError):
        return None
    return Path(path) if isinstance(path, str) else None


def cached_snapshot(cache_dir: Path, repo_id: str, revision: str) -> Path | None:
    """The folder of a commit's files in the local cache, named by the commit."""
    try:
        folder = snapshot_download(
            repo_id, revision=revision, cache_dir=cache_dir, local_files_only=True
        )
    except (LocalEntryNotFoundError, ValueError, OSError):
        return None
    return Path(folder)


_PACKED = {"Accept-Encoding": "gzip"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_DEFAULT = Patience()
_QUERY = re.compile(r"(/[^\s'\"?]*)\?[^\s'\"),]*")

_LOGGERS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy")))

_HARNESS_PATH = "/api/agent-harnesses"


@dataclass(kw_only=True)
class HubSession:
    """One Hub as one user; the defaults are huggingface_hub's own, from the environment. `token`:
    None takes HF_TOKEN or the saved one, False sends none; `expand_level`: how many sets of
    properties this Hub has refused to list."""

    endpoint: str = field(default_factory=lambda: constants.ENDPOINT)
    token: str | Literal[False] | None = field(default=None, repr=False)
    cache_dir: Path = field(default_factory=lambda: Path(constants.HF_HUB_CACHE))
    patience: Patience = field(default_factory=Patience)
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    expand_level: int = 0
    budget: LocalBudget = field(default_factory=LocalBudget, repr=False)
    traffic: Traffic = field(default_factory=Traffic, repr=False)
    contact: Contact = field(default_factory=Contact, repr=False)

    def __post_init__(self) -> None:
        self.endpoint = self.endpoint.rstrip("/")

    @property
    def headers(self) -> dict[str, str]:
        """Request headers, the token included where there is one now; `unauthorized` where the
        saved one cannot be read."""
        try:
            with self.call("the request's headers").current():
                return build_hf_headers(token=self.token, library_name="deltadex")
        except (OSError, ValueError) as err:
            raise ModelError("unauthorized", f"no token: {type(err).__name__}") from None

    @property
    def has_token(self) -> bool:
        return "authorization" in self.headers

    @property
    def origin(self) -> tuple[str, str, int]:
        """(scheme, host, port) that may see the token."""
        return origin_of(httpx2.URL(self.endpoint))

    def call(self, what: str, patience: Patience | None = None, **settings: Any) -> Call:
        hub_client()
        return Call(what=what, session=self, patience=patience or self.patience, **settings)

    def send(
        self, method: str, url: str, headers: dict[str, str], *, stream: bool = False
    ) -> httpx2.Response:
        client = hub_client()
        headers = {**self.headers, "Accept-Encoding": "identity", **headers}
        return client.send(client.build_request(method, url, headers=headers), stream=stream)

    def file_url(self, repo_id: str, revision: str, name: str) -> str:
        return hf_hub_url(repo_id, name, revision=revision, endpoint=self.endpoint)

    @property
    def offline(self) -> bool:
        return is_offline_mode()

    def refuse_offline(self, what: str) -> None:
        if self.offline:
            line = "offline mode (HF_HUB_OFFLINE), and not in the local cache"
            raise ModelError("offline", f"{what}: {line}")


def request_json(session: HubSession, call: Call, url: str) -> tuple[Any, httpx2.Response]:
    """The JSON value at an address of the Hub, and the answer; None for statuses that `call`
    passes. Text that cannot be written as UTF-8 is mended."""
    with call.current():
        while True:
            response = session.send("GET", url, _PACKED)
            if response.status_code in call.passes:
                return None, response
            try:
                return _value(response), response
            except (ValueError, RecursionError):
                call.failed(ModelError("hub-bad-answer", f"{call.what}: an answer that is no JSON"))


def _value(response: httpx2.Response) -> Any:
    if response.status_code != 200:
        raise ValueError(response.status_code)
    text = response.content.decode("utf-8")
    value = json.loads(text)
    if _SURROGATE.search(text) is None:
        return value
    mended = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(mended.decode("utf-16", "replace"))


@cache
def default_session() -> HubSession:
    return HubSession()


def run_session() -> HubSession:
    """A session of the same settings for one run: its `cancelled` ends no other's waits."""
    return replace(default_session(), cancelled=threading.Event(), traffic=Traffic())


class HubClient(httpx2.Client):
    """Replaces missing timeouts; inside a `Call`, also retries and limits it as a whole."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        bound_connections(self, _until_deadline)

    def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        call = CURRENT_CALL.get()
        if is_offline_mode():
            if call is not None:
                raise ModelError("offline", f"{call.what}: offline mode (HF_HUB_OFFLINE)")
            raise OfflineModeIsEnabled("offline mode is enabled (HF_HUB_OFFLINE)")
        patience = _DEFAULT if call is None else call.patience
        if call is not None and not call.session.contact.answered:
            patience = replace(
                patience,
                connect_s=min(patience.connect_s, FIRST_CONNECT_S),
                read_s=min(patience.read_s, FIRST_READ_S),
            )
        request.extensions["timeout"] = _finite(request.extensions.get("timeout"), patience)
        if call is None:
            return super().send(request, stream=stream, **options)
        if (
            request.url.path.endswith(_HARNESS_PATH)
            and "HF_HUB_DISABLE_TELEMETRY" not in os.environ
        ):
            raise httpx2.ConnectError("telemetry look-ups are not made here")
        send = super().send
        return call.exchange(
            lambda r: send(r, stream=True, follow_redirects=False), request, stream=stream
        )


def hub_client() -> httpx2.Client:
    client = get_session()
    if not isinstance(client, HubClient):
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_hide_queries)
        timeout = httpx2.Timeout(_DEFAULT.read_s, connect=_DEFAULT.connect_s)
        set_client_factory(partial(HubClient, follow_redirects=True, timeout=timeout))
        client = get_session()
    return client


def _until_deadline(limit_s: float | None) -> float | None:
    """A read or write ends with the thread's current call."""
    if (call := CURRENT_CALL.get()) is None:
        return limit_s
    left = call.deadline - time.monotonic()
    return left if limit_s is None else min(limit_s, left)


def _hide_queries(record: logging.LogRecord) -> bool:
    """Take the query, where signatures are, out of every address in a log line."""
    record.msg, record.args = _QUERY.sub(r"\1?…", record.getMessage()), ()
    return True


def _finite(timeout: Mapping[str, Any] | None, patience: Patience) -> dict[str, float]:
    limits = {name: patience.read_s for name in ("read", "write")}
    limits |= {"connect": patience.connect_s, "pool": patience.call_s}
    given = {name: stated for name, stated in (timeout or {}).items() if stated is not None}
    return {name: min(limit, given.get(name, limit)) for name, limit in limits.items()}
