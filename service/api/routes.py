"""The requests that the service answers: models, families, jobs, operators; changes by token."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, File, Form, Request, Security, UploadFile
from fastapi import Path as InPath
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError
from starlette.datastructures import FormData
from starlette.datastructures import UploadFile as SentFile
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from ... import __version__, questions
from ...errors import DeltadexError, RequestError
from ...questions.face import serving
from ...questions.face.database import Database
from ...questions.face.opened import Tabled
from ...questions.face.serving import PageOfModels
from ...questions.face.worker import WorkerCancelled, WorkerDied, WorkerTooSlow
from ...results import agree, names_of_bases
from . import schemas
from .answers import Packed, Problem, as_problem, invalid, llms_txt, reply, stopping
from .catalog import Names, check_where, find_base, find_family, names_of
from .middleware import Sent, refuse_unknown_names
from .sent_data import DATA_LIMIT, ENDINGS, begin_data, can_run_models, refuse_data
from .service import Service
from .settings import MAX_ADDED, MAX_NEW_ID, MAX_ROWS, MIB, PREFIX, SELECT_SECONDS
from .snapshots import Snapshot
from .work import Job, add_in, begin_adapter, is_done

_presented = HTTPBearer(scheme_name="token", auto_error=False)
Presented = HTTPAuthorizationCredentials | None


def _may_write(service: Service, presented: Presented) -> None:
    """Pass those who present the operator's token."""
    token = service.settings.token
    if token is None:
        detail = "this service is read-only; `deltadex serve --writable` opens it"
        raise Problem(403, "read-only", detail)
    given = presented.credentials.strip() if presented else ""
    if not hmac.compare_digest(given.encode(), token.encode()):
        detail = "this needs the header `Authorization: Bearer TOKEN` with the operator's token"
        scheme = {"WWW-Authenticate": 'Bearer realm="deltadex"'}
        raise Problem(401, "unauthorized", detail, scheme)


def _may_see_all(service: Service, presented: Presented) -> None:
    """Pass those who may see all of the catalog, paths of the server too."""
    if service.settings.share_catalog:
        return
    if not service.settings.writable:
        detail = "this service does not hand out its catalog; `deltadex serve --share-catalog` does"
        raise Problem(403, "catalog-closed", detail)
    _may_write(service, presented)


def _guarded(tag: str, check: Callable[[Service, Presented], None]) -> APIRouter:
    """Of routes whose token is looked at before anything else that a request says."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def guarded(request: Request) -> Response:
                check(await schemas.the_service(request), await _presented(request))
                return await handle(request)

            return guarded

    return APIRouter(tags=[tag], dependencies=[Security(_presented)], route_class=Guarded)


class Unescaped(APIRoute):
    """A route whose last step is none where the slash before it is `%2F`: that is an id's."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        last = self.path.rpartition("/")[2]
        if scope.get("raw_path", b"").lower().endswith(f"%2f{last}".encode()):
            return Match.NONE, {}
        return super().matches(scope)


_models, _similar, _families, _jobs, _operations = (
    APIRouter(tags=[tag], route_class=Unescaped)
    for tag in ("models", "similar", "families", "jobs", "operations")
)
_writing, _whole = _guarded("writing", _may_write), _guarded("catalog", _may_see_all)
VERSIONED = (_models, _similar, _families, _jobs, _operations, _writing, _whole)
UNVERSIONED = APIRouter(include_in_schema=False)


@UNVERSIONED.get("/")
async def index(service: schemas.ServiceIn, request: Request) -> Response:
    return service.page.answer("index.html", request)


@UNVERSIONED.get("/static/{name}")
async def static(service: schemas.ServiceIn, request: Request, name: str) -> Response:
    return service.page.answer(name, request)


@UNVERSIONED.get(f"{PREFIX}/docs")
async def docs(service: schemas.ServiceIn, request: Request) -> Response:
    return await docs_file(service, request, "docs.html")


