"""A base's whole family, page by page, fine-tunes of fine-tunes included."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol, TypeGuard, runtime_checkable
from urllib.parse import urlencode

import httpx2

from ...errors import ModelError, SourceError
from .hub_model import EXPAND_SETS, FULL_FIELDS, HubModel, describe, is_repo_id
from .session import HubSession, default_session, request_json

log = logging.getLogger(__name__)

MAX_BARREN = 3
"""Pages in a row without a model that was not on an earlier one."""

MAX_UNANSWERED = 3
"""Parents in a row whose children the Hub does not list for reasons that pass."""

_PASSING = frozenset({"not-found", "private-or-missing", "gated", "disabled", "hub-bad-answer"})
"""What is wrong with one parent's listing only."""

_MAY_PASS = frozenset({"hub-unreachable", "rate-limited", "unauthorized"})
"""What may be wrong with one parent's listing only; several in a row end the walk."""


@runtime_checkable
class ListingMemory(Protocol):
    """Storage for the finished listings of an unfinished walk."""

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        """A parent's children as they were saved; None where they were not."""

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        """Keep a parent's children, plain JSON values, for a later `load`."""


def list_family(
    base: str,
    *,
    remember: ListingMemory,
    limit: int | None = None,
    session: HubSession | None = None,
) -> Iterator[HubModel]:
    """Every descendant of a base, once: its children, then their children, newest first.

    Quantised copies are listed, but their children are not. A generator: a page is requested
    when its first model is wanted, and one more listing for every model walked into.

    Raises:
        SourceError: the base cannot be listed, or several parents in a row cannot; the same
            call goes on where it stopped.
    """
    session = session or default_session()
    seen = {base.lower()}
    parents = deque(_spellings(base, session, seen))
    n_models, unanswered = 0, list[str]()
    while parents and (limit is None or n_models < limit):
        parent = parents.popleft()
        may_miss = None if parent.lower() == base.lower() else unanswered
        for model in _children(parent, remember, session, may_miss):
            if model.id.lower() in seen:
                continue
            seen.add(model.id.lower())
            if model.kind in ("full", "adapter"):
                parents.append(model.id)
            yield model
            n_models += 1
            if limit is not None and n_models >= limit:
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
    parent: str, remember: ListingMemory, session: HubSession, unanswered: list[str] | None
) -> Iterator[HubModel]:
    """The children of one parent.

    Args:
        unanswered: The last parents in a row that were left out; None where none may be.
    """
    remembered = remember.load(parent)
    if remembered is not None:
        yield from (HubModel.from_json(raw) for raw in remembered if "id" in raw)
        return
    listed: list[dict[str, Any]] = []
    try:
        for raw in _request_children(parent, session):
            listed.append(raw)
            yield HubModel.from_json(raw)
    except ModelError as err:
        if unanswered is None or not _may_be_left_out(err, parent, unanswered):
            raise SourceError(f"the family of {parent} cannot be listed: {err}") from err
        log.warning("the children of %s are left out: %s", parent, err)
        return
    if unanswered is not None:
        unanswered.clear()
    remember.save(parent, listed)


def _may_be_left_out(err: ModelError, parent: str, unanswered: list[str]) -> bool:
    if err.code in _PASSING:
        return True
    unanswered.append(parent)
    return err.code in _MAY_PASS and len(unanswered) < MAX_UNANSWERED


def _request_children(parent: str, session: HubSession) -> Iterator[dict[str, Any]]:
    """A parent's children as plain values; fewer properties where the Hub refuses some."""
    for level in range(session.expand_level, len(EXPAND_SETS)):
        try:
            yield from _entries(parent, session, EXPAND_SETS[level])
        except _Refused as err:
            if level + 1 == len(EXPAND_SETS):
                line = f"children of {parent}: the Hub refuses the question (400)"
                raise ModelError("hub-bad-answer", line) from err
            session.expand_level = level + 1
        else:
            return


def _entries(
    parent: str, session: HubSession, properties: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """One entry a child; what is no model's entry is left out."""
    what = f"children of {parent}"
    known: set[str] = set()
    n_entries = n_barren = 0
    for page in _pages(parent, session, properties):
        fresh = {e["id"]: e for e in page if _is_entry(e) and e["id"] not in known}
        known |= fresh.keys()
        n_entries += len(page)
        n_barren = 0 if fresh else n_barren + 1
        if n_barren > MAX_BARREN:
            raise ModelError("hub-bad-answer", f"{what}: its pages repeat themselves")
        yield from fresh.values()
    if n_entries and not known:
        raise ModelError("hub-bad-answer", f"{what}: not a list of models")


def _pages(parent: str, session: HubSession, properties: tuple[str, ...]) -> Iterator[list[object]]:
    """Page after page, each fetched as one limited call when it is wanted."""
    question = [("filter", f"base_model:{parent}"), ("sort", "createdAt")]
    question += [("expand", name) for name in properties]
    question += [] if properties else [(name, "true") for name in FULL_FIELDS]
    what = f"children of {parent}"
    url = f"{session.endpoint}/api/models?{urlencode(question)}"
    while True:
        call = session.call(what)
        call.passes = frozenset({400})
        page, response = request_json(session, call, url)
        if response.status_code == 400:
            raise _Refused
        if not isinstance(page, list):
            raise ModelError("hub-bad-answer", f"{what}: not a list of models")
        yield page
        onward = response.links.get("next", {}).get("url")
        if not onward:
            return
        try:
            url = str(response.url.join(onward))
        except httpx2.InvalidURL:
            line = f"{what}: the next page has no address"
            raise ModelError("hub-bad-answer", line) from None


def _is_entry(entry: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(entry, dict) and is_repo_id(entry.get("id"))


class _Refused(Exception):
    """A question with properties that this Hub does not list."""
