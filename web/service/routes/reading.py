"""Models, families as a whole, and what operators ask: what no request changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from .... import __version__
from ....database import Cluster, Database, Evaluate, Failures, Tabled, serving
from ....database.serving import PageOfModels
from ..answers import computing, reply
from ..catalog import find_base, find_family, names_of
from ..metrics import CONTENT_TYPE
from ..params import (
    COMPUTING,
    BaseInQuery,
    IdInPath,
    RecipeInQuery,
    ServiceIn,
    asks,
    problems,
)
from ..schemas import (
    ClustersAnswer,
    EvaluationAnswer,
    FailuresAnswer,
    FamiliesAnswer,
    HealthAnswer,
    MapAnswer,
    ModelInFull,
    ModelsAnswer,
    ReadyAnswer,
    StatsAnswer,
)
from ..service import Service
from ..work import Computing

of_models = APIRouter(tags=["models"])

_COUNTED = ("id", "rank", "dim", "models")


@of_models.get("/families", responses={200: {"model": FamiliesAnswer}, **problems(404)})
async def families(service: ServiceIn) -> Response:
    """The families of the catalog, their recipes, and what this service can do."""
    document = {
        "families": await service.ask(_families),
        "writable": service.settings.writable,
        "umap": find_spec("umap") is not None,
        "version": __version__,
    }
    return reply(document)


def _families(catalog: Database) -> list[dict[str, Any]]:
    names, recipes, stats = names_of(catalog), serving.recipes(catalog), catalog.stats().to_json()
    return [
        {
            **family,
            "base": names.shown(family["base"]),
            "recipes": [
                {"name": recipes[count["id"]].name} | {key: count[key] for key in _COUNTED}
                for count in stats["recipes"]
                if count["base"] == family["base"]
            ],
        }
        for family in stats["bases"]
    ]


@of_models.get("/stats", responses={200: {"model": StatsAnswer}, **problems(404)})
async def stats(service: ServiceIn) -> Response:
    """How many models, datasets and recipes the catalog holds; as `deltadex stats --json`."""

    def stats(catalog: Database) -> dict[str, Any]:
        document = names_of(catalog).with_bases(catalog.stats().to_json())
        return document | {"path": Path(document["path"]).name}

    return reply(await service.ask(stats))


@of_models.get("/models", responses={200: {"model": ModelsAnswer}, **problems(404)})
@asks(PageOfModels)
async def models(service: ServiceIn, asked: Callable[[], PageOfModels]) -> Response:
    """The models that pass every filter, a page of them; as `deltadex ls --json`."""
    page = asked()

    def models(catalog: Database) -> dict[str, Any]:
        names = names_of(catalog)
        table = replace(page, base=find_base(catalog, page.base)).answer(catalog)
        shown = [names.model(model) for model in table]
        return {"models": shown, "total": table.total, "limit": page.limit, "offset": page.offset}

    return reply(await service.ask(models))


@of_models.get("/models/{model:path}", responses={200: {"model": ModelInFull}, **problems(404)})
async def model(service: ServiceIn, model: IdInPath, base: BaseInQuery = None) -> Response:
    """Everything known of one model, and what it changed, slot by slot; as `show --json`."""

    def show(catalog: Database) -> dict[str, Any]:
        row = serving.exact_model(catalog, model, find_base(catalog, base))
        document = catalog.show(row["model"], row["base"]).to_json()
        return document | names_of(catalog).model(row)

    return reply(await service.ask(show))


of_families = APIRouter(tags=["families"])


@of_families.get(
    "/evaluation", responses={200: {"model": EvaluationAnswer}, **COMPUTING, **problems(404)}
)
@asks(Evaluate)
async def evaluation(
    service: ServiceIn,
    request: Request,
    asked: Callable[[], Evaluate],
    recipe: RecipeInQuery = None,
) -> Response:
    """Whether nearest neighbours share their training data; as `deltadex eval --json`."""
    question = asked()
    base, recipe_id = await _resolved(service, question.base, recipe)
    return await _computed(service, request, replace(question, base=base, recipes=(recipe_id,)))


@of_families.get("/map", responses={200: {"model": MapAnswer}, **COMPUTING, **problems(404)})
@asks(serving.MapColumns)
async def map(
    service: ServiceIn, request: Request, asked: Callable[[], serving.MapColumns]
) -> Response:
    """A family in the plane, as columns: near means alike."""
    question = asked()
    base, recipe_id = await _resolved(service, question.base, question.recipe)
    return await _computed(service, request, replace(question, base=base, recipe=recipe_id))


@of_families.get(
    "/clusters", responses={200: {"model": ClustersAnswer}, **COMPUTING, **problems(404)}
)
@asks(Cluster)
async def clusters(service: ServiceIn, request: Request, asked: Callable[[], Cluster]) -> Response:
    """A family in clusters, and labels suggested for models without one."""
    question = asked()
    base, recipe_id = await _resolved(service, question.base, question.recipe)
    return await _computed(service, request, replace(question, base=base, recipe=recipe_id))


@of_families.get("/failures", responses={200: {"model": FailuresAnswer}, **problems(404)})
@asks(Failures)
async def failures(service: ServiceIn, asked: Callable[[], Failures]) -> Response:
    """Models that are not indexed, by reason; as `deltadex failures --json`."""
    question = asked()
    return reply(await service.ask(lambda catalog: _failures(catalog, question.base)))


def _failures(catalog: Database, base: str | None) -> dict[str, Any]:
    names, base = names_of(catalog), find_base(catalog, base)
    document = catalog.failures(base).to_json()
    rows = catalog.models(base=base, where="status <> 'indexed'")
    sources = {(row["base"], row["model"]): row["source"] for row in rows}
    for group in document["failures"]:
        for model in group["models"]:
            source = sources.get((model["base"], model["model"]), "")
            model["base"] = names.shown(model["base"])
            model["reason"] = model["reason"] and names.redact(model["reason"], source)
    return document


async def _resolved(service: Service, base: str | None, recipe: str | None) -> tuple[str, str]:
    """The family and the recipe's id that a request means."""

    def resolve(catalog: Database) -> tuple[str, str]:
        family = find_family(catalog, base)
        return family, serving.find_recipe(catalog, recipe, family).id

    return await service.ask(resolve, service.polls)


async def _computed(service: Service, request: Request, asked: Tabled) -> Response:
    """An answer of the background: of now, of an earlier state, or that it is being computed."""
    answer = await service.jobs.get(asked)
    if isinstance(answer, Computing):
        return computing(answer.waited_s)
    headers = {"Deltadex-Stale": "true"} if answer.stale else {}
    return answer.packed.response(request, headers)


of_operations = APIRouter(tags=["operations"])
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
@of_operations.get("/health", responses={200: {"model": HealthAnswer}, **problems()})
async def health() -> Response:
    """The process answers."""
    return reply({"status": "ok"})


@unversioned.get("/ready")
@of_operations.get("/ready", responses=_READY)
async def ready(service: ServiceIn) -> Response:
    """The catalog is open and every family has been searched once."""
    if service.freshness.is_ready:
        return reply({"ready": True})
    return reply({"ready": False, "detail": "opening indexes"}, 503, {"Retry-After": "2"})


@unversioned.get("/metrics")
@of_operations.get("/metrics", responses=_METRICS, response_class=Response)
async def metrics(service: ServiceIn) -> Response:
    """Numbers for Prometheus."""
    text = await service.polls.run(service.metrics.exposition)
    return Response(text, media_type=CONTENT_TYPE)
