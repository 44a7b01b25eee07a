"""Connections of an HTTP client that end in time: its own limit is for one read, and a server that
sends byte by byte keeps every one short."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import httpx2
from httpcore2 import ConnectTimeout, NetworkStream, ReadTimeout, SyncBackend, WriteTimeout

Limit = Callable[[float | None], float | None]
"""From the client's limit for one read or write, in seconds, that of this one; at most 0 where no
time is left, None for none."""

PIECE = 1 << 14
"""Bytes that are written under one limit."""


def bound_connections(client: httpx2.Client, limit: Limit) -> None:
    """Have a limit for every read and write of a client's connections."""
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None:
            pool._network_backend = _BoundedBackend(limit)


class _BoundedBackend(SyncBackend):
    """The beginning is limited as a whole: a name's look-up has no limit, and a name's addresses
    are tried one after the other."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *options: Any, **more: Any
    ) -> NetworkStream:
        begun: Future[NetworkStream] = Future()
        connect = partial(super().connect_tcp, host, port, timeout, *options, **more)
        threading.Thread(target=_settle, args=(begun, connect), daemon=True).start()
        try:
            return _BoundedStream(begun.result(timeout), self._limit)
        except TimeoutError:
            raise ConnectTimeout("no connection in time") from None


def _settle(future: Future[NetworkStream], connect: Callable[[], NetworkStream]) -> None:
    try:
        future.set_result(connect())
    except Exception as err:
        future.set_exception(err)


class _BoundedStream(NetworkStream):
    def __init__(self, inner: NetworkStream, limit: Limit) -> None:
        self._inner, self._limit = inner, limit

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._limit(timeout)
        if left is not None and left <= 0:
            raise ReadTimeout("the call has taken too long")
        return self._inner.read(max_bytes, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            left = self._limit(timeout)
            if left is not None and left <= 0:
                raise WriteTimeout("the call has taken too long")
            self._inner.write(buffer[start : start + PIECE], left)

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, *context: Any, **options: Any) -> NetworkStream:
        return _BoundedStream(self._inner.start_tls(*context, **options), self._limit)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
