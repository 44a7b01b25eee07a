"""The lineage of a family: a tree from weights and times, beside what cards say, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from ...errors import UnknownRecipe
from ...indexer import BaseName
from ...records import ModelRecord, Recipe
from ...store import Catalog
from .descent import LEVEL, PerModel, Rows, Updates
from .edges import BASE, Edge, infer_edges
from .forms import Forms, TouchedTokens
from .repeats import COARSER, EQUAL

AHEAD_S = 86_400.0
"""Seconds after now from which a time is in the future, and ignored."""

Says = Literal["agrees", "base", "other", "outside", "itself"]
"""What a card names: the parent that the weights show, or one of a merge; the base, where they show
another; another model; one that the catalog does not have; the model itself."""

NO_SKETCH = "no linear sketch under this recipe: index it again"


def trace_lineage(catalog: Catalog, base: str, recipe: str | None = None) -> dict[str, Any]:
    """The document of a family's lineage.

    Raises:
        UnknownRecipe: there is none of that name, or none that keeps linear sketches.
    """
    chosen = choose_linear_recipe(catalog, base, recipe)
    view = catalog.family(base, chosen, is_current=True)
    family = catalog.models(base=base)
    records = {row.id: row for row in family if row.status == "indexed"}
    unread = {row.id: f"not-read: {row.reason}" for row in family if row.code == "not-read"}
    updates, number = view.updates(), {id: row for row, id in enumerate(view.ids)}
    # in order of id: the order in which models were indexed decides nothing
    ids = sorted(id for id, row in number.items() if id in records and updates.sketched[row])
    updates = updates.take([number[id] for id in ids])
    members = [records[id] for id in ids]
    times, n_future = read_times([record.created_at for record in members])
    own = Updates.of_family(updates)
    touched = TouchedTokens.of_family(catalog, base, members, own.rounding)
    forms = Forms.of_family(catalog, base, members, updates, touched)
    edges = infer_edges(own, times, _rank(members, times, own, forms), forms)
    return _document(base, chosen, ids, members, edges, touched) | {
        "not_compared": [
            {"model": id, "reason": unread.get(id, NO_SKETCH)}
            for id in sorted({*unread, *records} - set(ids))
        ],
        "partly_read": [
            {"model": id, "note": records[id].partly_read}
            for id in ids
            if records[id].partly_read is not None
        ],
        "times": {"known": int(np.isfinite(times).sum()), "future": n_future},
    }


def choose_linear_recipe(catalog: Catalog, base: str, name: str | None) -> Recipe:
    """The recipe of that name or id, else that of most models of those with linear sketches."""
    again = f"index again with `deltadex index {base} --recipe sketch`"
    if name is not None:
        recipe = catalog.find_recipe(name, base)
        if not recipe.has_linear_sketch:
            raise UnknownRecipe(f"recipe '{name}' keeps no linear sketches: {again}")
        return recipe
    for recipe in catalog.recipes_of(base):
        if recipe.has_linear_sketch:
            return recipe
    raise UnknownRecipe(f"{base}: no recipe of this family keeps linear sketches: {again}")


def read_times(texts: Sequence[str | None]) -> tuple[PerModel, int]:
    """Seconds, NaN where unknown; how many are in the future, and therefore unknown too."""
    latest = datetime.now(UTC).timestamp() + AHEAD_S
    times = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        try:
            moment = datetime.fromisoformat(text or "")
        except ValueError:
            continue
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        times[row] = zoned.timestamp()
    future = times > latest
    times[future] = np.nan
    return times, int(future.sum())


def _rank(members: Sequence[ModelRecord], times: PerModel, updates: Updates, forms: Forms) -> Rows:
    """Which of equal models is likelier their original: what has more of the base's form, is named
    as one, or older, or downloaded more. Of two stored types the shorter: training in the longer
    one gives numbers that the shorter does not hold, and rounding would show; none is trained in
    float64. Last, that of which fewer rows of the embedding moved: the others were changed
    since."""
    shows = updates.rounding > COARSER**2 * EQUAL**2 * updates.squares.sum(1)
    columns = (
        forms.touched.counts,
        np.array([-(record.downloads or 0) for record in members]),
        np.where(shows, -updates.rounding, updates.rounding),
        np.array([record.dtype == "F64" for record in members]),
        np.nan_to_num(times, nan=np.inf),
        np.array([record.duplicate_of is not None for record in members]),
        forms.changed(),
    )
    return np.argsort(np.lexsort(columns))  # of equal ones the first


def _document(
    base: str,
    recipe: Recipe,
    ids: Sequence[str],
    members: Sequence[ModelRecord],
    edges: Sequence[Edge],
    touched: TouchedTokens,
) -> dict[str, Any]:
    names = [*ids, base]
    parents: dict[str, list[str]] = {id: [] for id in ids}
    for edge in edges:
        parents[names[edge.child]].append(names[edge.parent])
    equal = {names[edge.child]: names[edge.parent] for edge in edges if edge.kind == "duplicate"}
    claims = read_claims(base, {record.id: record.base_raw for record in members}, parents, equal)
    return {
        "base": base,
        "recipe": recipe.name,
        "recipe_id": recipe.id,
        "models": len(ids),
        "level": LEVEL,
        "without_parent": sum(edge.parent == BASE for edge in edges),
        "edges": [_edge_json(edge, names, touched) for edge in edges],
        "claims": claims,
    }


def _edge_json(edge: Edge, names: Sequence[str], touched: TouchedTokens) -> Mapping[str, Any]:
    tokens = None if edge.parent == BASE else touched.overlap(edge.child, edge.parent)
    shares = {name: getattr(edge, name) for name in ("weight", "explained", "cosine")}
    return {
        "parent": names[edge.parent],
        "child": names[edge.child],
        "probability": round(edge.probability, 3),
        "kind": edge.kind,
        **{name: None if one is None else round(one, 4) for name, one in shares.items()},
        **{name: getattr(tokens, name, None) for name in ("touched", "missing", "kept")},
    }


def read_claims(
    base: str,
    named: Mapping[str, str | None],
    parents: Mapping[str, Sequence[str]],
    equal: Mapping[str, str],
) -> list[dict[str, Any]]:
    """A row for each card that names a parent, in order of model.

    Args:
        named: What the card of each model names.
        parents: Of each model, by its weights; the base's name where none is known.
        equal: The original of each copy.
    """
    by_key: dict[str, list[str]] = {}
    for model in named:
        by_key.setdefault(BaseName.of(model).last, []).append(model)

    def ancestry(model: str) -> list[str]:
        """Its parents, and of a copy those of its original too."""
        above = list(parents[model])
        return [*above, *ancestry(equal[model])] if model in equal else above

    rows = []
    for model in sorted(named):
        card = named[model]
        if card is None:
            continue
        target, above = _resolve(card, model, base, named, by_key), list(parents[model])
        shown = " and ".join(above)
        says: Says
        if target == model:
            says, note = "itself", "card names the model itself"
        elif target is None:
            says, note = "outside", f"card names {card}, which is not in the family"
        elif equal.get(target, target) in {equal.get(one, one) for one in ancestry(model)}:
            says, note = "agrees", ""
        elif target == base:
            says, note = "base", f"card says base; weights say fine-tune of {shown}"
        elif above == [base]:
            says, note = "other", f"card says {target}; weights show no parent but the base"
        else:
            says, note = "other", f"card says {target}; weights say fine-tune of {shown}"
        rows.append({"model": model, "card": card, "weights": above, "says": says, "note": note})
    return rows


def _resolve(
    card: str,
    model: str,
    base: str,
    named: Mapping[str, object],
    by_key: Mapping[str, Sequence[str]],
) -> str | None:
    """The base, or the model of the family, that a card names; None where neither is meant."""
    if card in named:
        return card
    name = BaseName.of(card)
    if name.fits(BaseName.of(base)):
        return base
    alike = by_key.get(name.last, ())
    return alike[0] if len(alike) == 1 else model if model in alike else None