@UNVERSIONED.get(f"{PREFIX}/docs/{{name}}")
async def docs_file(service: schemas.ServiceIn, request: Request, name: str) -> Response:
    return await asyncio.to_thread(lambda: service.api_docs.answer(name, request))


@UNVERSIONED.get("/llms.txt")
async def llms(request: Request) -> Response:
    return PlainTextResponse(llms_txt(request.app.openapi()))


_COUNTED = ("id", "rank", "dim", "models")


@_models.get("/families", responses=schemas.gives(schemas.FamiliesAnswer, 404))
async def families(service: schemas.ServiceIn) -> Response:
    """The families of the catalog, their recipes, and what this service can do."""
    document = {
        "families": await service.ask(_counted),
        "opening": await service.opening(),
        "writable": service.settings.writable,
        "umap": find_spec("umap") is not None,
        "takes": {
            "adapter": service.settings.body_limit * MIB,
            "data": DATA_LIMIT if can_run_models() else 0,
        },
        "version": __version__,
    }
    return reply(document)


def _counted(catalog: Database) -> list[dict[str, Any]]:
    names, stats = names_of(catalog), catalog.stats().to_json()
    recipes = serving.catalog_of(catalog).recipes()
    own = names_of_bases([family["base"] for family in stats["bases"]])
    return [
        {
            **family,
            "name": names.shown(own[family["base"]]),
            "base": names.shown(family["base"]),
            "recipes": [
                {"name": recipes[count["id"]].name} | {key: count[key] for key in _COUNTED}
                for count in stats["recipes"]
                if count["base"] == family["base"]
            ],
        }
        for family in stats["bases"]
    ]


def _route(
    router: APIRouter,
    path: str,
    question: type[Any],
    id: str,
    /,
    *,
    is_background: bool = False,
    **named: Any,
) -> None:
    """A request that asks a question, whose description it has, of what a catalog holds; `named`:
    the question's arguments, and how a request gives them."""
    given = schemas.asked_in(question, **named)

    async def route(service: schemas.ServiceIn, request: Request, asked: Any = given) -> Response:
        if is_background:
            return await _background(service, request, partial(_of_family, asked))
        return await _answered(service, partial(_of_catalog, asked))

    more = schemas.COMPUTING if is_background else None
    router.get(path, **schemas.answers(question, 404, more=more, id=id))(route)


def _of_catalog(asked: Any, catalog: Database) -> Any:
    """The question with its base and its models as the catalog names them."""
    if not hasattr(asked, "base"):
        return asked
    base = find_base(catalog, asked.base)
    if against := getattr(asked, "against", None):
        serving.exact_query(catalog, against, base)
    for name in ("model", "other", "first", "second"):
        if hasattr(asked, name):
            query = serving.exact_query(catalog, getattr(asked, name), base)
            asked, base = replace(asked, **{name: query.model}), query.base
    return replace(asked, base=base)


def _of_family(asked: Any, catalog: Database) -> Any:
    """The question of a family by its name in the catalog, under a recipe by its id."""
    base, stored = find_family(catalog, asked.base), serving.catalog_of(catalog)
    if isinstance(asked, questions.Lineage):
        return replace(asked, base=base)
    if isinstance(asked, questions.Evaluate):
        recipe = stored.find_recipe(next(iter(asked.recipes), None), base)
        return replace(asked, base=base, recipes=(recipe.id,))
    return replace(asked, base=base, recipe=stored.find_recipe(asked.recipe, base).id)


_ID = schemas.IdInQuery
_route(_models, "/stats", questions.Stats, "stats")
_route(_models, "/models", PageOfModels, "models")
_route(_models, "/facets", questions.Facets, "facets")
_route(_models, "/diff", questions.Diff, "diff", first=_ID, second=_ID)
_route(_similar, "/explain", questions.Explain, "explain", model=_ID, other=_ID)
_route(_similar, "/nearest-data", questions.FindData, "find_data", model=_ID)
_route(_similar, "/data", questions.KeptData, "kept_data")


