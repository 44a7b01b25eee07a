"""Reads from the network that end with their call, however slowly the bytes trickle in.

The client's own limit is for one read. A server that sends a header byte by byte keeps
every single read short, and all of them together without an end.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpx2
from httpcore2 import (
    SOCKET_OPTION,
    NetworkBackend,
    NetworkStream,
    ReadTimeout,
    SyncBackend,
)

from .call import current_call


def bound_reads(transport: httpx2.BaseTransport | None) -> None:
    """Let every read of a transport's connections end with the thread's current call."""
    pool = getattr(transport, "_pool", None)
    if pool is not None:
        pool._network_backend = BoundedBackend()


class BoundedBackend(NetworkBackend):
    """Connections whose reads are bounded."""

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
