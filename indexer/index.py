"""What `deltadex index` and `add` do: which base, members, recipes; the run over them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ..errors import NOWHERE, BaseError, ModelError, RequestError, SourceError, offered
from ..records import Recipe
from ..store import Catalog, save_family
from .base import Base, find_renamed, resolve_base, wanted_base
from .budget import layer_bytes, parse_budget
from .checkpoint import FEW_BYTES
from .family import (
    EVERY_MEMBER,
    Member,
    find_member,
    folder_members,
    listed_members,
    member_of,
    read_labels,
    refuse_strangers,
)
from .fan_out import index_on_ray, share_of, write_parts
from .fingerprint import Layout
from .hub import ListingMemory, WalkCounts, list_family
from .job import Job, base_parts, choose_device, cpu_count
from .known_family import (
    choose_recipes,
    find_upgrade,
    known_shapes,
    place_unnamed,
    run_layout,
    usual_shapes,
)
from .options import IndexOptions
from .run import ListingProgress, Progress, Report, index_members

log = logging.getLogger(__name__)


def index_family(
    catalog: Catalog, options: IndexOptions, progress: Progress | None = None
) -> Report:
    """Fingerprint the family's members that are new or changed, and record every outcome.

    Raises:
        SourceError: the folder, list, labels or Hub listing cannot be read.
        BaseError: the base's own folder cannot be used.
        RequestError: no such device.
        UnknownRecipe, StoreError: as named.
    """
    device = choose_device(options.device)
    labels = read_labels(Path(options.labels)) if options.labels else None
    base = meant_base(catalog, options)
    wanted = wanted_base(base)
    listing = progress.listing if isinstance(progress, ListingProgress) else iter
    walk = WalkCounts()
    members = list(listing(list_members(options, base, catalog.listings(base.name), walk)))
    if not members:
        raise SourceError(nothing_found(options, base, walk, catalog))
    matches = labels.match(members) if labels else None
    if matches is not None and matches.unmatched:
        log.info("%s", matches)
    members = members[: options.limit]
    if labels is not None:
        members = [replace(m, record=labels.apply(m.record, m.folder)) for m in members]
    members = [refuse_strangers(member, wanted) for member in members]
    shapes = known_shapes(catalog, base.name) or usual_shapes(members, base)
    recipes, layout = run_recipes(catalog, base, members, options)
    upgrade = find_upgrade(catalog, base.name, recipes, members)
    if upgrade is not None:
        log.info("%s", upgrade)
    members = place_unnamed(members, base, catalog)
    members = share_of(members, options.share)
    # a full checkpoint uses all processors by itself; others wait for a network, or are small
    is_remote = any(m.hub is not None for m in members)
    workers = max(4, cpu_count()) if is_remote else 1
    if not is_remote and all(m.is_adapter for m in members):
        workers = cpu_count()
    workers = options.workers or workers
    job = Job(
        base=base,
        wanted=wanted,
        recipes=recipes,
        layout=layout,
        shapes=shapes,
        threads=max(1, cpu_count() // workers),
        device=device,
        parts=base_parts(base, recipes, verify=options.verify),
        verify=options.verify,
    )
    _require_base(base, members, catalog)
    if options.ray is not None:
        report = index_on_ray(members, job, catalog, options, progress)
    elif options.parts is not None:
        report = write_parts(members, job, catalog, options, workers, progress)
    else:
        report = index_members(members, job, catalog, options, workers, progress)
    report.labels, report.upgrade = matches, upgrade
    if base.name in catalog.bases() and (options.parts is None or options.ray is not None):
        weights = base.opened()
        said = (weights.revision, weights.architecture) if weights else (None, None)
        save_family(catalog, base.name, *said, layout)
    if options.hub:
        catalog.listings(base.name).clear()
    return report


def meant_base(catalog: Catalog, options: IndexOptions) -> Base:
    """The base, by the name that the catalog has it under."""
    base = resolve_base(catalog, str(options.base), options.aliases)
    return find_renamed(catalog, base) if options.hub else base


def run_recipes(
    catalog: Catalog, base: Base, members: Sequence[Member], options: IndexOptions
) -> tuple[list[Recipe], Layout]:
    """The recipes of a run, with the share that a budget means, and the family's blocks."""
    layout, share = run_layout(catalog, base, members, options.recipes), 1.0
    if options.budget is not None:
        base.plan = replace(FEW_BYTES, whole=options.verify)
        share = parse_budget(options.budget, layer_bytes(base.weights()))
    recipes = choose_recipes(
        catalog,
        base.name,
        layout,
        options.recipes,
        rank=options.rank,
        share=share,
        follows_family=bool(options.models) and not options.budget and not options.rank,
    )
    return recipes, layout


def _require_base(base: Base, members: Iterable[Member], catalog: Catalog) -> None:
    """Refuse a base that is nowhere, unless its family is known or a member can do without it."""
    to_read = [member for member in members if member.refusal is None]
    if not to_read or base.name in catalog.bases() or any(m.is_adapter for m in to_read):
        return
    try:
        base.weights()
    except BaseError as err:
        if isinstance(err.__cause__, ModelError) and err.__cause__.code in NOWHERE:
            near = offered(base.name, catalog.bases(), None)
            raise BaseError(f"{err}{near}") from err.__cause__


def list_members(
    options: IndexOptions, base: Base, memory: ListingMemory, counts: WalkCounts | None = None
) -> Iterator[Member]:
    """The members that the options name and want, in the order of their source."""
    selection = options.selection
    selection.require_hub(is_hub=options.hub)
    members: Iterable[Member]
    if options.hub:
        family = list_family(
            base.name,
            remember=memory,
            session=base.session,
            aliases=base.aliases,
            depth=selection.depth,
            counts=counts,
        )
        # a model below an intermediate fine-tune counts as the base's own
        members = (member_of(m, base.name, claims=(*m.base_models, base.name)) for m in family)
        return islice(selection.chosen(members), options.limit)
    if options.models:
        members = (find_member(str(model), base.name) for model in options.models)
    elif options.folder is None:
        raise RequestError("nothing to index: give a FOLDER, a list file, or --hub")
    elif options.folder.is_file():
        members = listed_members(options.folder, base.name)
    else:
        members = folder_members(options.folder, base.name, leave_out=base.folder)
    return selection.chosen(members)


def nothing_found(options: IndexOptions, base: Base, walk: WalkCounts, catalog: Catalog) -> str:
    """The message where there are no members, or none that are wanted."""
    if walk.missing is not None:
        near = offered(base.name, catalog.bases(), None)
        return f"the family of {base.name} cannot be listed: {walk.missing}{near}"
    left = "" if options.selection == EVERY_MEMBER else " that --exclude and --min-downloads leave"
    return f"{options.folder or base.name}: no models found{left}"
