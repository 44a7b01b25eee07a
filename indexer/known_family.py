"""What a family has: its recipes, and the shapes of its matrices where no base tells them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from ..errors import ModelError
from ..records import LINEAR_DIM, LINEAR_LAYER_DIM, Recipe, Slot
from ..store import Catalog, ModelFilter, Page, block_dims, sketch_bytes
from .adapter import read_adapter
from .architecture import Key, Placement, place_modules
from .base import Base
from .family import Member
from .fingerprint import (
    DEFAULT_RECIPE,
    VERSIONS,
    Layout,
    family_layout,
    has_linear_sketch,
    make_recipe,
)


def choose_recipes(
    catalog: Catalog,
    base: str,
    layout: Layout,
    names: Sequence[str],
    *,
    rank: int | None,
    share: float,
    follows_family: bool,
) -> list[Recipe]:
    """The recipes of a run: of the newest version where a user names them.

    Args:
        names: Empty goes on under the version that the family has.
        rank: None takes the recipe's own.
        share: Of every matrix that is read, 0…1.
        follows_family: Take rank and share as the family has them.

    Raises:
        UnknownRecipe, RequestError: as `make_recipe`.
    """
    held = catalog.recipes_of(base)
    chosen = []
    for name in names or (DEFAULT_RECIPE,):
        newest = make_recipe(name, rank, layout, share)
        versions = (newest.version,) if names else VERSIONS[name]
        same = (
            recipe
            for recipe in held
            if recipe.name == name
            and recipe.version in versions
            and (follows_family or _is_earlier_or_same(recipe, newest))
        )
        chosen.append(next(same, newest))
    return chosen


def _is_earlier_or_same(recipe: Recipe, newest: Recipe) -> bool:
    """Whether two recipes differ in nothing but their version."""
    if recipe.version == newest.version:
        return recipe.id == newest.id
    return recipe.rank == newest.rank and recipe.share == newest.share


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What a newer version of a family's recipe costs; the vectors of the older one stay.

    Attributes:
        models: Those that have the older version alone; they are read again.
        bytes_to_read: Of their files, about.
        catalog_bytes: By which the catalog grows, about.
    """

    earlier: str
    recipe: str
    models: int
    bytes_to_read: int
    catalog_bytes: int

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.earlier} → {self.recipe}: reads {self.models} models again, about "
            f"{self.bytes_to_read / 1e6:,.1f} MB; the catalog grows by about "
            f"{self.catalog_bytes / 1e6:,.1f} MB, and the earlier fingerprints stay in it"
        )


def find_upgrade(
    catalog: Catalog, base: str, recipes: Sequence[Recipe], members: Iterable[Member]
) -> Upgrade | None:
    """The upgrade that a run makes, if it makes one."""
    for recipe in recipes:
        earlier = [
            held
            for held in catalog.recipes_of(base)
            if held.name == recipe.name
            and held.version < recipe.version
            and _is_earlier_or_same(held, recipe)
        ]
        if not earlier:
            continue
        known = catalog.known(base)
        ids = {member.record.id for member in members}
        outdated = [
            row
            for id, row in known.items()
            if id in ids and earlier[0].id in row.recipes and recipe.id not in row.recipes
        ]
        if outdated:
            slots = catalog.shapes(base)
            n_layers = len({(slot.stack, slot.layer) for slot in slots})
            return Upgrade(
                earlier=earlier[0].id,
                recipe=recipe.id,
                models=len(outdated),
                bytes_to_read=round(recipe.share * sum(row.bytes_total for row in outdated)),
                catalog_bytes=len(outdated) * recipe_bytes(recipe, len(slots), n_layers),
            )
    return None


def linear_numbers(recipe: Recipe, layers: int) -> int:
    """How many numbers a model's linear sketch has."""
    return LINEAR_DIM + LINEAR_LAYER_DIM * layers if has_linear_sketch(recipe) else 0


def recipe_bytes(recipe: Recipe, slots: int, layers: int) -> int:
    """Bytes that the catalog keeps of a model under a recipe: vector, sketches, linear sketch."""
    dims = block_dims(recipe)
    sketches = slots * sketch_bytes(dims) if dims else 0
    return 4 * (recipe.dim + linear_numbers(recipe, layers)) + sketches


MODELS_THAT_TELL = 3
"""Models of a family from which on their shapes tell whether another one belongs to it."""

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
    changed = [{(str(p.slot), p.shape) for p in _adapter_placements(m)} for m in sample]
    changed = [slots for slots in changed if slots]
    stacks = Counter(
        stack for slots in changed for stack in {name.partition(".")[0] for name, _ in slots}
    )
    usual = {stack for stack, count in stacks.items() if 2 * count > len(changed)}
    counts = Counter(slot for slots in changed for slot in slots)
    shapes: dict[str, tuple[int, int]] = {}
    for (name, shape), _ in counts.most_common():
        if name.partition(".")[0] in usual:
            shapes.setdefault(name, shape)
    return shapes if len(changed) >= MODELS_THAT_TELL else {}


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
            stack, layer, role = text.split(".")
            shapes.setdefault((Slot(stack, int(layer), role), ""), shape)
    return [_fit(member, shapes) if _is_unnamed(member) else member for member in members]


def _is_unnamed(member: Member) -> bool:
    return member.is_adapter and not member.claims and member.refusal is None


def _fit(member: Member, shapes: Mapping[Key, tuple[int, int]]) -> Member:
    placements = _adapter_placements(member)
    fits = [shapes.get(p.key) == p.shape for p in placements]
    if fits and all(fits):
        notes = (*member.record.notes, "names no base; its shapes fit this family's")
        return replace(member, record=replace(member.record, notes=notes))
    if not placements:
        return member
    reason = f"names no base, and {fits.count(False)} of its {len(fits)} matrices do not fit"
    return replace(member, refusal=ModelError("base-unknown", reason))


def _adapter_placements(member: Member) -> tuple[Placement, ...]:
    """Where an adapter's modules belong; empty if its files do not tell. Reads headers only."""
    try:
        member = member.with_config()
        with closing(member.checkpoint()) as checkpoint:
            adapter = read_adapter(checkpoint, member.config)
            return place_modules(adapter.modules, None).placements
    except ModelError:
        return ()


def family_shapes(members: Iterable[Member]) -> dict[Key, tuple[int, int]]:
    """Every slot part that the adapters among `members` touch, with its shape."""
    shapes: dict[Key, tuple[int, int]] = {}
    for member in members:
        if member.is_adapter and member.refusal is None and member.claims:
            for placement in _adapter_placements(member):
                shapes.setdefault(placement.key, placement.shape)
    return shapes


def run_layout(
    catalog: Catalog, base: Base, members: Sequence[Member], recipes: Sequence[str]
) -> Layout:
    """The family's blocks; read from weights only for the recipe that depends on them."""
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
