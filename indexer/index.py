"""What `deltadex index` and `add` do: which base, members, recipes; the run over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from ..errors import NOWHERE, BaseError, ModelError, RequestError, SourceError, offered
from ..records import Recipe, Slot
from ..store import BaseRecord, Catalog, ModelFilter, Page
from .adapter import read_adapter
from .architecture import Key, Placement, place_modules
from .base import Base, find_renamed, resolve_base, wanted_base
from .checkpoint import FEW_BYTES, Config
from .family import (
    Member,
    find_member,
    folder_members,
    is_wanted,
    listed_members,
    member_of,
    read_labels,
    refuse_strangers,
)
from .fingerprint import DEFAULT_RECIPE, Layout, family_layout, make_recipe
from .hub import FamilyWalk, ListingMemory, WalkCounts
from .job import IndexJob, base_parts, choose_device, cpu_count, layer_bytes, parse_budget
from .lexicon import LexiconOnce, MakeLexicon, make_lexicon
from .options import IndexOptions
from .rounding import CANDIDATES
from .run import IndexRun, Progress, Report, share_of

MODELS_THAT_TELL = 3
"""Models of a family from which on their shapes tell whether another one belongs to it."""

SMALL_BYTES = 1 << 30
"""Of a full checkpoint that one thread reads, so that a kill loses little work."""

SAMPLED_ADAPTERS = 32
"""Adapters whose headers are read before a run, where nothing else tells what a family has."""


def known_shapes(catalog: Catalog, base: str) -> dict[str, tuple[int, int]]:
    """(out, in) by slot, of the family's models at the end of its last run; none where so few
    are indexed that one of another base would decide it."""
    _, indexed = catalog.page_of_models(ModelFilter(base=base, status="indexed"), Page(limit=1))
    return dict(catalog.base(base).shapes) if indexed >= MODELS_THAT_TELL else {}


def usual_shapes(members: Sequence[Member], base: Base) -> dict[str, tuple[int, int]]:
    """(out, in) by slot, of most of the adapters on disk, for a family of which too little is
    known and a base that is not read; reads headers only, of some."""
    adapters = [m for m in members if m.is_adapter and m.hub is None and m.refusal is None]
    if base.opened() is not None or len(adapters) < MODELS_THAT_TELL:
        return {}
    sample = adapters[:: max(1, len(adapters) // SAMPLED_ADAPTERS)]
    placed = ({(str(p.slot), p.shape) for p in adapter_placements(m)} for m in sample)
    changed = list(filter(None, placed))
    stacks = Counter(s for slots in changed for s in {name.partition(".")[0] for name, _ in slots})
    usual = {stack for stack, count in stacks.items() if 2 * count > len(changed)}
    counts = Counter(slot for slots in changed for slot in slots)
    shapes: dict[str, tuple[int, int]] = {}
    for (name, shape), _ in counts.most_common():
        if name.partition(".")[0] in usual:
            shapes.setdefault(name, shape)
    return shapes if len(changed) >= MODELS_THAT_TELL else {}


def name_original(member: Member, ids: Collection[str]) -> Member:
    """The member; where it is a quantised copy of one of `ids`, its refusal says of which."""
    original = next((claim for claim in member.claims if claim in ids), None)
    if original is None or member.refusal is None or member.refusal.code != "quantized":
        return member
    line = f"{member.refusal.reason}; a copy of {original}, which can be read"
    return replace(member, refusal=ModelError("quantized", line))


def place_unnamed(members: list[Member], base: Base, catalog: Catalog) -> list[Member]:
    """The members; an adapter that names no base stays only if its shapes fit the family's."""
    if not any(map(_is_unnamed, members)):
        return members
    weights = base.opened()
    if weights is not None:
        shapes = {key: placement.shape for key, placement in weights.placed.by_key.items()}
    else:
        shapes = family_shapes(members)
        for text, shape in catalog.base(base.name).shapes.items():
            shapes.setdefault((Slot.parse(text), ""), shape)
    config = weights.config if weights else None
    return [_fit(m, shapes, config) if _is_unnamed(m) else m for m in members]


def _is_unnamed(member: Member) -> bool:
    return member.is_adapter and not member.claims and member.refusal is None


def _fit(member: Member, shapes: Mapping[Key, tuple[int, int]], config: Config | None) -> Member:
    placements = adapter_placements(member, config)
    # a side of 0 is known to the base alone
    fits = [
        (known := shapes.get(p.key)) is not None
        and all(side in (0, own) for side, own in zip(p.shape, known, strict=True))
        for p in placements
    ]
    if fits and all(fits):
        notes = (*member.record.notes, "names no base; its shapes fit this family's")
        return replace(member, record=replace(member.record, notes=notes))
    if not placements:
        return member
    few = f"{fits.count(False)} of its {len(fits)} matrices"
    reason = f"names no base, and the shapes of {few} do not fit"
    return replace(member, refusal=ModelError("base-unknown", reason))


