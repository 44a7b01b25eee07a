"""Families and models: listed, searched by name, shown."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from .... import __version__
from ....database import Database
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
from ..settings import MAX_PAGE

router = APIRouter(tags=["models"])

_COUNTED = ("id", "rank", "dim", "models")

FURTHEST = 10_000_000
"""Models that a page may begin after."""


@router.get("/families", responses={200: {"model": FamiliesAnswer}, **problems(404)})
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
    names, recipes, stats = names_of(catalog), catalog.recipes, catalog.stats().to_json()
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


@router.get("/stats", responses={200: {"model": StatsAnswer}, **problems(404)})
async def stats(service: ServiceIn) -> Response:
    """How many models, datasets and recipes the catalog holds; as `deltadex stats --json`."""

    def stats(catalog: Database) -> dict[str, Any]:
        document = names_of(catalog).with_bases(catalog.stats().to_json())
        return document | {"path": Path(document["path"]).name}

    return reply(await service.ask(stats))


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
    check_where(where)
    key, is_descending = "id" if sort == "model" else sort, order == "desc"
    page = {"sort": key, "descending": is_descending, "limit": limit, "offset": offset}

    def models(catalog: Database) -> dict[str, Any]:
        names = names_of(catalog)
        table = catalog.page_of_models(
            page=page,
            base=find_base(catalog, base),
            status=status,
            dataset=dataset,
            author=author,
            kind=kind,
            contains=q,
            where=where,
        )
        shown = [names.model(model) for model in table]
        return {"models": shown, "total": table.total, "limit": limit, "offset": offset}

    return reply(await service.ask(models))


@router.get("/models/{model:path}", responses={200: {"model": ModelInFull}, **problems(404)})
async def model(service: ServiceIn, model: IdInPath, base: BaseInQuery = None) -> Response:
    """Everything known of one model, and what it changed, slot by slot; as `show --json`."""

    def show(catalog: Database) -> dict[str, Any]:
        row = catalog.exact_model(model, find_base(catalog, base))
        document = catalog.show(row["model"], row["base"]).to_json()
        return document | names_of(catalog).model(row)

    return reply(await service.ask(show))
