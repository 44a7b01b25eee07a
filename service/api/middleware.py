"""What holds for every request: its numbers, its host, its body, names that nobody declared."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import prometheus_client
from fastapi import Request, params
from fastapi.dependencies.models import Dependant
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import offered
from .answers import METHODS, Problem, stopping
from .catalog import Readers
from .settings import PREFIX, SMALL_BODY
from .work import Jobs, Shared

MAX_SHOWN = 40
"""Characters of an unknown name that are compared, and shown."""


async def refuse_unknown(request: Request) -> None:
    """Refuse what the route would ignore: an unknown parameter or form field, one given twice."""
    declared = list(_with_those_below(request.scope["route"].dependant))
    known = [field.alias for one in declared for field in one.query_params]
    refuse_unknown_names(request.query_params.multi_items(), known)
    sent = (field for one in declared for field in one.body_params)
    fields = [field.alias for field in sent if isinstance(field.field_info, params.Form)]
    if fields:
        refuse_unknown_names((await request.form()).multi_items(), fields)


def _with_those_below(declared: Dependant) -> Iterator[Dependant]:
    """A route's parameters, and those of what it depends on."""
    yield declared
    for one in declared.dependencies:
        yield from _with_those_below(one)


def refuse_unknown_names(given: Collection[tuple[str, Any]], known: Collection[str]) -> None:
    """Refuse names and values of which one is not known, or comes twice."""
    for name, times in Counter(name for name, _ in given).items():
        if name not in known:
            raise Problem(422, "invalid", _unknown(name, known))
        if times > 1:
            raise Problem(422, "invalid", f"{name}: given {times} times; give it once")


def _unknown(name: str, known: Collection[str]) -> str:
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
                fault = _unknown(str(name), cls.model_fields)
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
"""What every answer tells a browser not to do."""

_NO_GZIP = re.compile(rb"accept-encoding:.*gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)
"""A header that refuses gzip; Starlette would take it for one that asks for it."""


class Doorway:
    """What every request goes through: it is counted by the template of its route, its host is one
    that is known, HEAD is GET without a body, and the answer has the security headers.

    Starlette's TrustedHostMiddleware answers in plain text, and not with a problem document.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None, metrics: Metrics) -> None:
        self._app, self._hosts, self._metrics = app, hosts, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, status, started = scope["method"], 500, time.perf_counter()

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif method == "HEAD" and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        heads = [head for head in scope["headers"] if not _NO_GZIP.match(b":".join(head))]
        asked = {**scope, "headers": heads, "method": "GET" if method == "HEAD" else method}
        with self._metrics.in_flight.track_inprogress():
            try:
                await (self._refusal(scope) or self._app)(asked, receive, guarded)
            finally:
                self._metrics.count(method, _template(asked), status, started)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that no route is to see."""
        if "\n" in scope["path"]:
            # the `$` of a route's pattern would pass over it, at the end of an id
            return Problem(404, "not-found", "a path with a line break is not answered").response()
        if not self._is_known(Headers(scope=scope).get("host", "")):
            detail = "this service has another name; --allow-host adds one"
            return Problem(400, "unknown-host", detail).response()
        return None

    def _is_known(self, host: str) -> bool:
        """Whether it is a name of this service: `[::1]:80`, `localhost:80`, `localhost`."""
        end = "]" if host.startswith("[") else ":"
        name = host.partition(end)[0] + end * (end == "]")
        return self._hosts is None or name.lower() in self._hosts


class BodyLimits:
    """Refuses bodies that are too long, by their header or as they come, or come too slowly.
    `large`: bytes allowed to (method, path) pairs that carry weights."""

    def __init__(self, app: ASGIApp, large: Mapping[tuple[str, str], int], seconds: float) -> None:
        self._app, self._large, self._seconds = app, large, seconds

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
        self._receive, self._limit, self._seconds = receive, limit, seconds
        self._until = asyncio.get_running_loop().time() + seconds
        self._seen, self._complete = 0, False
        self.problem: Problem | None = None

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body did not come within {self._seconds:g} s"
            self.problem = Problem(408, "slow-body", detail, {"Connection": "close"})
            raise self.problem from None
        if message["type"] == "http.disconnect":
            self.problem = Problem(400, "incomplete-body", "the client hung up before its end")
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._seen > self._limit:
                self.problem = _too_long(self._limit)
        if self.problem is not None:
            raise self.problem
        return message


def _too_long(limit: int) -> Problem:
    shown = f"{limit / (1 << 20):g} MiB"
    return Problem(413, "body-too-long", f"at most {shown} here", {"Connection": "close"})


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics(Collector):
    """Numbers of one service for Prometheus, in a registry of its own."""

    def __init__(self, readers: Readers, work: Sequence[Shared[Any]], jobs: Jobs) -> None:
        self._readers, self._work, self._jobs = readers, work, jobs
        self._registry = CollectorRegistry()
        self.requests = prometheus_client.Counter(
            "deltadex_requests",
            "Requests by route and status.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "deltadex_request_seconds",
            "Time from a request's head to the end of its answer.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "deltadex_requests_in_flight", "Requests being answered.", registry=self._registry
        )
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, method: str, route: str, status: int, started: float) -> None:
        """One more request; `started`: when, by the performance counter."""
        known = method if method in METHODS else "other"
        self.requests.labels(known, route, str(status)).inc()
        self.seconds.labels(known, route).observe(time.perf_counter() - started)

    def exposition(self) -> bytes:
        """All numbers of now, as Prometheus reads them."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Numbers that are counted when they are read."""
        with self._readers.catalog() as catalog:
            stats = catalog.stats().to_json()
        jobs = self._jobs
        for name, help_text, label, counts in (
            ("deltadex_models", "Models of the catalog by status.", "status", stats["statuses"]),
            ("deltadex_jobs", "Background documents by outcome.", "outcome", jobs.counts),
        ):
            metric = GaugeMetricFamily(name, help_text, labels=(label,))
            for group, n in counts.items():
                metric.add_metric([group], n)
            yield metric
        vectors = sum(group["models"] for group in stats["recipes"])
        pending = sum(work.pending for work in self._work)
        for name, help_text, value in (
            ("deltadex_index_vectors", "Vectors that are searched.", vectors),
            ("deltadex_catalog_bytes", "Size of the catalog's file.", stats["bytes"]),
            ("deltadex_work_pending", "Requests that compute or wait.", pending),
            ("deltadex_jobs_pending", "Background documents not done.", jobs.pending),
        ):
            yield GaugeMetricFamily(name, help_text, value=value)


def _template(scope: Scope) -> str:
    """A route as it was declared, below the prefix that it was reached under."""
    path: str | None = getattr(scope.get("route"), "path", None)
    if path is None:
        return "none"
    versioned = f"{PREFIX}/" in scope["path"] and not path.startswith(PREFIX)
    return PREFIX + path if versioned else path
