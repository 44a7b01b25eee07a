"""What `deltadex index` and `add` do: which base, members, recipes; the run over them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ..errors import (
    NOWHERE,
    BaseError,
    ModelError,
    RequestError,
    SourceError,
    offered,
)
from ..records import Slot
from ..store import Catalog, PartFolder, save_family
from .base import Base
from .budget import layer_bytes, parse_budget
from .checkpoint import FEW_BYTES
from .family import (
    EVERY_MEMBER,
    Member,
    Wanted,
    base_key,
    find_member,
    folder_at,
    folder_members,
    hub_members,
    listed_members,
    read_labels,
    refuse_strangers,
)
from .family_recipes import RecipeChoice, choose_recipes, find_upgrade
from .family_shapes import family_shapes, known_shapes, place_unnamed, usual_shapes
from .fan_out import ClusterOptions, index_on_ray, share_of, write_parts
from .fingerprint import Layout, family_layout
from .hub import ListingMemory, WalkCounts
from .job import Job, base_parts
from .options import IndexOptions
from .parallel import choose_device, cpu_count
from .renamed_base import find_renamed
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
    base = resolve_base(catalog, str(options.base), options.aliases)
    if options.hub:
        base = find_renamed(catalog, base)
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
    layout = run_layout(catalog, base, members, options.recipes)
    share = 1.0
    if options.budget is not None:
        base.plan = replace(FEW_BYTES, whole=options.verify)
        share = parse_budget(options.budget, layer_bytes(base.weights()))
    choice = RecipeChoice(
        names=tuple(options.recipes),
        rank=options.rank,
        share=share,
        follows_family=bool(options.models) and not options.budget and not options.rank,
    )
    recipes = choose_recipes(catalog, base.name, layout, choice)
    upgrade = find_upgrade(catalog, base.name, recipes, members)
    if upgrade is not None:
        log.info("%s", upgrade)
    members = place_unnamed(members, base, catalog)
    members = share_of(members, options.share)
    workers = options.workers or _workers(members)
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
    report = _run(members, job, catalog, options, workers, progress)
    report.labels, report.upgrade = matches, upgrade
    if base.name in catalog.bases() and (options.parts is None or options.ray is not None):
        weights = base.opened()
        revision, architecture = (
            (weights.revision, weights.architecture) if weights else (None, None)
        )
        save_family(catalog, base.name, revision, architecture, layout)
    if options.hub:
        catalog.listings(base.name).clear()
    return report


def _require_base(base: Base, members: Iterable[Member], catalog: Catalog) -> None:
    """Refuse a base that is nowhere, unless its family is known or a member can do without it.

    Raises:
        BaseError: with the nearest bases of the catalog.
    """
    to_read = [member for member in members if member.refusal is None]
    if not to_read or base.name in catalog.bases() or any(m.is_adapter for m in to_read):
        return
    try:
        base.weights()
    except BaseError as err:
        if isinstance(err.__cause__, ModelError) and err.__cause__.code in NOWHERE:
            near = offered(base.name, catalog.bases(), None)
            raise BaseError(f"{err}{near}") from err.__cause__


def _run(
    members: Sequence[Member],
    job: Job,
    catalog: Catalog,
    options: IndexOptions,
    workers: int,
    progress: Progress | None,
) -> Report:
    """Read the members here into the catalog, or here into parts, or on a cluster."""
    retry_failed = options.retry_failed
    if options.ray is not None:
        parts = str(options.parts or catalog.path.with_name(catalog.path.name + ".parts"))
        return index_on_ray(
            members,
            job,
            catalog,
            ClusterOptions(
                address=options.ray,
                workers=options.workers,
                parts=parts,
                keeps_parts=options.parts is not None,
            ),
            retry_failed=retry_failed,
            progress=progress,
        )
    if options.parts is not None:
        return write_parts(
            members,
            job,
            PartFolder(str(options.parts)),
            catalog.known(job.base.name),
            workers=workers,
            retry_failed=retry_failed,
            progress=progress,
        )
    return index_members(
        members, job, catalog, workers=workers, retry_failed=retry_failed, progress=progress
    )


def resolve_base(catalog: Catalog, spelling: str, aliases: Sequence[str] = ()) -> Base:
    """The base that a user means: a folder, or a name in whatever spelling is known already.

    Raises:
        BaseError: a folder without a readable model.
    """
    folder = folder_at(spelling)
    key = base_key(spelling if folder is None else str(folder.resolve()))
    same = [name for name in catalog.bases() if base_key(name) == key]
    if folder is not None:
        folder = folder.resolve()
        names = (b for b in same if not Path(b).is_absolute())
        base = Base(name=next(names, str(folder)), folder=folder, aliases=tuple(aliases))
        declared = (base.weights().config or {}).get("_name_or_path")
        if isinstance(declared, str) and declared:
            base.aliases = (*aliases, declared)
        return base
    if spelling.startswith((".", "/", "~")):
        raise BaseError(f"base {spelling}: no such folder")
    name = same[0] if same else spelling
    return Base(
        name=name,
        folder=folder_at(name) if Path(name).is_absolute() else None,
        aliases=(*aliases, spelling),
    )


def wanted_base(base: Base) -> Wanted:
    """The base as its members may name it."""
    weights = base.opened()
    config = weights.config if weights else None
    return Wanted(names=(base.name, *base.aliases), folder=base.folder, config=config)


def list_members(
    options: IndexOptions, base: Base, memory: ListingMemory, counts: WalkCounts | None = None
) -> Iterator[Member]:
    """The members that the options name and want, in the order of their source.

    Args:
        memory, counts: Of a walk of the Hub.
    """
    selection = options.selection
    selection.require_hub(is_hub=options.hub)
    members: Iterable[Member]
    if options.hub:
        members = hub_members(
            base.name,
            memory,
            session=base.session,
            aliases=base.aliases,
            depth=selection.depth,
            counts=counts,
        )
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


def run_layout(
    catalog: Catalog, base: Base, members: Sequence[Member], recipes: Sequence[str]
) -> Layout:
    """The family's blocks; read from weights only for the recipe that depends on them."""
    if "mean-factors" not in recipes:
        return stored_layout(catalog, base)
    blocks = {(Slot(s, 0, r), n) for s, r, n in stored_layout(catalog, base)}
    weights = base.opened()
    if weights is None and any(not m.is_adapter for m in members):
        weights = base.weights()
    if weights is not None:
        blocks |= {(p.slot, p.shape[0]) for p in weights.placed.placements}
    else:
        blocks |= {(slot, shape[0]) for (slot, _), shape in family_shapes(members).items()}
    return family_layout(blocks)


def stored_layout(catalog: Catalog, base: Base) -> Layout:
    family = catalog.base(base.name)
    blocks = family.slots.get("layout", []) if family else []
    return tuple((str(s), str(r), int(n)) for s, r, n in blocks)


def _workers(members: Sequence[Member]) -> int:
    """Models at work at once: several where they wait for a network or are small adapters;
    one full checkpoint uses all processors by itself."""
    if any(m.hub is not None for m in members):
        return max(4, cpu_count())
    return cpu_count() if all(m.is_adapter for m in members) else 1