@_models.get("/models/{model:path}/trace", **schemas.answers(questions.Trace, 404))
async def trace(
    service: schemas.ServiceIn, model: schemas.IdInPath, base: schemas.BaseInQuery = None
) -> Response:
    """Which base a model comes from, by its files and those of the bases on this machine; as
    `deltadex trace --offline --json`."""

    def trace(catalog: Database) -> dict[str, Any]:
        row = serving.exact_model(catalog, model, find_base(catalog, base))
        document = (
            questions.Trace(row["model"], base=row["base"], offline=True).answer(catalog).to_json()
        )
        return names_of(catalog).with_bases(document, row["source"])

    return reply(await service.ask(trace))


_route(_models, "/models/{model:path}", questions.Show, "model", model=schemas.IdInPath)
_route(_similar, "/data/{name}", questions.ShowData, "show_data", name=schemas.DataInPath)
_route(_similar, "/search", questions.Search, "search", text=schemas.TextInQuery)
_route(_similar, "/words", questions.Words, "words", model=_ID)
_route(_families, "/clusters", questions.Cluster, "clusters", is_background=True)
_LINEAGE = "/families/{base:path}/lineage"
_route(
    _families, _LINEAGE, questions.Lineage, "lineage", is_background=True, base=schemas.BaseInPath
)


@_similar.get("/trained-on", **schemas.answers(questions.FindTrainedOn, 404))
async def trained_on_kept(
    service: schemas.ServiceIn,
    asked: Annotated[
        questions.FindTrainedOn,
        schemas.asked_in(
            partial(questions.FindTrainedOn, only_kept=True),
            only=schemas.fields_of(questions.FindSimilar),
            data=schemas.DataInQuery,
        ),
    ],
) -> Response:
    """The models likeliest trained on a kept data set; as `deltadex find-trained-on --json`.

    No file is read, and no model is run.
    """
    return await _answered(service, partial(_of_catalog, asked))


_NEAR = partial(questions.FindSimilar, model="", attached=False)
"""Makes a question whose model is still to be found."""


@_similar.get("/similar", **schemas.answers(questions.FindSimilar, 404))
async def similar(
    service: schemas.ServiceIn,
    model: schemas.IdInQuery,
    asked: Annotated[questions.FindSimilar, schemas.asked_in(_NEAR)],
) -> Response:
    """The models nearest to a stored one; as `deltadex find-similar --json`."""
    if not asked.across:
        return reply(await service.searches.ask(asked, model))
    return await _answered(service, partial(_of_stored, asked, model))


def _of_stored(
    question: questions.FindSimilar, model: str, catalog: Database
) -> questions.FindSimilar:
    query = serving.exact_query(catalog, model, find_base(catalog, question.base))
    return replace(question, model=query, base=None)


@_similar.post("/similar", responses=schemas.gives(schemas.BatchAnswer))
async def similar_batch(service: schemas.ServiceIn, batch: schemas.Batch) -> Response:
    """The models nearest to each of several stored models or vectors.

    A question that has no answer gets a problem in its place.
    """
    asked = partial(_NEAR, **batch.model_dump(exclude={"queries"}))
    check_where(batch.where)
    return reply(await service.batches.run(_near_each, service, batch.queries, asked))


def _near_each(
    service: Service, queries: list[schemas.Query_], asked: Callable[..., questions.FindSimilar]
) -> dict[str, Any]:
    results = []
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        for query in queries:
            try:
                if query.model is not None:
                    question = _of_stored(asked(base=query.base), query.model, catalog)
                else:
                    vector = np.array(query.vector, dtype=np.float64)
                    base = find_family(catalog, query.base)
                    question = asked(model=vector, base=base, kind=query.kind)
                results.append(names.with_bases(question.answer(catalog).to_json()))
            except DeltadexError as err:
                results.append({"problem": as_problem(err, names).to_json()})
    return {"results": results}


