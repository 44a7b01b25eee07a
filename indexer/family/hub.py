"""Members of a family on the Hub: the walk below its base, or one repository."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import ModelError
from ...records import ModelRecord
from ..hub import HubModel, ListingMemory, describe, early_refusal, list_family
from .card import parents_note
from .dataset_names import label_of
from .member import Member


def hub_members(base: str, memory: ListingMemory, *, limit: int | None) -> Iterator[Member]:
    """Every descendant of `base`; those below an intermediate fine-tune count as its own.

    Raises:
        SourceError: the Hub cannot be listed.
    """
    for model in list_family(base, remember=memory, limit=limit):
        yield member_of(model, base, claims=(*model.base_models, base))


def hub_member(id: str, base: str) -> Member:
    """The model of one repository; a refused one if the Hub does not show it."""
    try:
        model = describe(id)
    except ModelError as err:
        record = ModelRecord(id=id, base=base, source="hub")
        return Member(record=record, refusal=_with_token(err))
    return member_of(model, base, claims=model.base_models)


def member_of(model: HubModel, base: str, *, claims: tuple[str, ...]) -> Member:
    """A Hub model as a member, its labels read from what the Hub said of it."""
    card: dict[str, Any] = {**model.card_data}
    if model.model_index is not None:
        card["model-index"] = model.model_index
    label = label_of(name=model.id, tags=model.tags, card=card)
    adapter = model.kind == "adapter"
    record = ModelRecord(
        id=model.id,
        base=base,
        base_raw=model.base_models[0] if model.base_models else None,
        revision=model.sha or None,
        signature=model.sha,
        kind="adapter" if adapter else "full",
        method="lora" if adapter else "full",
        source="hub",
        author=model.id.split("/")[0] if "/" in model.id else None,
        run=model.id,
        dataset=label.dataset,
        dataset_raw=label.raw,
        label_source=label.source,
        task=model.pipeline_tag,
        license=model.license,
        downloads=model.downloads,
        created_at=model.created_at,
        notes=parents_note(model.base_models),
    )
    return Member(record=record, hub=model, claims=claims, refusal=early_refusal(model))


def _with_token(refusal: ModelError) -> ModelError:
    """The refusal, with what lets a private repository be read: the Hub hides those as missing."""
    if refusal.code != "private-or-missing" or "HF_TOKEN" in refusal.reason:
        return refusal
    advice = "check the id; if it is private, set HF_TOKEN to a token that may read it"
    return ModelError(refusal.code, f"{refusal.reason}; {advice}")
