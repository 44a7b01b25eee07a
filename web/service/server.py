"""uvicorn, with the settings of a service on an open network."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from ...errors import DeltadexError
from .settings import ServiceSettings

KEEP_ALIVE_SECONDS = 15
GRACE_SECONDS = 10
MAX_CONNECTIONS = 512
BACKLOG = 256


def listen(settings: ServiceSettings) -> socket.socket:
    """A socket on the address of the settings.

    Raises:
        DeltadexError: somebody else listens there, or it is no address of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server(
            (settings.host, settings.port), family=family, backlog=BACKLOG
        )
    except OSError as err:
        place = f"{settings.host}:{settings.port}"
        raise DeltadexError(
            f"cannot listen on {place}: {(err.strerror or str(err)).lower()}; choose another --port"
        ) from err
    # connections inherit it; asyncio sets it only where the protocol is given by number, and an
    # answer's body would wait 40 ms for the client to acknowledge its headers
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address(settings: ServiceSettings, listening: socket.socket) -> str:
    """Where a browser finds the service."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listening.getsockname()[1]}{settings.root_path}/"


def run_server(
    app: FastAPI, settings: ServiceSettings, listening: socket.socket, started: Callable[[], None]
) -> None:
    """Answer requests until a signal to end; requests at work are waited for a while."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        root_path=settings.root_path,
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
        # whose address a proxy forwards is of no use here
        proxy_headers=False,
    )
    with _signals_pass():
        _Server(config, started).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Calls `started` once it answers."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()


@contextmanager
def _signals_pass() -> Iterator[None]:
    """Signals that uvicorn ended on, and raises again, do nothing more in the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
