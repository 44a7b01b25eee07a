"""What `deltadex index`, `add` and a fresh query do: base, members, recipes, run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import (
    BaseError,
    EmptyCatalog,
    ModelError,
    RequestError,
    SourceError,
    UnknownRecipe,
)
from ..records import Indexed, Recipe, Slot
from ..store import Catalog
from .base import Base
from .budget import BaseParts, layer_bytes, parse_budget
from .checkpoint import FEW_BYTES
from .family import (
    Labels,
    Member,
    Wanted,
    base_key,
    folder_members,
    hub_members,
    listed_members,
    one_member,
    read_labels,
    refuse_strangers,
)
from .fingerprint import DEFAULT_RECIPE, Layout, family_layout, make_recipe
from .hub import cancel_with
from .job import Job
from .model import fingerprint_member
from .parallel import choose_device, cpu_count, one_torch_thread
from .run import Progress, Report, index_members
from .shapes import family_shapes, place_unnamed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """Everything `deltadex index` can be told.

    Attributes:
        base: A Hub id, a folder, or a mere name.
        folder: A folder of models; or a file that lists ids and paths, one a line.
        hub: Walk the base's family on the Hub.
        models: Single ids or paths (`deltadex add`).
        budget: `2%` or `20MB` of the layer matrices a model; None reads them whole.
        device: Where updates are compressed: `auto`, `cpu`, or as torch names it.
        aliases: Further names by which members may call the base.
        workers: Models at work at once; 0 chooses.
        retry_failed: Read models again that failed before, though their files are the same.
    """

    base: str
    folder: Path | None = None
    hub: bool = False
    models: tuple[str, ...] = ()
    labels: Path | None = None
    limit: int | None = None
    recipes: tuple[str, ...] = (DEFAULT_RECIPE,)
    rank: int | None = None
    budget: str | None = None
    device: str = "auto"
    aliases: tuple[str, ...] = ()
    workers: int = 0
    retry_failed: bool = False


def index_family(
    catalog: Catalog, options: IndexOptions, progress: Progress | None = None
) -> Report:
    """Fingerprint the family's members that are new or changed, and record every outcome.

    Raises:
        SourceError: the folder, list, labels or Hub listing cannot be read.
        BaseError: the base's own folder cannot be used.
        UnknownRecipe, StoreError: as named.
    """
    cancelled = threading.Event()
    cancel_with(cancelled)
    labels = read_labels(options.labels) if options.labels else None
    base = resolve_base(catalog, options.base, options.aliases)
    wanted = wanted_base(base)
    members = _members(catalog, options, base)
    matches = labels.match(members) if labels else None
    if matches is not None and matches.unmatched:
        log.info("%s", matches)
    members = [
        refuse_strangers(_label(member, labels), wanted) for member in members[: options.limit]
    ]
    layout = _layout(catalog, base, members, options.recipes)
    share = _share(base, options.budget)
    recipes = [make_recipe(name, options.rank, layout, share) for name in options.recipes]
    if options.models and not options.budget and not options.rank:
        recipes = _as_the_family(catalog, base, recipes)
    members = _place_unnamed(members, base, catalog)
    workers = options.workers or _workers(members)
    threads = max(1, cpu_count() // workers)
    job = Job(
        base=base,
        wanted=wanted,
        recipes=recipes,
        layout=layout,
        threads=threads,
        device=choose_device(options.device),
        parts=_parts(base, recipes),
        cancelled=cancelled,
    )
    report = index_members(
        members,
        job,
        catalog,
        workers=workers,
        retry_failed=options.retry_failed,
        progress=progress,
    )
    report.labels = matches
    _remember_family(catalog, base, layout)
    if options.hub:
        catalog.listings(base.name).clear()
    return report


def fingerprint_query(catalog: Catalog, model: str, base_name: str, recipe: Recipe) -> Indexed:
    """The fingerprint of a model that is not in the catalog; nothing is stored.

    Raises:
        RequestError: it cannot be fingerprinted; the message has the reason code.
    """
    base = resolve_base(catalog, base_name)
    member = refuse_strangers(one_member(model, base.name), wanted_base(base))
    layout = _stored_layout(catalog, base)
    job = Job(
        base=base,
        wanted=wanted_base(base),
        recipes=[recipe],
        layout=layout,
        threads=cpu_count(),
        device=choose_device("auto"),
        parts=_parts(base, [recipe]),
    )
    with one_torch_thread():
        outcome = fingerprint_member(member, job)
    if isinstance(outcome, Indexed):
        return outcome
    raise RequestError(f"{model}: {outcome.code}: {outcome.reason}")


def guess_base(catalog: Catalog, model: str) -> str:
    """The family that a model without a row most likely belongs to.

    Raises:
        RequestError: there is no such model; or there are several families and its files name
            none of them, or many.
    """
    bases = catalog.bases()
    if len(bases) > 1:
        member = one_member(model, "")
        if member.refusal is not None and not member.claims:
            raise RequestError(f"{model}: {member.refusal}")
        if member.folder is not None and not member.record.bytes_total:
            raise RequestError(f"{model}: {ModelError('no-weights', 'no model in this folder')}")
        claims = member.claims
        bases = [b for b in bases if Wanted(names=(b,)).named_in(claims)] or bases
    if len(bases) == 1:
        return bases[0]
    raise RequestError(
        f"{model}: which family? Add --base, one of: {', '.join(bases) or 'none yet'}"
    )


def claimed_base(model: str) -> str | None:
    """The base that a model's own files name first."""
    claims = one_member(model, "").claims
    return claims[0] if claims else None


