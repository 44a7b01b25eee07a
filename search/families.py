"""Labelled families as a catalog holds them, ready to be evaluated or drawn."""

from __future__ import annotations

from ..errors import EmptyCatalog, RequestError, UnknownRecipe
from ..records import Recipe
from ..store import Catalog
from .centring import PooledMeans, centre_scores, is_centred
from .precision import LabelledFamily
from .refine import WHOLE_FAMILY, family_scores, has_sketches


def load_families(
    catalog: Catalog, recipe: str | None, base: str | None
) -> list[tuple[Recipe, LabelledFamily]]:
    """Every family, or that of `base`, with the vectors of one recipe by name or id.

    A recipe's name may stand for another id in each family: shapes can be part of it.

    Raises:
        EmptyCatalog: No model is fingerprinted.
        UnknownRecipe: None is under this recipe.
        RequestError: There is no family of this base.
    """
    bases = choose_bases(catalog, base)
    wanted = recipe or catalog.find_recipe(None, base).name
    catalog.find_recipe(wanted, base)
    families = []
    for one in bases:
        try:
            chosen = catalog.find_recipe(wanted, one)
        except (EmptyCatalog, UnknownRecipe):
            continue
        families.append((chosen, load_family(catalog, chosen, one)))
    return families


def choose_bases(catalog: Catalog, base: str | None) -> list[str]:
    """All bases of the catalog, or the one asked for.

    Raises:
        EmptyCatalog: There is none.
        RequestError: Not the one asked for.
    """
    bases = catalog.bases()
    if not bases:
        raise EmptyCatalog("the catalog is empty: `deltadex index BASE FOLDER` fills it")
    if base is None:
        return bases
    if base not in bases:
        raise RequestError(f"no family of {base!r}; there are: {', '.join(bases)}")
    return [base]


def load_family(catalog: Catalog, recipe: Recipe, base: str) -> LabelledFamily:
    """The fingerprinted models of one base, with what is known of them."""
    with catalog.snapshot():
        ids, vectors = catalog.vectors(base, recipe)
        rows = {row.id: row for row in catalog.models(base=base, status="indexed")}
    kinds = [rows[name].record.kind for name in ids]
    scores = None
    if has_sketches(recipe) and len(ids) <= WHOLE_FAMILY:
        scores = family_scores(catalog, base, recipe, ids)
    if is_centred(recipe):
        vectors = PooledMeans.of(ids, kinds, vectors).centred(kinds, vectors)
        scores = centre_scores(scores, ids, kinds) if scores is not None else None
    return LabelledFamily(
        base=base,
        ids=tuple(ids),
        vectors=vectors,
        labels=tuple(rows[name].dataset for name in ids),
        authors=tuple(rows[name].author for name in ids),
        runs=tuple(rows[name].run for name in ids),
        scores=scores,
    )
