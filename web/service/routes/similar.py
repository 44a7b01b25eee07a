"""Nearest neighbours of stored models, vectors and uploads; explanations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import Response

from ....database import Database, Explain, FindData, FindSimilar, serving
from ....errors import DeltadexError
from ..answers import as_problem, reply
from ..catalog import Names, check_where, find_base, find_family, names_of
from ..params import (
    JOB,
    Batch,
    IdInQuery,
    PreferHeader,
    Query_,
    ServiceIn,
    asks,
    problems,
)
from ..schemas import BatchAnswer, ExplanationAnswer, NearestDataAnswer, SimilarAnswer
from ..service import Service
from ..uploads import AdapterFiles
from .jobs import answer_or_job

router = APIRouter(tags=["similar"])


Asked = Callable[..., FindSimilar]
"""Makes a question of a model or vector; everything else is given."""


@router.get("/similar", responses={200: {"model": SimilarAnswer}, **problems(404)})
@asks(FindSimilar)
async def similar(service: ServiceIn, model: IdInQuery, asked: Asked) -> Response:
    """The models nearest to a stored one; as `deltadex find-similar --json`."""
    return reply(
        await service.ask(lambda catalog: _of_model(catalog, names_of(catalog), model, asked))
    )


@router.get("/nearest-data", responses={200: {"model": NearestDataAnswer}, **problems(404)})
@asks(FindData)
async def nearest_data(
    service: ServiceIn, model: IdInQuery, asked: Callable[..., FindData]
) -> Response:
    """The kept data sets nearest to a stored model; as `deltadex find-data --json`."""
    question = asked(model)

    def answer(catalog: Database) -> dict[str, Any]:
        query = serving.exact_query(catalog, model, find_base(catalog, question.base))
        exact = replace(question, model=query.model, base=query.base)
        return names_of(catalog).with_bases(exact.answer(catalog).to_json())

    return reply(await service.ask(answer))


@router.post("/similar", responses={200: {"model": BatchAnswer}, **problems()})
async def similar_batch(service: ServiceIn, batch: Batch) -> Response:
    """The models nearest to each of several stored models or vectors.

    A question that has no answer gets a problem in its place.
    """
    asked = partial(FindSimilar, **batch.model_dump(exclude={"queries"}))
    check_where(batch.where)
    return reply(await service.batches.run(_batch, service, batch.queries, asked))


def _batch(service: Service, queries: list[Query_], asked: Asked) -> dict[str, Any]:
    results = []
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        for query in queries:
            try:
                results.append(_answer(catalog, names, query, asked))
            except DeltadexError as err:
                results.append({"problem": as_problem(err, names).to_json()})
    return {"results": results}


def _answer(catalog: Database, names: Names, query: Query_, asked: Asked) -> dict[str, Any]:
    if query.model is not None:
        return _of_model(catalog, names, query.model, partial(asked, base=query.base))
    family = find_family(catalog, query.base)
    vector = np.array(query.vector, dtype=np.float64)
    question = asked(vector, base=family, kind=query.kind, attached=False)
    return names.with_bases(question.answer(catalog).to_json())


def _of_model(catalog: Database, names: Names, model: str, asked: Asked) -> dict[str, Any]:
    question = asked(model, attached=False)
    stored = serving.exact_query(catalog, model, find_base(catalog, question.base))
    return names.with_bases(replace(question, model=stored, base=None).answer(catalog).to_json())


@router.post("/similar/adapter", responses={200: {"model": SimilarAnswer}, **JOB, **problems(404)})
@asks(FindSimilar, Form)
async def similar_adapter(
    service: ServiceIn,
    request: Request,
    config: Annotated[UploadFile, File(description="adapter_config.json")],
    weights: Annotated[UploadFile, File(description="adapter_model.safetensors")],
    asked: Asked,
    prefer: PreferHeader = None,
) -> Response:
    """The models nearest to an adapter that is sent along, and not stored."""
    files = AdapterFiles(config, weights)
    found = await service.uploads.begin(files, partial(_similar_adapter, service, asked))
    return await answer_or_job(service, request, found, goes_on=False)


def _similar_adapter(service: Service, asked: Asked, folder: Path) -> dict[str, Any]:
    question = asked("", attached=False)
    with service.readers.catalog() as catalog:
        reading = serving.adapter_reading(
            catalog,
            find_family(catalog, question.base),
            question.recipe,
            may_open_base=service.settings.allow_hub,
        )
    adapter = service.uploads.read(folder, reading)
    with service.readers.catalog() as catalog:
        document = replace(question, model=adapter, base=None).answer(catalog).to_json()
        return names_of(catalog).with_bases(document)


@router.get("/explain", responses={200: {"model": ExplanationAnswer}, **problems(404)})
@asks(Explain)
async def explain(
    service: ServiceIn, model: IdInQuery, other: IdInQuery, asked: Callable[..., Explain]
) -> Response:
    """Which slots, roles and layers carry the similarity of two stored models."""
    question = asked(model, other)

    def explain(catalog: Database) -> dict[str, Any]:
        query = serving.exact_query(catalog, model, find_base(catalog, question.base))
        stored = serving.exact_query(catalog, other, query.base)
        exact = replace(question, model=query, other=stored.model, base=None)
        return exact.answer(catalog).to_json()

    return reply(await service.ask(explain))
