"""The children of one model, page by page, as the Hub lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeGuard, runtime_checkable
from urllib.parse import urlencode

import httpx2

from ...errors import ModelError
from .hub_model import EXPAND_SETS, FULL_FIELDS, is_repo_id
from .session import HubSession, request_json

MAX_BARREN = 3
"""Pages in a row without a model that was not on an earlier one."""

RENAMED = "renamed"
"""In the place of an entry: the name under which the Hub listed a parent's children."""


@runtime_checkable
class ListingMemory(Protocol):
    """Storage for the finished listings of an unfinished walk."""

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        """A parent's children as they were saved; None where they were not."""

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        """Keep a parent's children, plain JSON values, for a later `load`."""


def request_children(parent: str, session: HubSession) -> Iterator[dict[str, Any]]:
    """A parent's children as plain values; fewer properties where the Hub refuses some.

    Where the Hub answers for another name, `{"renamed": name}` comes before the children.
    """
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
    answered = parent
    for page, response in _pages(parent, session, properties):
        name = _listed_name(response.url)
        if name is not None and name.lower() != answered.lower():
            answered = name
            yield {RENAMED: name}
        fresh = {e["id"]: e for e in page if _is_entry(e) and e["id"] not in known}
        known |= fresh.keys()
        n_entries += len(page)
        n_barren = 0 if fresh else n_barren + 1
        if n_barren > MAX_BARREN:
            raise ModelError("hub-bad-answer", f"{what}: its pages repeat themselves")
        yield from fresh.values()
    if n_entries and not known:
        raise ModelError("hub-bad-answer", f"{what}: not a list of models")


def _pages(
    parent: str, session: HubSession, properties: tuple[str, ...]
) -> Iterator[tuple[list[object], httpx2.Response]]:
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
        yield page, response
        onward = response.links.get("next", {}).get("url")
        if not onward:
            return
        try:
            url = str(response.url.join(onward))
        except httpx2.InvalidURL:
            line = f"{what}: the next page has no address"
            raise ModelError("hub-bad-answer", line) from None


def _listed_name(url: httpx2.URL) -> str | None:
    """The parent whose children an address lists."""
    filters = url.params.get_list("filter")
    names = [tag.removeprefix("base_model:") for tag in filters if tag.startswith("base_model:")]
    return names[0] if names and is_repo_id(names[0]) else None


def _is_entry(entry: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(entry, dict) and is_repo_id(entry.get("id"))


class _Refused(Exception):
    """A question with properties that this Hub does not list."""
