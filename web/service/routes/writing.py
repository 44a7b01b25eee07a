"""Adding and removing models: closed unless the operator opens it, and then by token."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from ..adding import AddAdapter, AddFromHub, add_adapter, add_from_hub, remove
from ..http_rules import refuse_unknown_names
from ..params import JOB, BaseInQuery, IdInPath, PreferHeader, ServiceIn, problems
from ..problems import Problem, invalid
from ..schemas import AddedAnswer, RemovedAnswer
from ..service import Service
from ..settings import ServiceSettings
from ..uploads import AdapterFiles
from .jobs import answer_or_job

router = APIRouter(tags=["writing"])

_TOKEN: dict[str, Any] = {"security": [{"token": []}]}
_FILE = {"type": "string", "format": "binary"}
Body = TypeVar("Body", bound=BaseModel)


def _body() -> dict[str, Any]:
    """The two forms in which models are added."""
    form = AddAdapter.model_json_schema()
    form["properties"] |= {"config": _FILE, "weights": _FILE}
    form["required"] = [*form["required"], "config", "weights"]
    return {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": form},
            "application/json": {"schema": AddFromHub.model_json_schema()},
        },
    }


@router.post(
    "/models",
    status_code=201,
    responses={
        201: {"model": AddedAnswer},
        **JOB,
        **problems(401, 403, 404, 409, 415),
    },
    openapi_extra={"requestBody": _body(), **_TOKEN},
)
async def add(service: ServiceIn, request: Request, prefer: PreferHeader = None) -> Response:
    """Add an adapter that is sent along; or models of the Hub, where the operator allows it."""
    _require_writer(request, service.settings)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        added = _add_from_hub(service, await request.body())
    elif media_type == "multipart/form-data":
        async with request.form(max_files=2, max_fields=8) as form:
            added = await _add_adapter(service, form)
    else:
        raise Problem(415, "media-type", "send multipart/form-data or application/json")
    return await answer_or_job(service, request, added, status=201)


async def _add_adapter(service: Service, form: FormData) -> Future[dict[str, Any]]:
    refuse_unknown_names(form.multi_items(), [*AddAdapter.model_fields, "config", "weights"])
    config, weights = form.get("config"), form.get("weights")
    if not isinstance(config, UploadFile) or not isinstance(weights, UploadFile):
        raise Problem(422, "invalid", "send the files config and weights")
    files = AdapterFiles(config, weights)
    fields = {name: value for name, value in form.items() if name not in ("config", "weights")}
    adapter = _checked(partial(AddAdapter.model_validate, fields))
    return await service.uploads.begin(
        files, partial(add_adapter, service, adapter), service.writes
    )


def _add_from_hub(service: Service, body: bytes) -> Future[dict[str, Any]]:
    models = _checked(partial(AddFromHub.model_validate_json, body))
    if not service.settings.allow_hub:
        raise Problem(
            403, "hub-closed", "this service fetches nothing; `deltadex serve --allow-hub` does"
        )
    key = hashlib.sha256(models.model_dump_json().encode()).hexdigest()
    return service.writes.submit(partial(add_from_hub, service, models), key)


def _checked(parse: Callable[[], Body]) -> Body:
    try:
        return parse()
    except ValidationError as err:
        raise invalid(err.errors(include_input=False), within=("body",)) from err


@router.delete(
    "/models/{model:path}",
    responses={200: {"model": RemovedAnswer}, **JOB, **problems(401, 403, 404)},
    openapi_extra=_TOKEN,
)
async def delete(
    service: ServiceIn,
    request: Request,
    model: IdInPath,
    base: BaseInQuery = None,
    prefer: PreferHeader = None,
) -> Response:
    """Forget a model; as `deltadex rm --json`."""
    _require_writer(request, service.settings)
    removed = service.writes.submit(partial(remove, service, model, base))
    return await answer_or_job(service, request, removed)


def _require_writer(request: Request, settings: ServiceSettings) -> None:
    """Pass those who present the operator's token."""
    if settings.token is None:
        raise Problem(
            403, "read-only", "this service is read-only; `deltadex serve --writable` opens it"
        )
    scheme, _, presented = request.headers.get("authorization", "").partition(" ")
    right = hmac.compare_digest(presented.strip().encode(), settings.token.encode())
    if scheme.lower() != "bearer" or not right:
        raise Problem(
            401,
            "unauthorized",
            "writing needs the header `Authorization: Bearer TOKEN` with the operator's token",
            {"WWW-Authenticate": 'Bearer realm="deltadex"'},
        )
