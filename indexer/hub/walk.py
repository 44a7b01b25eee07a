"""A base's whole family: fine-tunes of fine-tunes, and children that name a parent's earlier id."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlencode

import httpx2

from ...errors import ModelError, SourceError
from .hub_model import EXPAND_SETS, FULL_FIELDS, RELATIONS, HubModel, describe, is_repo_id
from .session import HubSession, default_session, request_json

log = logging.getLogger(__name__)

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
        models = [e for e in page if isinstance(e, dict) and is_repo_id(e.get("id"))]
        fresh = {e["id"]: e for e in models if e["id"] not in known}
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
    filters = url.params.get_list("filter")
    names = [tag.removeprefix("base_model:") for tag in filters if tag.startswith("base_model:")]
    return names[0] if names and is_repo_id(names[0]) else None


class _Refused(Exception):
    pass


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


MAX_UNANSWERED = 3
"""Parents in a row whose children the Hub does not list for reasons that pass."""

MAX_NAMES = 100
"""Names that may be a model's earlier one, each of which costs a request."""

_PASSING = frozenset({"not-found", "private-or-missing", "gated", "disabled", "hub-bad-answer"})
"""What is wrong with one parent's listing only."""

_MAY_PASS = frozenset({"hub-unreachable", "rate-limited", "unauthorized"})
"""What may be wrong with one parent's listing only; several in a row end the walk."""


@dataclass(slots=True, kw_only=True)
class WalkCounts:
    """What a walk did, beside the models that it found.

    Attributes:
        parents: Names whose children were listed, now or before.
        remembered: Those of them that were listed before, and cost no request.
        childless: Models whose children were not requested, as the Hub counts none.
        uncounted: Models whose children were requested because the Hub does not count them.
        below_depth: Models at the last level that was wanted, which may have children.
        left_out: Why the children of a name are missing.
        renamed: The current id by earlier id.
        unlisted: Children that the Hub counts and does not list, by parent.
        missing: Why the Hub does not show the base itself, if it does not.
    """

    parents: int = 0
    remembered: int = 0
    childless: int = 0
    uncounted: int = 0
    below_depth: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, int] = field(default_factory=dict)
    missing: str | None = None


def list_family(
    base: str,
    *,
    remember: ListingMemory,
    aliases: Sequence[str] = (),
    depth: int | None = None,
    session: HubSession | None = None,
    counts: WalkCounts | None = None,
) -> Iterator[HubModel]:
    """Every descendant of a base, once: its children, then their children, newest first.

    Quantised copies are listed, but their children are not. A generator: a page is requested
    when its first model is wanted, and one more listing for every model that may have children.

    Args:
        aliases: Further names of the base, whose children are the base's.
        depth: Generations below the base; None for all.
        counts: Is filled while the walk goes on.

    Raises:
        SourceError: the base cannot be listed, or several parents in a row cannot; the same
            call goes on where it stopped.
    """
    walk = _Walk(
        base=base,
        memory=remember,
        session=session or default_session(),
        depth=depth,
        counts=counts or WalkCounts(),
    )
    return walk.models(aliases)


