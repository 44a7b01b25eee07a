"""Models are added and removed: closed unless the operator opens it, and then by token."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from ....database import Database, serving
from ....errors import RequestError
from ..answers import Problem, invalid
from ..catalog import Names, find_base, find_family, names_of
from ..middleware import Sent, refuse_unknown_names
from ..params import JOB, BaseInQuery, IdInPath, PreferHeader, ServiceIn, problems
from ..schemas import AddedAnswer, RemovedAnswer
from ..service import Service
from ..settings import MAX_NEW_ID, MAX_QUERIES, ServiceSettings
from ..uploads import AdapterFiles
from .jobs import answer_or_job

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]+$"


def _is_new_id(id: str) -> str:
    if id.startswith(("/", "~")) or ".." in id or id != id.strip():
        raise ValueError("must not begin with / or ~, hold .. or have spaces around it")
    return id


def _is_hub_id(id: str) -> str:
    if not _HUB_ID.fullmatch(id) or ".." in id:
        raise ValueError("must be an id of the Hub, as owner/name")
    return id


Text = Annotated[str, StringConstraints(max_length=MAX_NEW_ID, pattern=_NO_CONTROLS)]
NewId = Annotated[Text, AfterValidator(_is_new_id)]
HubId = Annotated[Text, AfterValidator(_is_hub_id)]


class AddAdapter(Sent):
    """The fields that come with an adapter's two files."""

    model: NewId
    base: Text | None = None
    dataset: Text | None = None
    author: Text | None = None
    run: Text | None = None


class AddFromHub(Sent):
    """Models that the service is to fetch."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"models": ["someone/bert-imdb"], "base": "bert-base-uncased"}]
        }
    )

    models: Annotated[list[HubId], Field(min_length=1, max_length=MAX_QUERIES)]
    base: Text


def add_adapter(service: Service, fields: AddAdapter, folder: Path) -> dict[str, Any]:
    """Fingerprint an adapter and record it; as `deltadex add --json`.

    Raises:
        Problem: 409, there is a model of that id.
        ModelError: it cannot be fingerprinted; nothing is recorded.
    """
    with service.readers.catalog() as catalog:
        base = find_family(catalog, fields.base)
        _refuse_taken(catalog, fields.model, base)
        reading = serving.adapter_reading(catalog, base, may_open_base=service.settings.allow_hub)
    adapter = service.uploads.read(folder, reading)
    with service.readers.writing() as catalog:
        _refuse_taken(catalog, fields.model, base)
        serving.record_adapter(
            catalog,
            adapter,
            fields.model,
            dataset=fields.dataset,
            author=fields.author,
            run=fields.run,
        )
        names = names_of(catalog)
    return {
        "model": fields.model,
        "base": names.shown(base),
        "recipe": reading.recipe.name,
        "recipes": [reading.recipe.id],
        "indexed": 1,
        "skipped": 0,
        "failed": [],
        "bytes_read": adapter.bytes_read,
        "bytes_total": adapter.model.bytes_total,
        "seconds": round(adapter.seconds, 3),
    }


def add_from_hub(service: Service, fields: AddFromHub) -> dict[str, Any]:
    """Fetch and index models of the Hub; as `deltadex add --json`.

    Raises:
        RequestError: a name is also that of a folder beside the service.
        DeltadexError: as `Database.add`.
    """
    for name in (*fields.models, fields.base):
        if Path(name).exists():
            raise RequestError(f"{name}: cannot be told from a folder of the server")
    with service.readers.writing() as catalog:
        base = _base_of_hub(names_of(catalog), fields.base)
        document = catalog.add(*fields.models, base=base).to_json()
        names = names_of(catalog)
    for refused in document["failed"]:
        refused["reason"] = names.redact(refused["reason"])
    return names.with_bases(document)


def remove(service: Service, id: str, base: str | None) -> dict[str, Any]:
    """Forget a model; as `deltadex rm --json`.

    Raises:
        UnknownModel: there is none.
    """
    with service.readers.writing() as catalog:
        model = serving.exact_model(catalog, id, find_base(catalog, base))
        document = catalog.remove(model["model"], model["base"]).to_json()
        return names_of(catalog).with_bases(document)


def _refuse_taken(catalog: Database, id: str, base: str) -> None:
    if serving.has_model(catalog, id, base):
        raise Problem(409, "id-taken", f"{id}: there is a model of that id; DELETE it first")


def _base_of_hub(names: Names, base: str) -> str:
    """A family that there is, or an id of the Hub."""
    if base in names.bases:
        return names.meant(base)
    try:
        return _is_hub_id(base)
    except ValueError as err:
        raise RequestError(f"base: {err}") from err


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
