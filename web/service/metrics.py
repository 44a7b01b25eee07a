"""Numbers about the service for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers import METHODS
from .catalog import Readers
from .settings import PREFIX
from .work import Jobs, Shared, Work

CONTENT_TYPE = CONTENT_TYPE_LATEST
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counts of one service, in a registry of its own."""

    def __init__(self, readers: Readers, work: Sequence[Work | Shared[Any]], jobs: Jobs) -> None:
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
        self._registry.register(_Catalog(readers, work, jobs))
        ProcessCollector(registry=self._registry)

    def exposition(self) -> bytes:
        """All numbers of now, as Prometheus reads them."""
        return generate_latest(self._registry)


class _Catalog(Collector):
    """Numbers that are counted when they are read."""

    def __init__(self, readers: Readers, work: Sequence[Work | Shared[Any]], jobs: Jobs) -> None:
        self._readers = readers
        self._work = work
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
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


class Measured:
    """Counts every request by the template of its route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, started = 500, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, noted)
            finally:
                route = _template(scope)
                method = scope["method"] if scope["method"] in METHODS else "other"
                self._metrics.requests.labels(method, route, str(status)).inc()
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - started)


def _template(scope: Scope) -> str:
    """A route as it was declared, below the prefix that it was reached under."""
    path: str | None = getattr(scope.get("route"), "path", None)
    if path is None:
        return "none"
    versioned = f"{PREFIX}/" in scope["path"] and not path.startswith(PREFIX)
    return PREFIX + path if versioned else path
