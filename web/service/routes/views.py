"""Families as a whole: evaluation, map, clusters, failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ..jobs import Computing
from ..params import (
    COMPUTING,
    BaseInQuery,
    Exclude,
    Layout,
    RecipeInQuery,
    ServiceIn,
    problems,
)
from ..readers import names_of
from ..replies import reply
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
    return reply(await service.work.run(_failures, service, base))


def _failures(service: Service, base: str | None) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        meant = base and names.meant(base)
        groups = catalog.failures(meant)
        rows = catalog.models(base=meant, where="status <> 'indexed'")
    sources = {(row.base, row.id): row.record.source for row in rows}
    for group in groups:
        for one in group["models"]:
            source = sources.get((one["base"], one["model"]), "")
            one["base"] = names.shown(one["base"])
            one["reason"] = one["reason"] and names.redact(one["reason"], source)
    return {"failures": groups}


async def _computed(
    service: Service,
    request: Request,
    kind: Kind,
    base: str | None,
    recipe: str | None,
    params: Mapping[str, Any],
) -> Response:
    """A document of the background: as it is, as it was, or the word that it is on its way."""
    meant, recipe_id = await service.work.run(_resolved, service, base, recipe)
    found = await service.jobs.get(kind, meant, {"recipe": recipe_id, **params})
    if isinstance(found, Computing):
        document = {"status": "computing", "retry_after_s": found.retry_after_s}
        return reply(document, 202, {"Retry-After": str(found.retry_after_s)})
    headers = {"Deltadex-Stale": "true"} if found.stale else {}
    return found.packed.response(request, headers)


def _resolved(service: Service, base: str | None, recipe: str | None) -> tuple[str, str]:
    """The base as the catalog has it, and a recipe's id."""
    with service.readers.catalog() as catalog:
        meant = names_of(catalog).only(base)
        return meant, catalog.find_recipe(recipe, meant).id