def resolve_base(catalog: Catalog, spelling: str, aliases: Sequence[str] = ()) -> Base:
    """The base that a user means: a folder, or a name in whatever spelling is known already.

    Raises:
        BaseError: a folder without a readable model.
    """
    folder = Path(spelling).expanduser()
    known = catalog.bases()
    if folder.is_dir():
        folder = folder.resolve()
        by_name = [
            b for b in known if not Path(b).is_absolute() and base_key(b) == base_key(str(folder))
        ]
        name = by_name[0] if by_name else str(folder)
        base = Base(name=name, folder=folder, aliases=tuple(aliases))
        declared = (base.weights().config or {}).get("_name_or_path")
        if isinstance(declared, str) and declared:
            base.aliases = (*aliases, declared)
        return base
    if spelling.startswith((".", "/", "~")):
        raise BaseError(f"base {spelling}: no such folder")
    same = [b for b in known if base_key(b) == base_key(spelling)]
    name = same[0] if same else spelling
    stored = Path(name)
    return Base(
        name=name,
        folder=stored if stored.is_absolute() and stored.is_dir() else None,
        aliases=(*aliases, spelling),
    )


def wanted_base(base: Base) -> Wanted:
    """The base as its members may name it."""
    weights = base.opened()
    return Wanted(
        names=(base.name, *base.aliases),
        folder=base.folder,
        config=weights.config if weights else None,
    )


def _share(base: Base, budget: str | None) -> float:
    """The share of every matrix that a budget reads; the base's headers tell what it is of."""
    if budget is None:
        return 1.0
    base.plan = FEW_BYTES
    return parse_budget(budget, layer_bytes(base.weights()))


def _as_the_family(catalog: Catalog, base: Base, recipes: Sequence[Recipe]) -> list[Recipe]:
    """The recipes as most models of the family have them: its rank, its budget."""
    if base.name not in catalog.bases():
        return list(recipes)
    chosen = []
    for recipe in recipes:
        try:
            usual = catalog.find_recipe(recipe.name, base.name)
        except (EmptyCatalog, UnknownRecipe):
            usual = recipe
        chosen.append(usual if usual.version == recipe.version else recipe)
    return chosen


def _parts(base: Base, recipes: Sequence[Recipe]) -> BaseParts | None:
    """What is read of every matrix under the recipes' budget.

    Raises:
        RequestError: one recipe has a budget, another has not.
    """
    shares = {recipe.share for recipe in recipes}
    if shares == {1.0}:
        return None
    if len(shares) > 1:
        raise RequestError("one run reads one share: give --budget, and one recipe at a time")
    base.plan = FEW_BYTES
    return BaseParts(base, shares.pop())


def _members(catalog: Catalog, options: IndexOptions, base: Base) -> list[Member]:
    if options.hub:
        found = hub_members(base.name, catalog.listings(base.name), limit=options.limit)
    elif options.models:
        found = (one_member(model, base.name) for model in options.models)
    elif options.folder is None:
        raise RequestError("nothing to index: give a FOLDER, a list file, or --hub")
    elif options.folder.is_file():
        found = listed_members(options.folder, base.name)
    else:
        found = folder_members(options.folder, base.name, leave_out=base.folder)
    members = list(found)
    if not members:
        raise SourceError(f"{options.folder or base.name}: no models found")
    return members


def _label(member: Member, labels: Labels | None) -> Member:
    if labels is None:
        return member
    return replace(member, record=labels.apply(member.record, member.folder))


def _place_unnamed(members: list[Member], base: Base, catalog: Catalog) -> list[Member]:
    if not any(m.is_adapter and not m.claims and m.refusal is None for m in members):
        return members
    weights = base.opened()
    if weights is not None:
        shapes = {(p.slot, p.part): p.shape for p in weights.placed.placements}
    else:
        shapes = family_shapes(members)
        family = catalog.family(base.name)
        for text, shape in (family.slots.get("shapes", {}) if family else {}).items():
            stack, layer, role = text.split(".")
            shapes.setdefault((Slot(stack, int(layer), role), ""), (shape[0], shape[1]))
    return place_unnamed(members, shapes)


def _layout(
    catalog: Catalog, base: Base, members: Sequence[Member], recipes: Sequence[str]
) -> Layout:
    """The family's blocks; found out only for the recipe that depends on them."""
    if "mean-factors" not in recipes:
        return _stored_layout(catalog, base)
    blocks = {(Slot(s, 0, r), n) for s, r, n in _stored_layout(catalog, base)}
    weights = base.opened()
    if weights is None and any(not m.is_adapter for m in members):
        weights = base.weights()
    if weights is not None:
        blocks |= {(p.slot, p.shape[0]) for p in weights.placed.placements}
    else:
        blocks |= {(slot, shape[0]) for (slot, _), shape in family_shapes(members).items()}
    return family_layout(blocks)


def _stored_layout(catalog: Catalog, base: Base) -> Layout:
    family = catalog.family(base.name)
    blocks = family.slots.get("layout", []) if family else []
    return tuple((str(s), str(r), int(n)) for s, r, n in blocks)


def _remember_family(catalog: Catalog, base: Base, layout: Layout) -> None:
    family = catalog.family(base.name)
    shapes = dict(family.slots.get("shapes", {})) if family else {}
    shapes.update({str(slot): list(shape) for slot, shape in catalog.shapes(base.name).items()})
    weights = base.opened()
    architecture = (weights.config or {}).get("model_type") if weights else None
    catalog.save_family(
        base.name,
        weights.revision if weights else None,
        architecture if isinstance(architecture, str) else None,
        {"shapes": shapes, "layout": [list(block) for block in layout]},
    )


def _workers(members: Sequence[Member]) -> int:
    """Models at work at once: several where they wait for a network or are small adapters;
    one full checkpoint uses all processors by itself."""
    if any(m.hub is not None for m in members):
        return max(4, cpu_count())
    return cpu_count() if all(m.is_adapter for m in members) else 1