@_similar.post("/similar/adapter", **schemas.answers(questions.FindSimilar, 404, more=schemas.JOB))
async def similar_adapter(
    service: schemas.ServiceIn,
    request: Request,
    config: Annotated[UploadFile, File(description="adapter_config.json")],
    weights: Annotated[UploadFile, File(description="adapter_model.safetensors")],
    asked: Annotated[questions.FindSimilar, schemas.asked_in(_NEAR, Form, schemas.OF_ONE_FAMILY)],
    prefer: schemas.PreferHeader = None,
) -> Response:
    """The models nearest to an adapter that is sent along, and not stored."""
    answer = partial(_near_adapter, service, asked)
    job = await begin_adapter(config, weights, service.uploads, answer)
    return await _answer_or_job(service, request, job, goes_on=False)


def _near_adapter(service: Service, asked: questions.FindSimilar, folder: Path) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        reading = serving.adapter_reading(
            catalog,
            find_family(catalog, asked.base),
            asked.recipe,
            may_open_base=service.settings.allow_hub,
        )
    adapter = service.uploads.read(folder, reading)
    with service.readers.catalog() as catalog:
        return _document(catalog, replace(asked, model=adapter, base=None))


_OF_DATA = ("base", "recipe", "k", "dataset", "author", "where")
_OF_COLUMNS = ("text", "label", "pair", "completion", "loss")


@_similar.post("/trained-on", **schemas.answers(questions.FindTrainedOn, 404, more=schemas.JOB))
async def trained_on(
    service: schemas.ServiceIn,
    request: Request,
    data: Annotated[UploadFile, File(description=f"A file of {', '.join(ENDINGS)}")],
    asked: Annotated[
        questions.FindTrainedOn,
        schemas.asked_in(partial(questions.FindTrainedOn, ""), Form, (*_OF_DATA, *_OF_COLUMNS)),
    ],
    prefer: schemas.PreferHeader = None,
) -> Response:
    """The models that were most likely trained on a data set that is sent along, and not stored; as
    `deltadex find-trained-on --json`."""
    refuse_data(data)
    base = await service.ask(lambda catalog: find_family(catalog, asked.base))
    job = await begin_data(service, data, replace(asked, base=base))
    return await _answer_or_job(service, request, job, goes_on=False)


@_families.get("/evaluation", **schemas.answers(questions.Evaluate, 404, more=schemas.COMPUTING))
async def evaluation(
    service: schemas.ServiceIn,
    request: Request,
    asked: Annotated[questions.Evaluate, schemas.asked_in(questions.Evaluate)],
    recipe: schemas.RecipeInQuery = None,
) -> Response:
    """Whether nearest neighbours share their training data; as `deltadex eval --json`."""
    question = replace(asked, recipes=(recipe,) if recipe else ())
    return await _background(service, request, partial(_of_family, question))


@_families.get(
    "/map",
    responses=schemas.gives(schemas.MapAnswer, 404) | schemas.COMPUTING,
    openapi_extra={"x-question": serving.MapColumns.__name__},
)
async def map(
    service: schemas.ServiceIn,
    request: Request,
    wanted: Annotated[serving.MapColumns, schemas.asked_in(serving.MapColumns)],
) -> Response:
    """A family in the plane, as columns: near means alike; on its main axes, while its layout is
    computed."""
    exact = await service.ask(partial(_of_family, replace(wanted, axes=True)), service.polls)
    has_look = wanted.layout != "pca" and wanted.axes
    found = await service.jobs.get(exact, LOOK_S if has_look else service.settings.quick_seconds)
    if isinstance(found, Packed) or not has_look:
        return _packed_or_job(service, request, found)
    try:
        look = await service.ask(lambda db: names_of(db).with_bases(exact.first_look(db).to_json()))
    except Problem as err:
        if err.status != 503:
            raise
        return _packed_or_job(service, request, found)
    ahead = {"layout": wanted.layout, "job": service.results.keep(found), "percent": 100}
    return reply(look | {"computing": ahead | found.line.stands(found.future)})