def adapter_placements(member: Member, config: Config | None = None) -> tuple[Placement, ...]:
    """Where an adapter's modules belong, `config`: by that of its base; empty if its files do not
    tell. Reads headers only."""
    try:
        member = member.with_config()
        with closing(member.checkpoint()) as checkpoint:
            adapter = read_adapter(checkpoint, member.config)
            return place_modules(adapter.modules, config).placements
    except ModelError:
        return ()


def family_shapes(members: Iterable[Member]) -> dict[Key, tuple[int, int]]:
    shapes: dict[Key, tuple[int, int]] = {}
    for member in members:
        if member.is_adapter and member.refusal is None and member.claims:
            for placement in adapter_placements(member):
                shapes.setdefault(placement.key, placement.shape)
    return shapes


def run_layout(
    catalog: Catalog, base: Base, members: Sequence[Member], recipes: Sequence[str]
) -> Layout:
    if "mean-factors" not in recipes:
        return catalog.base(base.name).layout
    blocks = {(Slot(s, 0, r), n) for s, r, n in catalog.base(base.name).layout}
    weights = base.opened()
    if weights is None and any(not m.is_adapter for m in members):
        weights = base.weights()
    if weights is not None:
        blocks |= {(p.slot, p.shape[0]) for p in weights.placed.placements}
    else:
        blocks |= {(slot, shape[0]) for (slot, _), shape in family_shapes(members).items()}
    return family_layout(blocks)


