"""The HTTP face of a service: routes, middleware, the OpenAPI document."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.openapi.utils import get_openapi
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response

from ... import __version__
from . import problems, routes
from .http_rules import HeadAsGet, refuse_unknown
from .limits import BodyLimits, KnownHosts, SecurityHeaders
from .metrics import Measured
from .page import INDEX
from .params import ServiceIn
from .service import Service
from .settings import PREFIX

PACKED_FROM = 4096
"""Bytes of an answer from which it is packed."""

_page = APIRouter(include_in_schema=False)


@_page.get("/")
async def index(service: ServiceIn, request: Request) -> Response:
    return service.page.answer(INDEX, request)


@_page.get("/static/{name}")
async def static(service: ServiceIn, request: Request, name: Annotated[str, Path()]) -> Response:
    return service.page.answer(name, request)


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
    problems.install(app)
    for router in (
        routes.models,
        routes.similar,
        routes.views,
        routes.jobs,
        routes.operations,
        routes.writing,
    ):
        app.include_router(router, prefix=PREFIX, dependencies=[Depends(refuse_unknown)])
    app.include_router(routes.unversioned)
    app.include_router(_page)
    # the last added meets a request first
    app.add_middleware(GZipMiddleware, minimum_size=PACKED_FROM, compresslevel=5)
    large = dict.fromkeys(
        (("POST", f"{PREFIX}/similar/adapter"), ("POST", f"{PREFIX}/models")),
        settings.body_limit,
    )
    app.add_middleware(BodyLimits, large=large, seconds=settings.max_seconds)
    app.add_middleware(KnownHosts, hosts=settings.known_hosts)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Measured, metrics=service.metrics)
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: problems under their own media type, the token as a scheme."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        for operation in (o for path in document["paths"].values() for o in path.values()):
            for answer in operation["responses"].values():
                content = answer.get("content", {})
                if problems.PROBLEM in content:
                    content[problems.PROBLEM] = content.pop("application/json")
        schemes = document["components"].setdefault("securitySchemes", {})
        schemes["token"] = {"type": "http", "scheme": "bearer"}
        app.openapi_schema = document
    return app.openapi_schema
