"""Who is like whom: nearest neighbours of stored models, vectors and uploads; explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, File, Form, UploadFile
from starlette.datastructures import UploadFile as SentUpload
from starlette.responses import Response

from ....errors import DeltadexError, RequestError
from ....records import Fingerprint, Recipe
from ....search import FreshQuery, StoredQuery, explain_pair, find_similar
from ....store import Catalog
from ..names import Names
from ..params import (
    AuthorInQuery,
    BaseInForm,
    BaseInQuery,
    Batch,
    DatasetInQuery,
    IdInQuery,
    K,
    KInQuery,
    NameInForm,
    Query_,
    RecipeInQuery,
    ServiceIn,
    Where,
    WhereInQuery,
    problems,
)
from ..problems import Problem, as_problem
from ..readers import check_where, find_model, find_query, names_of
from ..replies import reply
from ..schemas import BatchAnswer, ExplanationAnswer, SimilarAnswer
from ..service import Service
from ..uploads import SentFile, private_folder

router = APIRouter(tags=["similar"])

UPLOAD_NAME = "uploaded adapter"
VECTOR_NAME = "vector"
CONFIG_LIMIT = 1 << 20


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
    return reply(await service.work.run(_similar, service, Query_(model=model, base=base), filters))


def _similar(service: Service, query: Query_, filters: Filters) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        return _answer(catalog, names_of(catalog), query, filters)


@router.post("/similar", responses={200: {"model": BatchAnswer}, **problems()})
async def similar_batch(service: ServiceIn, batch: Batch) -> Response:
    """The models nearest to each of several stored models or vectors.

    A question that has no answer gets a problem in its place.
    """
    filters = Filters(
        k=batch.k,
        dataset=batch.dataset,
        author=batch.author,
        where=batch.where,
        recipe=batch.recipe,
    )
    return reply(await service.long_work.run(_batch, service, batch.queries, filters))


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


def _answer(catalog: Catalog, names: Names, query: Query_, filters: Filters) -> dict[str, Any]:
    if query.model is not None:
        base = query.base and names.meant(query.base)
        asked: StoredQuery | FreshQuery = find_query(catalog, query.model, base)
    else:
        asked = _vector_query(catalog, names.only(query.base), query, filters.recipe)
    return _nearest(catalog, names, asked, filters)


def _nearest(
    catalog: Catalog, names: Names, asked: StoredQuery | FreshQuery, filters: Filters
) -> dict[str, Any]:
    found = find_similar(
        catalog,
        asked,
        k=filters.k,
        dataset=filters.dataset,
        author=filters.author,
        where=filters.where,
        recipe=filters.recipe,
    )
    return names.with_bases(found.to_json())


def _vector_query(catalog: Catalog, base: str, query: Query_, name: str | None) -> FreshQuery:
    recipe = catalog.find_recipe(name, base)
    vector = np.array(query.vector, dtype=np.float64)
    _check_vector(vector, recipe)
    norm = float(np.linalg.norm(vector))
    unit = (vector / norm).astype(np.float32)
    return FreshQuery(
        model=VECTOR_NAME,
        base=base,
        fingerprint=Fingerprint(recipe=recipe, vector=unit, norm=norm),
        kind=query.kind,
    )


def _check_vector(vector: np.ndarray, recipe: Recipe) -> None:
    if len(vector) != recipe.dim:
        raise RequestError(
            f"vector: {recipe.name} fingerprints have {recipe.dim} numbers, got {len(vector)}"
        )
    norm = np.linalg.norm(vector)
    if not (np.isfinite(norm) and norm > np.finfo(np.float32).tiny):
        raise RequestError("vector: its length is zero or out of range")


@router.post("/similar/adapter", responses={200: {"model": SimilarAnswer}, **problems(404)})
async def similar_adapter(
    service: ServiceIn,
    config: Annotated[UploadFile, File(description="adapter_config.json")],
    weights: Annotated[UploadFile, File(description="adapter_model.safetensors")],
    base: BaseInForm = None,
    k: Annotated[K, Form()] = 10,
    dataset: NameInForm = None,
    author: NameInForm = None,
    where: Annotated[Where | None, Form()] = None,
    recipe: NameInForm = None,
) -> Response:
    """The models nearest to an adapter that is sent along, and not kept."""
    filters = Filters(k=k, dataset=dataset, author=author, where=where, recipe=recipe)
    check_size(config)
    return reply(
        await service.long_work.run(
            _similar_adapter, service, config.file, weights.file, base, filters
        )
    )


def check_size(config: SentUpload) -> None:
    """Refuse a config that is no config.

    Raises:
        Problem: 413.
    """
    if (config.size or 0) > CONFIG_LIMIT:
        raise Problem(413, "body-too-long", "config: at most 1 MiB")


def _similar_adapter(
    service: Service, config: SentFile, weights: SentFile, base: str | None, filters: Filters
) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        names = names_of(catalog)
        meant = names.only(base)
        recipe = catalog.find_recipe(filters.recipe, meant)
        layout = service.uploads.layout_of(catalog, meant)
    with private_folder(config, weights) as folder:
        made = service.uploads.fingerprint(folder, meant, recipe, layout)
    query = FreshQuery(
        model=UPLOAD_NAME,
        base=meant,
        fingerprint=made.fingerprints[0],
        kind=made.model.kind,
        dataset=made.model.dataset,
        slots=made.slots,
    )
    with service.readers.catalog() as catalog:
        return _nearest(catalog, names, query, filters)


@router.get("/explain", responses={200: {"model": ExplanationAnswer}, **problems(404)})
async def explain(
    service: ServiceIn,
    model: IdInQuery,
    other: IdInQuery,
    base: BaseInQuery = None,
    recipe: RecipeInQuery = None,
) -> Response:
    """Which slots, roles and layers carry the similarity of two stored models."""
    return reply(await service.work.run(_explain, service, (model, other), base, recipe))


def _explain(
    service: Service, pair: tuple[str, str], base: str | None, recipe: str | None
) -> dict[str, Any]:
    with service.readers.catalog() as catalog:
        row = find_model(catalog, pair[0], base and names_of(catalog).meant(base))
        other = find_model(catalog, pair[1], row.base)
        query = StoredQuery(row.id, row.base)
        return explain_pair(catalog, query, other.id, recipe=recipe).to_json()