@dataclass(slots=True, kw_only=True)
class _Walk:
    """A walk in progress.

    Attributes:
        levels: By id in lower case, the generation of its children: 1 for the base's.
        names: Ids that models call their base, and whether there is a sign of a renaming.
        unanswered: The last parents in a row that were left out.
    """

    base: str
    memory: ListingMemory
    session: HubSession
    depth: int | None
    counts: WalkCounts
    levels: dict[str, int] = field(default_factory=dict)
    parents: deque[str] = field(default_factory=deque)
    names: dict[str, bool] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)

    def models(self, aliases: Iterable[str]) -> Iterator[HubModel]:
        """Every model of the family, once."""
        for name in self._spellings(aliases):
            self.levels[name.lower()] = 1
            self.parents.append(name)
        if not self.session.offline and not self.session.has_token:
            self.memory = _Anonymous(self.memory)
        while True:
            while self.parents:
                yield from self._new_children(self.parents.popleft())
            self._find_earlier_names()
            if not self.parents:
                return

    def _spellings(self, aliases: Iterable[str]) -> list[str]:
        try:
            names = [describe(self.base, session=self.session).id, self.base]
        except ModelError as err:
            if err.code not in _PASSING and err.code != "offline":
                line = f"the family of {self.base} cannot be listed: {err}"
                raise SourceError(line) from err
            names, self.counts.missing = [self.base], str(err)
        else:
            # models without an owner were given one, and some cards have their old names
            self.names[names[0].rsplit("/", 1)[-1]] = False
        if names[0].lower() != self.base.lower():
            self.counts.renamed[self.base] = names[0]
        names += filter(is_repo_id, aliases)
        return list({name.lower(): name for name in reversed(names)}.values())[::-1]

    def _new_children(self, parent: str) -> Iterator[HubModel]:
        """The children of a name that were on no earlier list."""
        level = self.levels[parent.lower()]
        for model in self._children(parent, is_base=level == 1):
            self.names |= {
                name: sign or self.names.get(name, False) for name, sign in possible_names(model)
            }
            if model.id.lower() in self.levels:
                continue
            self.levels[model.id.lower()] = level + 1
            if model.kind in ("full", "adapter"):
                self._add_parent(model, level)
            yield model

    def _add_parent(self, model: HubModel, level: int) -> None:
        """Have a model's children listed, if it may have some that are wanted."""
        if model.n_children == 0:
            self.counts.childless += 1
        elif level == self.depth:
            self.counts.below_depth += 1
        else:
            self.counts.uncounted += model.n_children is None
            self.parents.append(model.id)
            if model.n_children is not None:
                self.counts.unlisted[model.id] = model.n_children

    def _children(self, parent: str, *, is_base: bool) -> Iterator[HubModel]:
        self.counts.parents += 1
        listed = self.memory.load(parent)
        if listed is not None:
            self.counts.remembered += 1
            yield from self._models_in(parent, listed)
            self._compare_count(parent, listed)
            return
        listed = []
        try:
            for raw in request_children(parent, self.session):
                listed.append(raw)
                yield from self._models_in(parent, [raw])
        except ModelError as err:
            self.counts.unlisted.pop(parent, None)
            if is_base or not self._may_be_left_out(err, parent):
                raise SourceError(f"the family of {parent} cannot be listed: {err}") from err
            self.counts.left_out[parent] = str(err)
            log.warning("the children of %s are left out: %s", parent, err)
            return
        self.unanswered.clear()
        self._compare_count(parent, listed)
        if listed or self.counts.missing is None:
            self.memory.save(parent, listed)

    def _models_in(self, parent: str, listed: Iterable[dict[str, Any]]) -> Iterator[HubModel]:
        for raw in listed:
            if "id" in raw:
                yield HubModel.from_json(raw)
            elif RENAMED in raw:
                current = str(raw[RENAMED])
                self.counts.renamed[parent] = current
                self.levels.setdefault(current.lower(), self.levels[parent.lower()])

    def _compare_count(self, parent: str, listed: Sequence[dict[str, Any]]) -> None:
        """Keep what the Hub counted and did not list."""
        missing = self.counts.unlisted.pop(parent, 0) - sum("id" in raw for raw in listed)
        if missing > 0:
            self.counts.unlisted[parent] = missing
            log.info("%s: the Hub counts %d children more than it lists", parent, missing)

    def _may_be_left_out(self, err: ModelError, parent: str) -> bool:
        if err.code in _PASSING:
            return True
        self.unanswered.append(parent)
        return err.code in _MAY_PASS and len(self.unanswered) < MAX_UNANSWERED

    def _find_earlier_names(self) -> None:
        """Have the names listed that are earlier ones of a model of the family.

        A name is looked up where it may be one: it differs from a model's in its owner alone, or
        a card and the tags that the Hub made of it disagree.
        """
        unknown = [
            name
            for name, has_sign in self.names.items()
            if name.lower() not in self.levels and (has_sign or owned_alike(name, self.levels))
        ]
        self.names.clear()
        for name in unknown[:MAX_NAMES]:
            current = current_name(name, self.session, self.memory)
            level = self.levels.get((current or "").lower())
            if current is None or level is None or (self.depth and level > self.depth):
                continue
            self.counts.renamed[name] = current
            self.levels[name.lower()] = level
            self.parents.append(name)
        if len(unknown) > MAX_NAMES:
            log.warning("%d names of parents were not looked up", len(unknown) - MAX_NAMES)


@dataclass(frozen=True, slots=True)
class _Anonymous:
    """A memory of what the Hub shows without a token, beside that of what it shows with one."""

    memory: ListingMemory

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        return self.memory.load(f"{parent}#anonymous")

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        self.memory.save(f"{parent}#anonymous", models)
