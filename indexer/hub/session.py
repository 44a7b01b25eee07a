"""One Hub as one user: address, token, limits, cached files, the HTTP client, JSON answers."""

from __future__ import annotations

import json
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
from httpcore2 import SOCKET_OPTION, NetworkStream, ReadTimeout, SyncBackend
from huggingface_hub import (
    constants,
    get_session,
    get_token,
    hf_hub_url,
    is_offline_mode,
    set_client_factory,
    try_to_load_from_cache,
)
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from ...errors import ModelError
from .call import CURRENT_CALL, Call, LocalBudget, Patience, RequestBudget, Traffic, origin_of

_COMMIT = re.compile(r"^[0-9a-f]{40}$")


def cached_file(cache_dir: Path, repo_id: str, commit: str, name: str) -> Path | None:
    """The local copy of one file of one commit; None where there is none."""
    if not _COMMIT.match(commit):
        return None
    try:
        path = try_to_load_from_cache(repo_id, name, cache_dir=cache_dir, revision=commit)
    except (ValueError, OSError):
        return None
    return Path(path) if isinstance(path, str) else None


def cached_files(cache_dir: Path, repo_id: str, commit: str) -> list[str]:
    """Names of every cached file of one commit."""
    snapshot = _repo_folder(cache_dir, repo_id) / "snapshots" / commit
    return sorted(
        (Path(folder) / name).relative_to(snapshot).as_posix()
        for folder, _, names in os.walk(snapshot)
        for name in names
    )


