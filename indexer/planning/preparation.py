"""What a run over a family would begin with, from listings, small files and headers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import BaseError, ModelError, SourceError
from ...records import Recipe
from ...store import Catalog, PartFolder
from ..base import Base, BaseWeights
from ..budget import layer_bytes, parse_budget
from ..checkpoint import FEW_BYTES
from ..family import Member, read_labels, refuse_strangers
from ..family_recipes import RecipeChoice, choose_recipes
from ..fan_out import share_of
from ..hub import ListingMemory, WalkCounts
from ..index import (
    list_members,
    nothing_found,
    resolve_base,
    run_layout,
    wanted_base,
)
from ..job import Job
from ..options import IndexOptions
from ..renamed_base import find_renamed
from ..run import Report, Unread

Track = Callable[[Iterable[Member]], Iterable[Member]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A run before its first byte of a model.

    Attributes:
        weights: The base's, opened; None where they cannot be, for the reason `base_failure`.
        share: Of every layer matrix that is read.
        fresh: Members that are not in the catalog as they are now; some of them refused.
        earlier: What is said of the others: how many are unchanged, which were refused before.
        excluded: Members that the options do not want.
        walk: Of the Hub; None for other sources.
    """

    base: Base
    weights: BaseWeights | None
    base_failure: str | None
    recipes: Sequence[Recipe]
    share: float
    fresh: Sequence[Member]
    earlier: Report
    listed: int
    excluded: int
    walk: WalkCounts | None


def prepare(catalog: Catalog, options: IndexOptions, track: Track) -> Preparation:
    """What `index_family` with these options begins with.

    Raises:
        SourceError, BaseError, RequestError: as `index_family`.
    """
    base = resolve_base(catalog, str(options.base), options.aliases)
    if options.hub:
        base = find_renamed(catalog, base)
    walk = WalkCounts() if options.hub else None
    memory = _memory(catalog, base)
    members, excluded = _split(track(_all_members(options, base, memory, walk)), options)
    if not members:
        raise SourceError(nothing_found(options, base, walk or WalkCounts(), catalog))
    needs_base = any(not member.is_adapter and member.refusal is None for member in members)
    weights, failure = _open(base) if needs_base or base.folder is not None else (None, None)
    if options.labels is not None:
        labels = read_labels(Path(options.labels))
        members = [replace(m, record=labels.apply(m.record, m.folder)) for m in members]
    wanted = wanted_base(base)
    members = [refuse_strangers(member, wanted) for member in members]
    layout = run_layout(catalog, base, members, options.recipes)
    share = 1.0
    if options.budget is not None:
        share = parse_budget(options.budget, layer_bytes(base.weights()))
    choice = RecipeChoice(
        names=tuple(options.recipes), rank=options.rank, share=share, follows_family=False
    )
    recipes = choose_recipes(catalog, base.name, layout, choice)
    members = share_of(members, options.share)
    known = catalog.known(base.name)
    if options.parts is not None:
        known |= PartFolder(str(options.parts)).known(base.name)
    job = Job(base=base, wanted=wanted, recipes=recipes, layout=layout, verify=options.verify)
    earlier = Report(base=base.name, recipes=recipes)
    unread = Unread(job, known, earlier, retry_failed=options.retry_failed)
    return Preparation(
        base=base,
        weights=weights,
        base_failure=failure,
        recipes=recipes,
        share=1.0 if options.verify else share,
        fresh=[_refuse_without_base(member, failure) for member in unread.among(members)],
        earlier=earlier,
        listed=len(members) + excluded,
        excluded=excluded,
        walk=walk,
    )


def _all_members(
    options: IndexOptions, base: Base, memory: ListingMemory, walk: WalkCounts | None
) -> Iterable[Member]:
    """The members of the source, those included that are not wanted."""
    options.selection.require_hub(is_hub=options.hub)
    everything = replace(options, limit=None, exclude=(), min_downloads=None)
    return list_members(everything, base, memory, walk)


def _split(members: Iterable[Member], options: IndexOptions) -> tuple[list[Member], int]:
    """The members that are wanted, up to the limit, and how many were passed over."""
    n_seen = 0

    def counted() -> Iterable[Member]:
        nonlocal n_seen
        for member in members:
            n_seen += 1
            yield member

    chosen = list(islice(options.selection.chosen(counted()), options.limit))
    return chosen, n_seen - len(chosen)


def _open(base: Base) -> tuple[BaseWeights | None, str | None]:
    """The base with its headers alone read, or why it cannot be opened."""
    base.plan = FEW_BYTES
    try:
        return base.weights(), None
    except BaseError as err:
        return None, str(err)


def _refuse_without_base(member: Member, failure: str | None) -> Member:
    """The member, refused where it needs a base that cannot be opened."""
    if failure is None or member.is_adapter or member.refusal is not None:
        return member
    return replace(member, refusal=ModelError("needs-base", failure))


def _memory(catalog: Catalog, base: Base) -> ListingMemory:
    """Where the walk is kept for the run: the catalog, unless it is only read."""
    stored: ListingMemory = catalog.listings(base.name)
    return _Unsaved(stored) if catalog.read_only else stored


@dataclass(frozen=True, slots=True)
class _Unsaved:
    """What a catalog remembers of a walk, and what only this process does."""

    stored: ListingMemory
    held: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        held = self.held.get(parent)
        return self.stored.load(parent) if held is None else held

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        self.held[parent] = models
