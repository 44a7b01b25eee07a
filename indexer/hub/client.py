"""The HTTP client that huggingface_hub works with: no endless waits, no secrets in logs."""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any

import httpx2
from httpcore2 import (
    SOCKET_OPTION,
    NetworkBackend,
    NetworkStream,
    ReadTimeout,
    SyncBackend,
)
from huggingface_hub import get_session, is_offline_mode, set_client_factory
from huggingface_hub.errors import OfflineModeIsEnabled

from ...errors import ModelError
from .call import current_call
from .patience import Patience

_DEFAULT = Patience()
_QUERY = re.compile(r"(/[^\s'\"?]*)\?[^\s'\"),]*")
_LOGGERS = (
    "httpx2",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.http2",
    "httpcore2.proxy",
)
_HARNESS_PATH = "/api/agent-harnesses"


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
        call = current_call()
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
    """huggingface_hub's one client of this process, made by us."""
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


class _BoundedBackend(NetworkBackend):
    """Connections whose reads end with the thread's current call, however slowly bytes trickle in.

    The client's own limit is for one read. A server that sends a header byte by byte keeps
    every single read short, and all of them together without an end.
    """

    def __init__(self) -> None:
        self._inner = SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> NetworkStream:
        """A connection whose reads are bounded."""
        return _BoundedStream(
            self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        )


class _BoundedStream(NetworkStream):
    def __init__(self, inner: NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        call = current_call()
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
        name: limit if (asked := given.get(name)) is None else min(asked, limit)
        for name, limit in limits.items()
    }