async def _answered(service: Service, exact: Callable[[Database], Tabled]) -> Response:
    """The answer to a question that the catalog's own names make exact."""
    return reply(await service.ask(lambda catalog: _document(catalog, exact(catalog))))


def _document(catalog: Database, asked: Tabled) -> dict[str, Any]:
    """The document of an answer, with bases as clients see them."""
    document = asked.answer(catalog).to_json()
    return names_of(catalog).with_bases(document)


async def _background(
    service: Service, request: Request, exact: Callable[[Database], Tabled]
) -> Response:
    question = await service.ask(exact, service.polls)
    found = await service.jobs.get(question, service.settings.quick_seconds)
    return _packed_or_job(service, request, found)


def _packed_or_job(service: Service, request: Request, found: Packed | Job) -> Response:
    if isinstance(found, Packed):
        return found.response(request)
    return _underway(service, request, found, service.settings.quick_seconds)


@_families.get(
    "/families/{base:path}/audit", **schemas.answers(questions.Audit, 404, more=schemas.COMPUTING)
)
async def audit(
    service: schemas.ServiceIn,
    request: Request,
    base: schemas.BaseInPath,
    asked: Annotated[questions.Audit, schemas.asked_in(questions.Audit)],
    model: schemas.ModelInQuery = None,
) -> Response:
    """What stands out among a family's models, by what the catalog holds; as `deltadex audit --read
    0 --json`."""

    def exact(catalog: Database) -> Tabled:
        family = find_family(catalog, base)
        if model is not None:
            serving.exact_model(catalog, model, family)
        return replace(asked, subject=model, base=family, read=0)

    return await _background(service, request, exact)


_route(_families, "/failures", questions.Failures, "failures")


_WAIT = re.compile(r"(?i)(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})")
_ASYNC = re.compile(r"(?i)(?:^|[,;\s])respond-async(?:$|[,;\s])")


@_jobs.get("/jobs/{job}", responses=schemas.gives(schemas.Answer, 403, 404, 409) | schemas.JOB)
async def job(
    service: schemas.ServiceIn, request: Request, job: Annotated[str, InPath(max_length=100)]
) -> Response:
    """What the request that began this job would have been answered, once it is done."""
    known = service.results.find(job)
    await is_done(known.future, service.settings.quick_seconds)
    return _result_or_job(service, request, known, service.settings.quick_seconds)


@_jobs.delete("/jobs/{job}", responses=schemas.gives(schemas.Answer, 404, 409))
async def cancel(
    service: schemas.ServiceIn, job: Annotated[str, InPath(max_length=100)]
) -> Response:
    """Stop a job: a background document, or models that are added from the Hub, at any time; an
    upload or another change until it has begun."""
    if not await asyncio.to_thread(service.results.cancel, job):
        raise Problem(409, "too-late", "the job is done, or has begun and cannot be stopped")
    return reply({"job": job, "cancelled": True})


async def _answer_or_job(
    service: Service, request: Request, job: Job, *, status: int = 200, goes_on: bool = True
) -> Response:
    """What the work gives; 202 and a job where that takes longer than the client wants to wait.

    Args:
        goes_on: Also if it has not begun when the client hangs up, who knows no job yet.
    """
    preferred, seconds = request.headers.get("prefer", ""), service.settings.max_seconds
    if wait := _WAIT.search(preferred):
        seconds = min(float(wait[1]), seconds)
    elif _ASYNC.search(preferred):
        seconds = 0.0
    has_hung_up = None if goes_on else request.is_disconnected
    await is_done(job.future, seconds, has_hung_up)
    if has_hung_up is not None and await has_hung_up() and job.future.cancel():
        raise Problem(400, "hung-up", "the client did not wait for the answer")
    return _result_or_job(service, request, job, seconds, status)


