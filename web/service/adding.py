"""Models that clients with the token add."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from ...database import Database
from ...errors import RequestError
from .http_rules import Sent
from .names import Names
from .problems import Problem
from .readers import find_base, find_family, names_of
from .service import Service
from .settings import MAX_NEW_ID, MAX_QUERIES

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


class AddAdapter(Sent):
    """The fields that come with an adapter's two files."""

    model: NewId
    base: Text | None = None
    dataset: Text | None = None
    author: Text | None = None
    run: Text | None = None


class AddFromHub(Sent):
    """Models that the service is to fetch."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"models": ["someone/bert-imdb"], "base": "bert-base-uncased"}]
        }
    )

    models: Annotated[list[HubId], Field(min_length=1, max_length=MAX_QUERIES)]
    base: Text


def add_adapter(service: Service, fields: AddAdapter, folder: Path) -> dict[str, Any]:
    """Fingerprint an adapter and record it; as `deltadex add --json`.

    Raises:
        Problem: 409, there is a model of that id.
        ModelError: it cannot be fingerprinted; nothing is recorded.
    """
    with service.readers.catalog() as catalog:
        base = find_family(catalog, fields.base)
        _refuse_taken(catalog, fields.model, base)
        reading = catalog.adapter_reading(base, may_open_base=service.settings.allow_hub)
    adapter = service.uploads.read(folder, reading)
    with service.readers.writing() as catalog:
        _refuse_taken(catalog, fields.model, base)
        catalog.record_adapter(
            adapter,
            fields.model,
            dataset=fields.dataset,
            author=fields.author,
            run=fields.run,
        )
        names = names_of(catalog)
    return {
        "model": fields.model,
        "base": names.shown(base),
        "recipe": reading.recipe.name,
        "recipes": [reading.recipe.id],
        "indexed": 1,
        "skipped": 0,
        "failed": [],
        "bytes_read": adapter.bytes_read,
        "bytes_total": adapter.model.bytes_total,
        "seconds": round(adapter.seconds, 3),
    }


def add_from_hub(service: Service, fields: AddFromHub) -> dict[str, Any]:
    """Fetch and index models of the Hub; as `deltadex add --json`.

    Raises:
        RequestError: a name is also that of a folder beside the service.
        DeltadexError: as `Database.add`.
    """
    for name in (*fields.models, fields.base):
        if Path(name).exists():
            raise RequestError(f"{name}: cannot be told from a folder of the server")
    with service.readers.writing() as catalog:
        base = _base_of_hub(names_of(catalog), fields.base)
        document = catalog.add(*fields.models, base=base).to_json()
        names = names_of(catalog)
    for refused in document["failed"]:
        refused["reason"] = names.redact(refused["reason"])
    return names.with_bases(document)


def remove(service: Service, id: str, base: str | None) -> dict[str, Any]:
    """Forget a model; as `deltadex rm --json`.

    Raises:
        UnknownModel: there is none.
    """
    with service.readers.writing() as catalog:
        model = catalog.exact_model(id, find_base(catalog, base))
        document = catalog.remove(model["model"], model["base"]).to_json()
        return names_of(catalog).with_bases(document)


def _refuse_taken(catalog: Database, id: str, base: str) -> None:
    if catalog.page_of_models(id=id, base=base).total:
        raise Problem(409, "id-taken", f"{id}: there is a model of that id; DELETE it first")


def _base_of_hub(names: Names, base: str) -> str:
    """A family that there is, or an id of the Hub."""
    if base in names.bases:
        return names.meant(base)
    try:
        return _is_hub_id(base)
    except ValueError as err:
        raise RequestError(f"base: {err}") from err
