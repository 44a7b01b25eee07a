"""Nearest neighbours of stored models, vectors and uploads; explanations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import Response

from ....database import Database
from ....errors import DeltadexError
from ..names import Names
from ..params import (
    JOB,
    AuthorInQuery,
    BaseInForm,
    BaseInQuery,
    Batch,
    DatasetInQuery,
    IdInQuery,
    K,
    KInQuery,
    NameInForm,
    PreferHeader,
    Query_,
    RecipeInQuery,
    ServiceIn,
    Where,
    WhereInQuery,
    problems,
)
from ..problems import as_problem
from ..readers import check_where, find_base, find_family, names_of
from ..replies import reply
from ..schemas import BatchAnswer, ExplanationAnswer, NearestDataAnswer, SimilarAnswer
from ..service import Service
from ..uploads import AdapterFiles
from .jobs import answer_or_job

router = APIRouter(tags=["similar"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which neighbours are wanted, and how many."""

    k: int
    dataset: str | None
    author: str | None
    where: str | None
    recipe: str | None = None

    def __post_init__(self) -> None:
        check_where(self.where)


@router.get("/similar", responses={200: {"model": SimilarAnswer}, **problems(404)})
async def similar(
    service: ServiceIn,
    model: IdInQuery,
    base: BaseInQuery = None,
    k: KInQuery = 10,
    dataset: DatasetInQuery = None,
    author: AuthorInQuery = None,
    where: WhereInQuery = None,
    recipe: RecipeInQuery = None,
) -> Response:
    """The models nearest to a stored one; as `deltadex find-similar --json`."""
    filters = Filters(k=k, dataset=dataset, author=author, where=where, recipe=recipe)
    query = Query_(model=model, base=base)
    return reply(
        await service.ask(lambda catalog: _answer(catalog, names_of(catalog), query, filters))
    )


@router.get("/nearest-data", responses={200: {"model": NearestDataAnswer}, **problems(404)})
async def nearest_data(
    service: ServiceIn,
    model: IdInQuery,
    base: BaseInQuery = None,
    recipe: RecipeInQuery = None,
) -> Response:
    """The kept data sets nearest to a stored model; as `deltadex find-data --json`."""

    def answer(catalog: Database) -> dict[str, Any]:
        query = catalog.exact_query(model, find_base(catalog, base))
        table = catalog.find_data(query.model, base=query.base, recipe=recipe)
        return names_of(catalog).with_bases(table.to_json())

    return reply(await service.ask(answer))


@router.post("/similar", responses={200: {"model": BatchAnswer}, **problems()})
async def similar_batch(service: ServiceIn, batch: Batch) -> Response:
    """The models nearest to each of several stored models or vectors.

    A question that has no answer gets a problem in its place.
    """
    filters = Filters(**batch.model_dump(exclude={"queries"}))
    return reply(await service.batches.run(_batch, service, batch.queries, filters))


def _batch(service: Service, queries: list[Query_], filters: Filters) -> dict[str, Any]:
    results = []
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        for query in queries:
            try:
                results.append(_answer(catalog, names, query, filters))
            except DeltadexError as err:
                results.append({"problem": as_problem(err, names).to_json()})
    return {"results": results}


def _answer(catalog: Database, names: Names, query: Query_, filters: Filters) -> dict[str, Any]:
    if query.model is not None:
        stored = catalog.exact_query(query.model, find_base(catalog, query.base))
        table = catalog.find_similar(stored, attached=False, **asdict(filters))
    else:
        family = find_family(catalog, query.base)
        vector = np.array(query.vector, dtype=np.float64)
        table = catalog.find_similar(
            vector, base=family, kind=query.kind, attached=False, **asdict(filters)
        )
    return names.with_bases(table.to_json())


@router.post("/similar/adapter", responses={200: {"model": SimilarAnswer}, **JOB, **problems(404)})
async def similar_adapter(
    service: ServiceIn,
    request: Request,
    config: Annotated[UploadFile, File(description="adapter_config.json")],
    weights: Annotated[UploadFile, File(description="adapter_model.safetensors")],
    base: BaseInForm = None,
    k: Annotated[K, Form()] = 10,
    dataset: NameInForm = None,
    author: NameInForm = None,
    where: Annotated[Where | None, Form()] = None,
    recipe: NameInForm = None,
    prefer: PreferHeader = None,
) -> Response:
    """The models nearest to an adapter that is sent along, and not stored."""
    filters = Filters(k=k, dataset=dataset, author=author, where=where, recipe=recipe)
    files = AdapterFiles(config, weights)
    search = partial(_similar_adapter, service, base, filters)
    found = await service.uploads.begin(files, search)
    return await answer_or_job(service, request, found, goes_on=False)


def _similar_adapter(
    service: Service, base: str | None, filters: Filters, folder: Path
) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        reading = catalog.adapter_reading(
            find_family(catalog, base), filters.recipe, may_open_base=service.settings.allow_hub
        )
    adapter = service.uploads.read(folder, reading)
    with service.readers.catalog() as catalog:
        document = catalog.find_similar(adapter, attached=False, **asdict(filters)).to_json()
        return names_of(catalog).with_bases(document)


@router.get("/explain", responses={200: {"model": ExplanationAnswer}, **problems(404)})
async def explain(
    service: ServiceIn,
    model: IdInQuery,
    other: IdInQuery,
    base: BaseInQuery = None,
    recipe: RecipeInQuery = None,
) -> Response:
    """Which slots, roles and layers carry the similarity of two stored models."""

    def explain(catalog: Database) -> dict[str, Any]:
        query = catalog.exact_query(model, find_base(catalog, base))
        stored = catalog.exact_query(other, query.base)
        return catalog.explain(query, stored.model, recipe=recipe).to_json()

    return reply(await service.ask(explain))
