"""Earlier names of a family's models: what names them, and the model that each means today."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from ...errors import ModelError
from .hub_model import RELATIONS, HubModel, describe, is_repo_id
from .listing import ListingMemory
from .session import HubSession

log = logging.getLogger(__name__)

_NO_SUCH = frozenset({"not-found", "private-or-missing", "gated", "disabled"})
"""Answers that mean: no model has that name."""

CURRENT = "current"


def possible_names(model: HubModel) -> Iterator[tuple[str, bool]]:
    """Ids that a model calls its base, and whether its card and its tags disagree on one base.

    The Hub makes the tags of what the card says. Where each has one base and they differ, the
    card's is an earlier name of the tag's.
    """
    tagged = {
        tag.removeprefix("base_model:").lower()
        for tag in model.tags
        if tag.startswith("base_model:") and tag.split(":", 2)[1] not in RELATIONS
    }
    claimed = [name for name in model.base_models if name.lower() not in tagged]
    disagree = len(tagged) == len(claimed) == 1
    for name in model.base_models:
        if is_repo_id(name):
            yield name, disagree and name in claimed


def owned_alike(name: str, ids: Iterable[str]) -> bool:
    """Whether any of these ids (in lower case) differs from a name in its owner alone."""
    last = name.rsplit("/", 1)[-1].lower()
    return any(id.rsplit("/", 1)[-1] == last for id in ids)


def current_name(name: str, session: HubSession, memory: ListingMemory) -> str | None:
    """The id of the model that a name leads to; None where it leads to none."""
    key = f"{name}#{CURRENT}"
    remembered = memory.load(key)
    if remembered is not None:
        current = remembered[0].get(CURRENT) if remembered else None
        return current if isinstance(current, str) else None
    try:
        current = describe(name, session=session).id
    except ModelError as err:
        if err.code not in _NO_SUCH:
            log.warning("whether %s is an earlier name of a model is not known: %s", name, err)
            return None
        current = None
    memory.save(key, [{CURRENT: current}])
    return current
