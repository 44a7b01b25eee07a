"""Families and models: listed, searched by name, shown."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from .... import __version__
from ....store import ModelFilter, Page
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
from ..readers import find_model, names_of, page_of_models
from ..replies import reply
from ..schemas import FamiliesAnswer, ModelInFull, ModelsAnswer, StatsAnswer
from ..service import Service
from ..settings import MAX_PAGE

router = APIRouter(tags=["models"])

FURTHEST = 10_000_000
"""Models that a page may begin after."""


@router.get("/families", responses={200: {"model": FamiliesAnswer}, **problems(404)})
async def families(service: ServiceIn) -> Response:
    """The families of the catalog, their recipes, and what this service can do."""
    return reply(await service.work.run(_families, service))


def _families(service: Service) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        names, stats, recipes = names_of(catalog), catalog.stats(), catalog.recipes()
    found = []
    for group in stats["bases"]:
        counted = [one for one in stats["recipes"] if one["base"] == group["base"]]
        found.append(
            {**group, "base": names.shown(group["base"])}
            | {
                "recipes": [
                    {
                        "id": one["id"],
                        "name": recipes[one["id"]].name,
                        "rank": one["rank"],
                        "dim": one["dim"],
                        "models": one["models"],
                    }
                    for one in counted
                ]
            }
        )
    return {
        "families": found,
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
        document = names_of(catalog).with_bases(catalog.stats())
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
    asked = ModelFilter(
        base=base,
        status=status,
        dataset=dataset,
        author=author,
        kind=kind,
        contains=q,
        where=where,
    )
    page = Page(
        sort="id" if sort == "model" else sort,
        descending=order == "desc",
        limit=limit,
        offset=offset,
    )
    return reply(await service.work.run(_models, service, asked, page))


def _models(service: Service, asked: ModelFilter, page: Page) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        rows, total = page_of_models(catalog, asked, page, names)
    return {
        "models": [names.model(row) for row in rows],
        "total": total,
        "limit": page.limit,
        "offset": page.offset,
    }


@router.get("/models/{model:path}", responses={200: {"model": ModelInFull}, **problems(404)})
async def model(service: ServiceIn, model: IdInPath, base: BaseInQuery = None) -> Response:
    """Everything known of one model, and what it changed, slot by slot; as `show --json`."""
    return reply(await service.work.run(_model, service, model, base))


def _model(service: Service, id: str, base: str | None) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        row = find_model(catalog, id, base and names.meant(base))
        document = catalog.describe(row.id, row.base)
    return document | names.model(row)
