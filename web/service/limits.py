"""Checks of every request before it is read: its host name, the length of its body."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem, stopping
from .settings import SMALL_BODY

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SecurityHeaders:
    """Adds to every answer what it tells a browser not to do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class KnownHosts:
    """Refuses requests that call this service by a name that is not its own."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._hosts is not None:
            host = Headers(scope=scope).get("host", "")
            if _without_port(host).lower() not in self._hosts:
                problem = Problem(
                    400, "unknown-host", "this service has another name; --allow-host adds one"
                )
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimits:
    """Refuses bodies that are too long, by their header or as they come, or come too slowly.

    Args:
        large: Bytes allowed to (method, path) pairs that carry weights.
    """

    def __init__(self, app: ASGIApp, large: Mapping[tuple[str, str], int], seconds: float) -> None:
        self._app = app
        self._large = large
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))  # of a proxy
        limit = self._large.get((scope["method"], path), SMALL_BODY)
        stated = Headers(scope=scope).get("content-length", "0")
        if not stated.isdecimal() or int(stated) > limit:
            await _too_long(limit).response()(scope, receive, send)
            return
        body = _Body(receive, limit, self._seconds)
        started = is_refused = False

        async def noted(message: Message) -> None:
            # what the framework makes of a body that was cut off is not what is wrong
            nonlocal started, is_refused
            if body.problem is not None and not started:
                is_refused = started = True
                await body.problem.response()(scope, receive, send)
            elif not is_refused:
                started = True
                await send(message)

        try:
            await self._app(scope, body.receive, noted)
        except (Problem, asyncio.CancelledError) as ended:
            if started:
                raise
            # nothing but the end of the service cancels a request
            problem = ended if isinstance(ended, Problem) else stopping()
            await problem.response()(scope, receive, send)


class _Body:
    """Messages of one request, counted; `problem` says why they were cut off."""

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive = receive
        self._limit = limit
        self._until = asyncio.get_running_loop().time() + seconds
        self._seconds = seconds
        self._seen = 0
        self._complete = False
        self.problem: Problem | None = None

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError as err:
            detail = f"the body did not come within {self._seconds:g} s"
            self.problem = Problem(408, "slow-body", detail, {"Connection": "close"})
            raise self.problem from err
        if message["type"] == "http.disconnect":
            self.problem = Problem(400, "incomplete-body", "the client hung up before its end")
            raise self.problem
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._seen > self._limit:
                self.problem = _too_long(self._limit)
                raise self.problem
        return message


def _too_long(limit: int) -> Problem:
    shown = f"{limit / (1 << 20):g} MiB"
    return Problem(413, "body-too-long", f"at most {shown} here", {"Connection": "close"})


def _without_port(host: str) -> str:
    """`[::1]:80` → `[::1]`; `localhost:80` → `localhost`."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
