"""The HTTP face of a service: routes, middleware, the OpenAPI document, uvicorn."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.gzip import GZipMiddleware

from ... import __version__
from ...errors import DeltadexError
from .answers import PROBLEM, install_problems
from .middleware import BodyLimits, Doorway, refuse_unknown
from .routes import UNVERSIONED, VERSIONED
from .sent_data import DATA_LIMIT, FORM_BYTES
from .service import Service
from .settings import MIB, PREFIX, ServiceSettings

BACKLOG = 256


def listen(settings: ServiceSettings) -> socket.socket:
    """A socket on the address of the settings; a `DeltadexError` where there can be none."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    place = (settings.host, settings.port)
    try:
        listening = socket.create_server(place, family=family, backlog=BACKLOG)
    except OSError as err:
        why = (err.strerror or str(err)).lower()
        raise DeltadexError(
            f"cannot listen on {place[0]}:{place[1]}: {why}; choose another --port"
        ) from err
    # connections inherit it; asyncio sets it only where the protocol is given by number, and an
    # answer's body would wait 40 ms for the client to acknowledge its headers
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address(settings: ServiceSettings, listening: socket.socket) -> str:
    """Where a browser finds the service."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listening.getsockname()[1]}{settings.root_path}/"


LONGEST_END_S, LONGEST_ANSWER_S = 9.0, 4.0
"""From a signal to the end of the process, and to that of the requests at work."""


@contextmanager
def ends_in_time() -> Iterator[Callable[[], None]]:
    """Gives what begins the end; where the block takes longer from then on, the process ends
    without it: a copy of the catalog cannot be stopped, and what is recorded stays."""
    timer = threading.Timer(LONGEST_END_S, os._exit, (0,))
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def run_server(
    app: FastAPI,
    settings: ServiceSettings,
    listening: socket.socket,
    started: Callable[[], None],
    ending: Callable[[], None],
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
        limit_concurrency=512,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(LONGEST_ANSWER_S),
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
        # whose address a proxy forwards is of no use here
        proxy_headers=False,
    )
    with _signals_pass():
        _Server(config, app.state.service, started, ending).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Calls `started` once it answers, and `ending` once it is to end."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        started: Callable[[], None],
        ending: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._service, self._on_start, self._on_end = service, started, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_end()
        # whoever waits for models that are added is answered
        await asyncio.to_thread(self._service.additions.close)
        await super().shutdown(sockets)


@contextmanager
def _signals_pass() -> Iterator[None]:
    """Signals that uvicorn ended on, and raises again, do nothing more in the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


PACKED_FROM = 4096
"""Bytes of an answer from which it is packed."""

WITH_WEIGHTS = ("similar/adapter", "models")
"""What is posted with an adapter's files."""


def make_app(service: Service) -> FastAPI:
    """The ASGI app of an open service, which it does not close."""
    settings = service.settings
    app = FastAPI(
        title="deltadex",
        version=__version__,
        summary="Fine-tuned models that were trained on the same data, by their weights.",
        openapi_url=f"{PREFIX}/openapi.json",
        # their pages load scripts from other hosts
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.openapi = partial(_document, app)  # type: ignore[method-assign]
    install_problems(app)
    for router in VERSIONED:
        app.include_router(router, prefix=PREFIX, dependencies=[Depends(refuse_unknown)])
    app.include_router(UNVERSIONED)
    # the last added meets a request first
    app.add_middleware(GZipMiddleware, minimum_size=PACKED_FROM, compresslevel=5)
    with_weights = settings.body_limit * MIB
    large = {("POST", f"{PREFIX}/{name}"): with_weights for name in WITH_WEIGHTS}
    large["POST", f"{PREFIX}/trained-on"] = DATA_LIMIT + FORM_BYTES
    app.add_middleware(BodyLimits, large=large, seconds=settings.max_seconds)
    app.add_middleware(Doorway, hosts=settings.known_hosts, metrics=service.metrics)
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: problems under their own media type."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        for operation in (o for path in document["paths"].values() for o in path.values()):
            for answer in operation["responses"].values():
                content = answer.get("content", {})
                if PROBLEM in content:
                    content[PROBLEM] = content.pop("application/json")
        app.openapi_schema = document
    return app.openapi_schema