def index_family(
    catalog: Catalog,
    options: IndexOptions,
    progress: Progress | None = None,
    run_base: MakeLexicon | None = None,
) -> Report:
    """Fingerprint the family's members that are new or changed, and record every outcome. A
    `SourceError` if they or their labels cannot be listed, a `BaseError` if the base's own folder
    cannot be used. `run_base` makes its lexicon, where
    it can be run."""
    device = choose_device(options.device)
    labels = read_labels(Path(options.labels)) if options.labels else None
    base = meant_base(catalog, options)
    wanted = wanted_base(base)
    listing = getattr(progress, "listing", iter)
    walk = WalkCounts()
    members = list(listing(list_members(options, base, catalog.listings(base.name), walk)))
    if not members:
        raise SourceError(nothing_found(options, base, walk, catalog))
    wanted = replace(wanted, kin=frozenset(m.hub.id for m in members if options.hub and m.hub))
    matches = labels.match(members, of_some=options.only is not None) if labels else None
    members = members[: options.limit]
    if labels is not None:
        told = {row.id: row for row in catalog.models(base=base.name)}
        named = ((m, told.get(m.record.id)) for m in members)
        members = [replace(m, record=labels.apply(m.record, m.folder, row)) for m, row in named]
    members = [refuse_strangers(member, wanted) for member in members]
    ids = {member.record.id for member in members if member.refusal is None}
    members = [name_original(member, ids) for member in members]
    shapes = known_shapes(catalog, base.name) or usual_shapes(members, base)
    recipes, layout = run_recipes(catalog, base, members, options)
    members = place_unnamed(members, base, catalog)
    members = share_of(members, options.share)
    # a large checkpoint uses all processors by itself; others wait for a network, or are small: the
    # next is read while one is finished
    is_remote = any(m.hub is not None for m in members)
    workers = max(4, cpu_count()) if is_remote else 1
    if not is_remote and all(m.is_adapter or m.stated_bytes <= SMALL_BYTES for m in members):
        workers = min(cpu_count(), max(1, len(members)))
    workers = options.workers or workers
    make_words = None
    if options.footprints and run_base is not None and options.parts is None:
        # parts have none: each would name its own
        make_words = partial(make_lexicon, catalog, base, device, run_base)
    job = IndexJob(
        base=base,
        wanted=wanted,
        recipes=recipes,
        layout=layout,
        shapes=shapes,
        stored=catalog.base(base.name).shapes,
        threads=max(1, cpu_count() // workers),
        device=device,
        parts=base_parts(base, recipes, verify=options.verify),
        verify=options.verify,
        footprints=options.footprints,
        lexicon=LexiconOnce(make_words),
        originals=_originals(catalog, base, members, options.retry_failed),
    )
    _require_base(base, members, catalog)
    report = IndexRun(members, job, catalog, options, workers, progress).report()
    report.labels = matches
    report.unlisted = find_unlisted(catalog, options, base, members, walk)
    if base.name in catalog.bases() and (options.parts is None or options.ray is not None):
        weights = base.opened()
        said = ("revision", "architecture", "license") if weights else ()
        values = {name: getattr(weights, name) for name in said}
        catalog.save_family(BaseRecord(base=base.name, layout=tuple(layout), **values))
        _save_tokenizer(catalog, base, options)
    if options.hub:
        catalog.listings(base.name).clear()
    return report


def find_unlisted(
    catalog: Catalog, options: IndexOptions, base: Base, members: Sequence[Member], walk: WalkCounts
) -> list[str]:
    """The indexed models that the Hub listed once and does not list any more, by id; none where
    not all of its listing was asked for, or came."""
    limits = (options.limit, options.share, options.depth, options.min_downloads, options.exclude)
    if not options.hub or any(limits) or walk.left_out or walk.missing is not None:
        return []
    listed = {member.record.id for member in members}
    rows = catalog.models(base=base.name, status="indexed")
    # what names no base was never listed below one, and below what is gone nothing is listed
    gone = {r.id: r for r in rows if r.source == "hub" and r.id not in listed}
    return sorted(id for id, it in gone.items() if it.base_raw and it.base_raw not in gone)


def _originals(
    catalog: Catalog, base: Base, members: Sequence[Member], retry_failed: bool
) -> list[Member]:
    """The base, this run's full models and the catalog's, as far as they are on disk; none where no
    model on disk is refused as quantised."""
    stored = catalog.known(base.name)
    local = [m for m in members if m.folder is not None and not m.is_adapter]
    copies = [m.record for m in local if m.refusal is not None and m.refusal.code == "quantized"]
    unchanged = {
        id: row.signature for id, row in stored.items() if row.signature and row.status != "indexed"
    }
    if all(unchanged.get(c.id) == c.signature and not retry_failed for c in copies):
        return []  # without one, or none is read again
    places = {base.name: str(base.folder)} if base.folder else {}
    for id, row in stored.items():
        if row.status == "indexed" and row.source != "hub" and len(places) < CANDIDATES:
            places[id] = row.source
    known = (find_member(place, base.name, id=id) for id, place in places.items())
    fresh = (m for m in local if m.record.id not in places)
    found = (m for m in (*known, *fresh) if m.refusal is None and not m.is_adapter)
    return list(islice(found, CANDIDATES))


def _save_tokenizer(catalog: Catalog, base: Base, options: IndexOptions) -> None:
    """Keep the base's tokenizer, by which footprints are read; of a base that was opened."""
    is_known = catalog.footprints.family_tokenizer(base.name)
    if options.footprints and base.opened() is not None and not is_known:
        content = base.tokenizer()
        if content is not None:
            catalog.footprints.save_tokenizer(base.name, content)


def meant_base(catalog: Catalog, options: IndexOptions) -> Base:
    base = resolve_base(catalog, str(options.base), options.aliases)
    return find_renamed(catalog, base) if options.hub else base


def run_recipes(
    catalog: Catalog, base: Base, members: Sequence[Member], options: IndexOptions
) -> tuple[list[Recipe], Layout]:
    """The recipes of a run, with the share that a budget means, and the family's blocks. Models
    that are added take rank and share as the family has them, where neither is given."""
    layout, share = run_layout(catalog, base, members, options.recipes), 1.0
    if options.budget is not None:
        base.plan = replace(FEW_BYTES, whole=options.verify)
        share = parse_budget(options.budget, layer_bytes(base.weights()))
    names = options.recipes or (DEFAULT_RECIPE,)
    made = [make_recipe(name, options.rank, layout, share) for name in names]
    if not options.models or options.budget or options.rank:
        return made, layout
    held = reversed(catalog.recipes_of(base.name))
    alike = {(recipe.name, recipe.version): recipe for recipe in held}
    return [alike.get((recipe.name, recipe.version), recipe) for recipe in made], layout


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
    options: IndexOptions, base: Base, memory: ListingMemory, counts: WalkCounts
) -> Iterator[Member]:
    if not options.hub and (options.depth is not None or options.min_downloads is not None):
        raise RequestError("--depth and --min-downloads need --hub: files do not tell them")
    members: Iterable[Member]
    if options.hub:
        family = FamilyWalk(
            base=base.name,
            memory=memory,
            aliases=base.aliases,
            depth=options.depth,
            session=base.session,
            counts=counts,
        )
        # a model below an intermediate fine-tune counts as the base's own
        members = (
            member_of(model, base.name, claims=(*model.base_models, base.name))
            for repository in family
            for model in repository.models()
        )
    elif options.models:
        members = (find_member(str(model), base.name) for model in options.models)
    elif options.folder is None:
        raise RequestError("nothing to index: give a FOLDER, a list file, or --hub")
    elif options.folder.is_file():
        members = listed_members(options.folder, base.name)
    else:
        members = folder_members(options.folder, base.name, leave_out=base.folder)
    wanted = (member for member in members if is_wanted(member, options))
    return islice(wanted, options.limit if options.hub else None)


def nothing_found(options: IndexOptions, base: Base, walk: WalkCounts, catalog: Catalog) -> str:
    if walk.missing is not None:
        near = offered(base.name, catalog.bases(), None)
        return f"the family of {base.name} cannot be listed: {walk.missing}{near}"
    is_some = any((options.exclude, options.min_downloads, options.depth, options.only))
    left = " that --exclude and --min-downloads leave" if is_some else ""
    return f"{options.folder or base.name}: no models found{left}"