def cached_commit(cache_dir: Path, repo_id: str, revision: str) -> str | None:
    """The commit that a revision meant when it was last downloaded."""
    folder = _repo_folder(cache_dir, repo_id)
    if _COMMIT.match(revision):
        return revision if (folder / "snapshots" / revision).is_dir() else None
    try:
        commit = (folder / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        return None
    return commit if (folder / "snapshots" / commit).is_dir() else None


def _repo_folder(cache_dir: Path, repo_id: str) -> Path:
    return cache_dir / repo_folder_name(repo_id=repo_id, repo_type="model")


_PACKED = {"Accept-Encoding": "gzip"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_DEFAULT = Patience()
_QUERY = re.compile(r"(/[^\s'\"?]*)\?[^\s'\"),]*")

_LOGGERS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy")))

_HARNESS_PATH = "/api/agent-harnesses"


@dataclass(kw_only=True)
class HubSession:
    """One Hub as one user; the defaults are huggingface_hub's own, from the environment.

    Attributes:
        token: None takes HF_TOKEN or the saved one; False sends none.
        cancelled: Set it to end every wait of this session.
        expand_level: How many sets of properties this Hub has refused to list.
    """

    endpoint: str = field(default_factory=lambda: constants.ENDPOINT)
    token: str | bool | None = field(default=None, repr=False)
    cache_dir: Path = field(default_factory=lambda: Path(constants.HF_HUB_CACHE))
    patience: Patience = field(default_factory=Patience)
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    expand_level: int = 0
    budget: RequestBudget = field(default_factory=LocalBudget, repr=False)
    traffic: Traffic = field(default_factory=Traffic, repr=False)

    def __post_init__(self) -> None:
        self.endpoint = self.endpoint.rstrip("/")

    @property
    def headers(self) -> dict[str, str]:
        """Request headers, the token included where there is one now.

        Raises:
            ModelError: `unauthorized` where the saved token cannot be read.
        """
        token = self.token
        if token is None:
            token = not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN
        try:
            token = (get_token() or False) if token is True else token
        except (OSError, ValueError) as err:
            raise ModelError("unauthorized", f"no token: {type(err).__name__}") from None
        with self.call("the request's headers").current():
            return build_hf_headers(token=token, library_name="deltadex")

    @property
    def has_token(self) -> bool:
        return "authorization" in self.headers

    def call(self, what: str) -> Call:
        """A call to come, named `what` in messages."""
        hub_client()
        return Call(
            what=what,
            origin=origin_of(httpx2.URL(self.endpoint)),
            patience=self.patience,
            cancelled=self.cancelled,
            budget=self.budget,
            traffic=self.traffic,
        )

    def send(
        self, method: str, url: str, headers: dict[str, str], *, stream: bool = False
    ) -> httpx2.Response:
        """The answer to one request inside the current call."""
        client = hub_client()
        headers = {**self.headers, "Accept-Encoding": "identity", **headers}
        return client.send(client.build_request(method, url, headers=headers), stream=stream)

    def file_url(self, repo_id: str, revision: str, name: str) -> str:
        return hf_hub_url(repo_id, name, revision=revision, endpoint=self.endpoint)

    @property
    def offline(self) -> bool:
        """Whether no request may be sent (HF_HUB_OFFLINE)."""
        return is_offline_mode()

    def refuse_offline(self, what: str) -> None:
        if self.offline:
            line = "offline mode (HF_HUB_OFFLINE), and not in the local cache"
            raise ModelError("offline", f"{what}: {line}")


def request_json(session: HubSession, call: Call, url: str) -> tuple[Any, httpx2.Response]:
    """The JSON value at an address of the Hub, and the answer that held it.

    Statuses that `call` passes have the value None. Text that cannot be
    written as UTF-8 is mended.
    """
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
    """The session that the environment describes."""
    return HubSession()


def run_session() -> HubSession:
    """A session of the same settings for one run: its `cancelled` ends no other's waits."""
    return replace(default_session(), cancelled=threading.Event(), traffic=Traffic())


class HubClient(httpx2.Client):
    """Replaces missing timeouts; inside a `Call`, also retries and limits it as a whole."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for transport in (self._transport, *self._mounts.values()):
            pool = getattr(transport, "_pool", None)
            if pool is not None:
                pool._network_backend = _BoundedBackend()

    def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """The answer to a request, under the rules of the thread's current call."""
        call = CURRENT_CALL.get()
        if is_offline_mode():
            if call is not None:
                raise ModelError("offline", f"{call.what}: offline mode (HF_HUB_OFFLINE)")
            raise OfflineModeIsEnabled("offline mode is enabled (HF_HUB_OFFLINE)")
        patience = _DEFAULT if call is None else call.patience
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
    """huggingface_hub's client of this process, made here."""
    client = get_session()
    if not isinstance(client, HubClient):
        set_client_factory(_make_client)
        client = get_session()
    return client


def _make_client() -> HubClient:
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(f, _HideQueries) for f in logger.filters):
            logger.addFilter(_HideQueries())
    timeout = httpx2.Timeout(_DEFAULT.read_s, connect=_DEFAULT.connect_s)
    return HubClient(follow_redirects=True, timeout=timeout)


class _BoundedBackend(SyncBackend):
    """Connections whose reads end with the thread's current call, however slowly bytes trickle in.

    The client's own limit is for one read. A server that sends a header byte by byte keeps
    every single read short, and all of them together without an end.
    """

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> NetworkStream:
        return _BoundedStream(
            super().connect_tcp(host, port, timeout, local_address, socket_options)
        )


class _BoundedStream(NetworkStream):
    def __init__(self, inner: NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        call = CURRENT_CALL.get()
        if call is None:
            return self._inner.read(max_bytes, timeout)
        left = call.deadline - time.monotonic()
        if left <= 0:
            raise ReadTimeout("the call has taken too long")
        return self._inner.read(max_bytes, left if timeout is None else min(timeout, left))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        return _BoundedStream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _HideQueries(logging.Filter):
    """Takes the query, where signatures are, out of every address in a log line."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _QUERY.sub(r"\1?…", record.getMessage()), ()
        return True


def _finite(timeout: Mapping[str, Any] | None, patience: Patience) -> dict[str, float]:
    given = timeout or {}
    limits = {
        "connect": patience.connect_s,
        "read": patience.read_s,
        "write": patience.read_s,
        "pool": patience.call_s,
    }
    return {
        name: limit if (stated := given.get(name)) is None else min(stated, limit)
        for name, limit in limits.items()
    }
