"""What holds for every request: its host, its body, HEAD, names that nobody declared."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from fastapi import Request, params
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import offered
from .answers import Problem, stopping
from .settings import SMALL_BODY

MAX_SHOWN = 40
"""Characters of an unknown name that are compared, and shown."""


class HeadAsGet:
    """Answers HEAD with the head of the answer to GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, receive, without_body)
        finally:
            scope["route"] = as_get.get("route")


async def refuse_unknown(request: Request) -> None:
    """Refuse what the route would ignore: an unknown parameter or form field, one given twice.

    Raises:
        Problem: 422.
    """
    declared = request.scope["route"].dependant
    known = [field.alias for field in declared.query_params]
    refuse_unknown_names(request.query_params.multi_items(), known)
    fields = [f.alias for f in declared.body_params if isinstance(f.field_info, params.Form)]
    if fields:
        refuse_unknown_names((await request.form()).multi_items(), fields)


def refuse_unknown_names(given: Collection[tuple[str, Any]], known: Collection[str]) -> None:
    """Refuse names and values of which one is not known, or comes twice; raises the same."""
    for name, times in Counter(name for name, _ in given).items():
        if name not in known:
            raise Problem(422, "invalid", unknown(name, known))
        if times > 1:
            raise Problem(422, "invalid", f"{name}: given {times} times; give it once")


def unknown(name: str, known: Collection[str]) -> str:
    """A sentence about a name that is none of those known, with the nearest of them."""
    shown = name[:MAX_SHOWN]
    return f"{shown!r} is unknown{offered(shown, known) or '; there are: none'}"


class Sent(BaseModel):
    """What a client sends as JSON or as a form: no other keys than those declared."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_unknown_key(cls, sent: Any) -> Any:
        for name in sent if isinstance(sent, dict) else ():
            if name not in cls.model_fields:
                fault = unknown(str(name), cls.model_fields)
                raise PydanticCustomError("unknown_key", "{fault}", {"fault": fault})
        return sent


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

    # Starlette's TrustedHostMiddleware answers in plain text, and not with a problem document
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
