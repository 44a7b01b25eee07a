"""Families as a whole: evaluation, map, clusters, failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ....database import Database
from ..jobs import Computing
from ..params import COMPUTING, BaseInQuery, Exclude, Layout, RecipeInQuery, ServiceIn, problems
from ..readers import find_base, find_family, names_of
from ..replies import computing, reply
from ..schemas import ClustersAnswer, EvaluationAnswer, FailuresAnswer, MapAnswer
from ..service import Service
from ..tasks import Kind

router = APIRouter(tags=["families"])


@router.get(
    "/evaluation", responses={200: {"model": EvaluationAnswer}, **COMPUTING, **problems(404)}
)
async def evaluation(
    service: ServiceIn,
    request: Request,
    base: BaseInQuery = None,
    recipe: RecipeInQuery = None,
    exclude: Annotated[Exclude | None, Query()] = None,
) -> Response:
    """Whether nearest neighbours share their training data; as `deltadex eval --json`."""
    return await _computed(service, request, "evaluation", base, recipe, {"exclude": exclude})


@router.get("/map", responses={200: {"model": MapAnswer}, **COMPUTING, **problems(404)})
async def map(
    service: ServiceIn,
    request: Request,
    base: BaseInQuery = None,
    layout: Annotated[Layout, Query()] = "auto",
    recipe: RecipeInQuery = None,
) -> Response:
    """A family in the plane, as columns: near means alike."""
    return await _computed(service, request, "map", base, recipe, {"layout": layout})


@router.get("/clusters", responses={200: {"model": ClustersAnswer}, **COMPUTING, **problems(404)})
async def clusters(
    service: ServiceIn, request: Request, base: BaseInQuery = None, recipe: RecipeInQuery = None
) -> Response:
    """A family in clusters, and labels suggested for models without one."""
    return await _computed(service, request, "clusters", base, recipe, {})


@router.get("/failures", responses={200: {"model": FailuresAnswer}, **problems(404)})
async def failures(service: ServiceIn, base: BaseInQuery = None) -> Response:
    """Models that are not indexed, by reason; as `deltadex failures --json`."""
    return reply(await service.ask(lambda catalog: _failures(catalog, base)))


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


async def _computed(
    service: Service,
    request: Request,
    kind: Kind,
    base: str | None,
    recipe: str | None,
    params: Mapping[str, Any],
) -> Response:
    """A document of the background: of now, of an earlier state, or that it is being computed."""

    def resolve(catalog: Database) -> tuple[str, str]:
        family = find_family(catalog, base)
        return family, catalog.find_recipe(recipe, family).id

    family, recipe_id = await service.ask(resolve, service.polls)
    answer = await service.jobs.get(kind, family, {"recipe": recipe_id, **params})
    if isinstance(answer, Computing):
        return computing(answer.waited_s)
    headers = {"Deltadex-Stale": "true"} if answer.stale else {}
    return answer.packed.response(request, headers)
