"""A base's whole family, page by page, fine-tunes of fine-tunes included."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

from huggingface_hub.errors import BadRequestError
from huggingface_hub.utils import paginate  # type: ignore[attr-defined]

from ...errors import ModelError, SourceError
from .describe import EXPAND_SETS, FULL_FIELDS, UNREADABLE, describe
from .hub_model import HubModel, plain
from .session import HubSession, default_session

log = logging.getLogger(__name__)

T = TypeVar("T")

_PASSING = frozenset({"not-found", "private-or-missing", "gated", "disabled", "hub-bad-answer"})
"""What is wrong with one parent's listing only; anything else ends the walk."""


@runtime_checkable
class ListingMemory(Protocol):
    """Where the finished listings of an unfinished walk are kept."""

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        """A parent's children as they were saved; None where they were not."""
        ...

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        """Keep a parent's children, plain JSON values, for a later `load`."""
        ...


def list_family(
    base: str,
    *,
    remember: ListingMemory,
    limit: int | None = None,
    session: HubSession | None = None,
) -> Iterator[HubModel]:
    """Every descendant of a base, once: its children, then their children, newest first.

    Quantised copies are listed, but not asked for children. A generator: a page is asked
    for when its first model is wanted, and one more listing for every model walked into.

    Raises:
        SourceError: the Hub cannot be listed; the same call goes on where it stopped.
    """
    session = session or default_session()
    seen = {base.lower()}
    parents = deque(_spellings(base, session, seen))
    found = 0
    while parents and (limit is None or found < limit):
        parent = parents.popleft()
        for model in _children(parent, remember, session, is_base=parent.lower() == base.lower()):
            if model.id.lower() in seen:
                continue
            seen.add(model.id.lower())
            if model.kind in ("full", "adapter"):
                parents.append(model.id)
            yield model
            found += 1
            if limit is not None and found >= limit:
                return


def _spellings(base: str, session: HubSession, seen: set[str]) -> list[str]:
    """The base as the user calls it, and as the Hub does since a renaming."""
    try:
        current = describe(base, session=session).id
    except ModelError as err:
        if err.code not in _PASSING and err.code != "offline":
            raise SourceError(f"the family of {base} cannot be listed: {err}") from err
        return [base]
    if current.lower() == base.lower():
        return [current]
    seen.add(current.lower())
    return [current, base]


def _children(
    parent: str, remember: ListingMemory, session: HubSession, *, is_base: bool
) -> Iterator[HubModel]:
    kept = remember.load(parent)
    if kept is not None:
        yield from (HubModel.from_json(raw) for raw in kept if "id" in raw)
        return
    listed: list[dict[str, Any]] = []
    try:
        for raw in _ask(parent, session):
            listed.append(raw)
            yield HubModel.from_json(raw)
    except ModelError as err:
        if is_base or err.code not in _PASSING:
            raise SourceError(f"the family of {parent} cannot be listed: {err}") from err
        log.warning("the children of %s are left out: %s", parent, err)
        return
    remember.save(parent, listed)


def _ask(parent: str, session: HubSession) -> Iterator[dict[str, Any]]:
    """A parent's children as plain values; fewer properties where the Hub refuses some."""
    for level in range(session.expand_level, len(EXPAND_SETS)):
        try:
            yield from _entries(parent, session, EXPAND_SETS[level])
        except BadRequestError as err:
            if level + 1 == len(EXPAND_SETS):
                line = f"children of {parent}: the Hub refuses the question (400)"
                raise ModelError("hub-bad-answer", line) from err
            session.expand_level = level + 1
        else:
            return


def _entries(
    parent: str, session: HubSession, properties: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """One entry a child. One that huggingface_hub cannot read ends its iterator: from there
    on the same pages are read again without it."""
    fields: dict[str, Any] = {"expand": list(properties)} if properties else dict(FULL_FIELDS)
    listing = session.api.list_models(filter=f"base_model:{parent}", sort="created_at", **fields)
    done: set[str] = set()
    try:
        for info in _paced(iter(listing), parent, session):
            done.add(info.id)
            yield plain(info)
    except BadRequestError:
        raise
    except UNREADABLE as err:
        log.info("children of %s: an entry is not as expected (%s)", parent, type(err).__name__)
        yield from _raw_entries(parent, session, properties, done)


def _raw_entries(
    parent: str, session: HubSession, properties: tuple[str, ...], done: set[str]
) -> Iterator[dict[str, Any]]:
    question: dict[str, Any] = {"filter": [f"base_model:{parent}"], "sort": "createdAt"}
    question |= {"expand": list(properties)} if properties else {"full": True, "config": True}
    pages = paginate(f"{session.endpoint}/api/models", question, dict(session.headers))
    n_good = len(done)
    try:
        for entry in _paced(iter(pages), parent, session):
            if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                n_good += 1
                if entry["id"] not in done:
                    yield entry
    except BadRequestError:
        raise
    except UNREADABLE as err:
        line = f"children of {parent}: not a list of models"
        raise ModelError("hub-bad-answer", line) from err
    if not n_good:
        raise ModelError("hub-bad-answer", f"children of {parent}: not a list of models")


def _paced(entries: Iterator[T], parent: str, session: HubSession) -> Iterator[T]:
    """The entries, each page fetched as one limited call."""
    while True:
        with session.call(f"children of {parent}", passes=frozenset({400})).current():
            try:
                entry = next(entries)
            except StopIteration:
                return
        yield entry
