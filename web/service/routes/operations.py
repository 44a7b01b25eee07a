"""Health, readiness and metrics, for operators."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ..metrics import CONTENT_TYPE
from ..params import ServiceIn, problems
from ..replies import reply
from ..schemas import HealthAnswer, ReadyAnswer

router = APIRouter(tags=["operations"])
unversioned = APIRouter(include_in_schema=False)

_READY: dict[int | str, dict[str, Any]] = {
    **problems(),
    200: {"model": ReadyAnswer},
    503: {"model": ReadyAnswer, "description": "Not every family has been searched once."},
}
_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
    **problems(),
}


@unversioned.get("/health")
@router.get("/health", responses={200: {"model": HealthAnswer}, **problems()})
async def health() -> Response:
    """The process answers."""
    return reply({"status": "ok"})


@unversioned.get("/ready")
@router.get("/ready", responses=_READY)
async def ready(service: ServiceIn) -> Response:
    """The catalog is open and every family has been searched once."""
    if service.freshness.is_ready:
        return reply({"ready": True})
    return reply({"ready": False, "detail": "opening indexes"}, 503, {"Retry-After": "2"})


@unversioned.get("/metrics")
@router.get("/metrics", responses=_METRICS, response_class=Response)
async def metrics(service: ServiceIn) -> Response:
    """Numbers for Prometheus."""
    text = await service.polls.run(service.metrics.exposition)
    return Response(text, media_type=CONTENT_TYPE)
