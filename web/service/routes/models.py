"""Families and models: listed, searched by name, shown."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from .... import __version__
from ..params import (
    AuthorInQuery,
    BaseInQuery,
    DatasetInQuery,
    IdInPath,
    ServiceIn,
    Status,
    WhereInQuery,
    problems,
)
from ..readers import check_where, find_base, names_of
from ..replies import reply
from ..schemas import FamiliesAnswer, ModelInFull, ModelsAnswer, StatsAnswer
from ..service import Service
from ..settings import MAX_PAGE

router = APIRouter(tags=["models"])

_COUNTED = ("id", "rank", "dim", "models")

FURTHEST = 10_000_000
"""Models that a page may begin after."""


@router.get("/families", responses={200: {"model": FamiliesAnswer}, **problems(404)})
async def families(service: ServiceIn) -> Response:
    """The families of the catalog, their recipes, and what this service can do."""
    return reply(await service.work.run(_families, service))


def _families(service: Service) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        names, recipes = names_of(catalog), catalog.recipes
        stats = catalog.stats().to_json()
    families = [
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
    return {
        "families": families,
        "writable": service.settings.writable,
        "umap": find_spec("umap") is not None,
        "version": __version__,
    }


@router.get("/stats", responses={200: {"model": StatsAnswer}, **problems(404)})
async def stats(service: ServiceIn) -> Response:
    """How many models, datasets and recipes the catalog holds; as `deltadex stats --json`."""
    return reply(await service.work.run(_stats, service))


def _stats(service: Service) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        document = names_of(catalog).with_bases(catalog.stats().to_json())
    return document | {"path": Path(document["path"]).name}


@router.get("/models", responses={200: {"model": ModelsAnswer}, **problems(404)})
async def models(
    service: ServiceIn,
    base: BaseInQuery = None,
    status: Annotated[Status | None, Query()] = None,
    dataset: DatasetInQuery = None,
    author: AuthorInQuery = None,
    kind: Annotated[Literal["full", "adapter"] | None, Query()] = None,
    q: Annotated[
        str | None, Query(max_length=200, description="Part of an id, dataset or author.")
    ] = None,
    where: WhereInQuery = None,
    sort: Annotated[
        Literal["model", "downloads", "indexed_at", "dataset", "author"], Query()
    ] = "model",
    order: Annotated[Literal["asc", "desc"], Query()] = "asc",
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    offset: Annotated[int, Query(ge=0, le=FURTHEST)] = 0,
) -> Response:
    """The models that pass every filter, a page of them; as `deltadex ls --json`."""
    filters = {
        "status": status,
        "dataset": dataset,
        "author": author,
        "kind": kind,
        "contains": q,
        "where": where,
    }
    page = {
        "sort": "id" if sort == "model" else sort,
        "descending": order == "desc",
        "limit": limit,
        "offset": offset,
    }
    return reply(await service.work.run(_models, service, base, filters, page))


def _models(
    service: Service, base: str | None, filters: Mapping[str, str | None], page: Mapping[str, Any]
) -> dict[str, Any]:
    check_where(filters["where"])
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        table = catalog.page_of_models(page=page, base=find_base(catalog, base), **filters)
    return {
        "models": [names.model(model) for model in table],
        "total": table.total,
        "limit": page["limit"],
        "offset": page["offset"],
    }


@router.get("/models/{model:path}", responses={200: {"model": ModelInFull}, **problems(404)})
async def model(service: ServiceIn, model: IdInPath, base: BaseInQuery = None) -> Response:
    """Everything known of one model, and what it changed, slot by slot; as `show --json`."""
    return reply(await service.work.run(_model, service, model, base))


def _model(service: Service, id: str, base: str | None) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        model = catalog.exact_model(id, find_base(catalog, base))
        document = catalog.show(model["model"], model["base"]).to_json()
        return document | names_of(catalog).model(model)
