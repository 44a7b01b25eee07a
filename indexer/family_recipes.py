"""Under which recipes a run fingerprints a family, and what a newer version of its recipe costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from ..records import LINEAR_DIM, LINEAR_LAYER_DIM, Recipe
from ..store import Catalog, Known, block_dims, sketch_bytes
from .family import Member
from .fingerprint import DEFAULT_RECIPE, VERSIONS, Layout, has_linear_sketch, make_recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeChoice:
    """What a user says of recipes.

    Attributes:
        names: Empty goes on under the version that the family has.
        rank: None takes the recipe's own.
        share: Of every matrix that is read, 0…1.
        follows_family: Take rank and share as the family has them.
    """

    names: Sequence[str]
    rank: int | None
    share: float
    follows_family: bool


def choose_recipes(
    catalog: Catalog, base: str, layout: Layout, choice: RecipeChoice
) -> list[Recipe]:
    """The recipes of a run: of the newest version where a user names them.

    Raises:
        UnknownRecipe, RequestError: as `make_recipe`.
    """
    held = catalog.recipes_of(base)
    chosen = []
    for name in choice.names or (DEFAULT_RECIPE,):
        newest = make_recipe(name, choice.rank, layout, choice.share)
        versions = (newest.version,) if choice.names else VERSIONS[name]
        same = (
            recipe
            for recipe in held
            if recipe.name == name
            and recipe.version in versions
            and (choice.follows_family or _is_earlier_or_same(recipe, newest))
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
            row for id, row in known.items() if id in ids and _has_only(row, earlier[0], recipe)
        ]
        if outdated:
            return Upgrade(
                earlier=earlier[0].id,
                recipe=recipe.id,
                models=len(outdated),
                bytes_to_read=round(recipe.share * sum(row.bytes_total for row in outdated)),
                catalog_bytes=len(outdated) * _model_bytes(catalog, base, recipe),
            )
    return None


def _has_only(row: Known, earlier: Recipe, recipe: Recipe) -> bool:
    return earlier.id in row.recipes and recipe.id not in row.recipes


def _model_bytes(catalog: Catalog, base: str, recipe: Recipe) -> int:
    """Bytes that the catalog keeps of a model under a recipe: vector, sketches, linear sketch."""
    slots = catalog.shapes(base)
    n_layers = len({(slot.stack, slot.layer) for slot in slots})
    n_linear = LINEAR_DIM + LINEAR_LAYER_DIM * n_layers if has_linear_sketch(recipe) else 0
    return 4 * (recipe.dim + n_linear) + len(slots) * sketch_bytes(block_dims(recipe))
