"""Models that clients with the token add."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from ...errors import RequestError, UnknownModel
from ...store import Catalog
from .names import Names
from .problems import Problem
from .readers import find_model, names_of
from .service import Service
from .settings import MAX_NEW_ID, MAX_QUERIES
from .uploads import SentFile, private_folder

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]+$"


def _is_new_id(id: str) -> str:
    if id.startswith(("/", "~")) or ".." in id or id != id.strip():
        raise ValueError("must not begin with / or ~, hold .. or have spaces around it")
    return id


def _is_hub_id(id: str) -> str:
    if not _HUB_ID.fullmatch(id) or ".." in id:
        raise ValueError("must be an id of the Hub, as owner/name")
    return id


Text = Annotated[str, StringConstraints(max_length=MAX_NEW_ID, pattern=_NO_CONTROLS)]
NewId = Annotated[Text, AfterValidator(_is_new_id)]
HubId = Annotated[Text, AfterValidator(_is_hub_id)]


class AddAdapter(BaseModel):
    """The fields that come with an adapter's two files."""

    model_config = ConfigDict(extra="forbid")

    model: NewId
    base: Text | None = None
    dataset: Text | None = None
    author: Text | None = None
    run: Text | None = None


class AddFromHub(BaseModel):
    """Models that the service is to fetch."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"models": ["someone/bert-imdb"], "base": "bert-base-uncased"}]
        },
    )

    models: Annotated[list[HubId], Field(min_length=1, max_length=MAX_QUERIES)]
    base: Text


@dataclass(frozen=True, slots=True)
class Sent:
    """An adapter's files as they came."""

    config: SentFile
    weights: SentFile


def add_adapter(service: Service, asked: AddAdapter, sent: Sent) -> dict[str, Any]:
    """Fingerprint an adapter and record it; as `deltadex add --json`.

    Raises:
        Problem: 409, there is a model of that id.
        ModelError: it cannot be fingerprinted; nothing is recorded.
    """
    with service.readers.catalog() as catalog:
        base = names_of(catalog).only(asked.base)
        _refuse_taken(catalog, asked.model, base)
        recipe = catalog.find_recipe(None, base)
        layout = service.uploads.layout_of(catalog, base)
    with private_folder(sent.config, sent.weights) as folder:
        made = service.uploads.fingerprint(folder, base, recipe, layout)
    record = replace(
        made.model,
        id=asked.model,
        base=base,
        signature=made.model.content_sha256 or "",
        dataset=asked.dataset,
        dataset_raw=asked.dataset,
        label_source="labels" if asked.dataset else None,
        author=asked.author,
        run=asked.run or asked.model,
    )
    with service.readers.writing() as catalog:
        _refuse_taken(catalog, asked.model, base)
        catalog.record(replace(made, model=record))
        names = names_of(catalog)
    return {
        "model": asked.model,
        "base": names.shown(base),
        "recipe": recipe.name,
        "recipes": [recipe.id],
        "indexed": 1,
        "skipped": 0,
        "failed": [],
        "bytes_read": made.bytes_read,
        "bytes_total": record.bytes_total,
        "seconds": round(made.seconds, 3),
    }


def add_from_hub(service: Service, asked: AddFromHub) -> dict[str, Any]:
    """Fetch and index models of the Hub; as `deltadex add --json`.

    Raises:
        RequestError: a name is also that of a folder beside the service.
        DeltadexError: as `index_family`.
    """
    # torch is loaded where models are read, and nowhere else
    from ...indexer import IndexOptions, index_family

    for name in (*asked.models, asked.base):
        if Path(name).exists():
            raise RequestError(f"{name}: cannot be told from a folder of the server")
    with service.readers.writing() as catalog:
        base = _base_of_hub(names_of(catalog), asked.base)
        options = IndexOptions(base=base, models=tuple(asked.models))
        document = index_family(catalog, options).to_json()
        names = names_of(catalog)
    failed = document["failed"]
    assert isinstance(failed, list)
    for one in failed:
        one["reason"] = names.redact(one["reason"])
    return names.with_bases(document)


def remove(service: Service, id: str, base: str | None) -> dict[str, Any]:
    """Forget a model; as `deltadex rm --json`.

    Raises:
        UnknownModel: there is none.
    """
    with service.readers.writing() as catalog:
        names = names_of(catalog)
        row = find_model(catalog, id, base and names.meant(base))
        catalog.remove(row.id, row.base)
    return {"removed": row.id, "base": names.shown(row.base)}


def _refuse_taken(catalog: Catalog, id: str, base: str) -> None:
    try:
        find_model(catalog, id, base)
    except UnknownModel:
        return
    raise Problem(409, "id-taken", f"{id}: there is a model of that id; DELETE it first")


def _base_of_hub(names: Names, base: str) -> str:
    """A family that there is, or an id of the Hub.

    Raises:
        RequestError: neither.
    """
    if base in names.bases:
        return names.meant(base)
    try:
        return _is_hub_id(base)
    except ValueError as err:
        raise RequestError(f"base: {err}") from err