def _result_or_job(
    service: Service, request: Request, job: Job, waited_s: float, status: int = 200
) -> Response:
    if not job.future.done():
        return _underway(service, request, job, waited_s)
    if job.asked is not None:
        if (document := service.jobs.find(job.asked)) is None:
            raise Problem(404, "unknown-job", "the service has forgotten what this job computed")
        return document.response(request)
    try:
        result = job.future.result()
    except CancelledError as err:
        raise stopping() from err
    return result.response() if isinstance(result, Snapshot) else reply(result, status)


def _underway(service: Service, request: Request, job: Job, waited_s: float) -> Response:
    """A 202 that says when to ask again, and what is known of the job."""
    id, after = service.results.keep(job), max(1, min(5, round(waited_s)))
    document = {"status": "computing", "retry_after_s": after, "job": id}
    place = f"{request.scope.get('root_path', '')}{PREFIX}/jobs/{id}"
    headers = {"Retry-After": str(after), "Location": place}
    return reply(document | job.line.stands(job.future), 202, headers)


_READY = schemas.gives(schemas.ReadyAnswer)
_READY[503] = {
    "model": schemas.ReadyAnswer,
    "description": "Not every family has been searched once.",
}
_METRICS = schemas.gives(None)
_METRICS[200] = {"content": {"text/plain": {"schema": {"type": "string"}}}}


@UNVERSIONED.get("/health")
@_operations.get("/health", responses=schemas.gives(schemas.Answer))
async def health() -> Response:
    """The process answers."""
    return reply({"status": "ok"})


@UNVERSIONED.get("/ready")
@_operations.get("/ready", responses=_READY)
async def ready(service: schemas.ServiceIn) -> Response:
    """The catalog is open and every family has been searched once; until then how many percent of
    the indexes are open, and which families can be searched."""
    opening = await service.opening()
    if opening is None:
        return reply({"ready": True})
    document = {"ready": False, "detail": "opening indexes", **opening}
    return reply(document, 503, {"Retry-After": "2"})


@UNVERSIONED.get("/metrics")
@_operations.get("/metrics", responses=_METRICS, response_class=Response)
async def metrics(service: schemas.ServiceIn) -> Response:
    """Numbers for Prometheus."""
    text = await service.polls.run(service.metrics.exposition)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


log = logging.getLogger(__name__)

LOOK_S = 0.2
"""How long a map is waited for before its main axes are shown."""

ADDING_SECONDS = 7 * 24 * 3600.0

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def _is_new_id(id: str) -> str:
    if id.startswith(("/", "~")) or ".." in id or id != id.strip():
        raise ValueError("must not begin with / or ~, hold .. or have spaces around it")
    return id


def _is_hub_id(id: str) -> str:
    if not _HUB_ID.fullmatch(id) or ".." in id:
        raise ValueError("must be an id of the Hub, as owner/name")
    return id


Text = Annotated[str, StringConstraints(max_length=MAX_NEW_ID, pattern=schemas.NO_CONTROLS)]


class AddAdapter(Sent):
    """The fields that come with an adapter's two files."""

    model: Annotated[Text, AfterValidator(_is_new_id)]
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

    models: Annotated[
        list[Annotated[Text, AfterValidator(_is_hub_id)]], Field(min_length=1, max_length=MAX_ADDED)
    ]
    base: Text


_FILE = {"type": "string", "format": "binary"}
Body = TypeVar("Body", bound=Sent)


def _body() -> dict[str, Any]:
    """The two forms in which models are added."""
    form = AddAdapter.model_json_schema()
    form["properties"] |= {"config": _FILE, "weights": _FILE}
    form["required"] += ["config", "weights"]
    return {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": form},
            "application/json": {"schema": AddFromHub.model_json_schema()},
        },
    }


@_writing.post(
    "/models",
    status_code=201,
    responses=schemas.gives(schemas.AddedAnswer, 401, 403, 404, 409, 415, status=201) | schemas.JOB,
    openapi_extra={"requestBody": _body(), "x-question": questions.Add.__name__},
)
async def add(
    service: schemas.ServiceIn, request: Request, prefer: schemas.PreferHeader = None
) -> Response:
    """Add an adapter that is sent along; or up to 1000 models of the Hub, where the operator allows
    it: one job, whose answer has the outcome of each."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        job = _begin_from_hub(service, await request.body())
    elif media_type == "multipart/form-data":
        async with request.form(max_files=2, max_fields=8) as form:
            job = await _begin_adapter(service, form)
    else:
        raise Problem(415, "media-type", "send multipart/form-data or application/json")
    return await _answer_or_job(service, request, job, status=201)


async def _begin_adapter(service: Service, form: FormData) -> Job:
    refuse_unknown_names(form.multi_items(), [*AddAdapter.model_fields, "config", "weights"])
    fields = dict(form)
    config, weights = fields.pop("config", None), fields.pop("weights", None)
    if not isinstance(config, SentFile) or not isinstance(weights, SentFile):
        raise Problem(422, "invalid", "send the files config and weights")
    adapter = _checked(partial(AddAdapter.model_validate, fields))
    answer = partial(_add_adapter, service, adapter)
    return await begin_adapter(config, weights, service.writes, answer)


def _add_adapter(service: Service, fields: AddAdapter, folder: Path) -> dict[str, Any]:
    """Fingerprint an adapter and record it; as `deltadex add --json`."""
    with service.readers.catalog() as catalog:
        base = find_family(catalog, fields.base)
        _refuse_taken(catalog, fields.model, base)
        reading = serving.adapter_reading(catalog, base, may_open_base=service.settings.allow_hub)
    adapter = service.uploads.read(folder, reading)
    with service.readers.writing() as catalog:
        _refuse_taken(catalog, fields.model, base)
        serving.record_adapter(catalog, adapter, **fields.model_dump(exclude={"base"}))
        names = names_of(catalog)
    return {
        "model": fields.model,
        "base": names.shown(base),
        "recipe": reading["recipe"].name,
        "recipes": [reading["recipe"].id],
        "indexed": 1,
        "skipped": 0,
        "failed": [],
        "bytes_read": adapter.bytes_read,
        "bytes_total": adapter.model.bytes_total,
        "seconds": round(adapter.seconds, 3),
    }


def _refuse_taken(catalog: Database, id: str, base: str) -> None:
    if serving.models_of_id(catalog, id, base):
        raise Problem(409, "id-taken", f"{id}: there is a model of that id; DELETE it first")


def _begin_from_hub(service: Service, body: bytes) -> Job:
    wanted = _checked(partial(AddFromHub.model_validate_json, body))
    if not service.settings.allow_hub:
        raise Problem(
            403, "hub-closed", "this service fetches nothing; `deltadex serve --allow-hub` does"
        )
    key = wanted.model_dump_json()
    future = service.additions.submit(partial(_add_from_hub, service, wanted, key), key)
    return Job(future, service.additions)


def _add_from_hub(service: Service, wanted: AddFromHub, key: str) -> dict[str, Any]:
    """Fetch and index models of the Hub; as `deltadex add --json`."""
    for name in (*wanted.models, wanted.base):
        if Path(name).exists():
            raise RequestError(f"{name}: cannot be told from a folder of the server")
    base, path = _base_of_hub(service.names(), wanted.base), service.readers.path
    try:
        document: dict[str, Any] = service.additions.compute(
            key, add_in, path, wanted.models, base, seconds=ADDING_SECONDS
        )
    except (WorkerDied, WorkerCancelled, WorkerTooSlow) as err:
        raise _stopped(service, wanted, base) from err
    with service.readers.writing() as catalog:
        names = names_of(catalog)
    refusals = {row["model"]: row for row in document["failed"] + document["skipped_models"]}
    outcomes = []
    for model in dict.fromkeys(wanted.models):
        refused = refusals.get(model, {"code": None, "reason": None})
        status = "failed" if refused["code"] else "indexed"
        outcomes.append({"model": model, "status": status} | refused)
    return names.with_bases({**document, "outcomes": outcomes})


def _stopped(service: Service, wanted: AddFromHub, base: str) -> Problem:
    """What is done of an addition that was stopped, for its client and for the log."""
    with service.readers.catalog() as catalog:
        done = {model["model"] for model in catalog.models(base=base)} & set(wanted.models)
    detail = (
        f"adding models was stopped: {len(done)} of {len(set(wanted.models))} "
        f"{agree(len(done), 'is')} in the catalog; "
        "send the same request again for the others"
    )
    log.warning(detail)
    return Problem(503, "stopped", detail, {"Retry-After": "5"})


def _base_of_hub(names: Names, base: str) -> str:
    """A family that there is, or an id of the Hub."""
    if base in names.bases:
        return names.meant(base)
    try:
        return _is_hub_id(base)
    except ValueError as err:
        raise RequestError(f"base: {err}") from err


def _checked(parse: Callable[[], Body]) -> Body:
    try:
        return parse()
    except ValidationError as err:
        raise invalid(err.errors(include_input=False), within=("body",)) from err


def _change(method: str, path: str, question: type[Any], id: str, /, **named: Any) -> None:
    """A request that asks a question which changes the catalog; `named` as for `_route`."""
    given = schemas.asked_in(question, only=("base",), **named)

    async def route(
        service: schemas.ServiceIn,
        request: Request,
        asked: Any = given,
        prefer: schemas.PreferHeader = None,
    ) -> Response:
        def change() -> dict[str, Any]:
            with service.readers.writing() as catalog:
                return _document(catalog, _of_catalog(asked, catalog))

        job = Job(service.writes.submit(change), service.writes)
        return await _answer_or_job(service, request, job)

    declared = schemas.answers(question, 401, 403, 404, more=schemas.JOB, id=id)
    _writing.api_route(path, methods=[method], **declared)(route)


_change(
    "PATCH",
    "/models/{model:path}",
    questions.Label,
    "label",
    model=schemas.IdInPath,
    labels=schemas.Labelling,
)
_change("DELETE", "/models/{model:path}", questions.Remove, "delete", model=schemas.IdInPath)
_change("DELETE", "/data/{name}", questions.RemoveData, "delete_data", name=schemas.DataInPath)


_SNAPSHOT = schemas.gives(None, 401, 403, 404, 416) | schemas.JOB
_SNAPSHOT[200] = {
    "description": "The file; `Repr-Digest` has its SHA-256 (RFC 9530).",
    "headers": {"Repr-Digest": {"schema": {"type": "string"}}},
    "content": {"application/octet-stream": {"schema": _FILE}},
}


@_whole.get(
    "/snapshot",
    responses=_SNAPSHOT,
    response_class=Response,
    openapi_extra={"x-question": questions.Backup.__name__},
)
async def snapshot(service: schemas.ServiceIn, request: Request) -> Response:
    """The catalog's file, a copy of one moment, as `deltadex backup` writes it; 202 until it is
    made. It holds paths of the server."""
    job, seconds = Job(service.snapshots.begin(), service.snapshots), service.settings.quick_seconds
    await is_done(job.future, seconds)
    return _result_or_job(service, request, job, seconds)


@_whole.post("/sql", **schemas.answers(questions.Select, 401, 403, 404))
async def sql(service: schemas.ServiceIn, asked: schemas.Statement) -> Response:
    """What one SELECT gives, of at most 10,000 rows and within 10 s; as `deltadex sql --json`. It
    can neither write nor read files; it shows paths of the server."""
    select = partial(questions.Select(asked.statement).of, seconds=SELECT_SECONDS, rows=MAX_ROWS)
    table = await service.batches.run(select, service.readers.path)
    return reply(table.to_json())
