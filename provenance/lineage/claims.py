"""What models' cards say of their parents, beside what their weights say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ...indexer import BaseName

Says = Literal["agrees", "base", "other", "outside", "itself"]
"""What a card names: the parent that the weights show, or one of a merge; the base, where they show
another; another model; one that the catalog does not have; the model itself."""


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
    claimed = {}
    rows = []
    for model in sorted(named):
        card = named[model]
        if card is None:
            continue
        target = _resolve(card, model, base, named, by_key)
        if target is not None:
            claimed[model] = target
        rows.append(_row(model, card, target, base, parents[model], equal))
    for circle in _circles(claimed):
        for model in circle:
            row = next(row for row in rows if row["model"] == model)
            row["circle"] = circle
            row["note"] = f"cards name each other in a circle: {' → '.join([*circle, circle[0]])}"
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


def _row(
    model: str,
    card: str,
    target: str | None,
    base: str,
    parents: Sequence[str],
    equal: Mapping[str, str],
) -> dict[str, Any]:
    shown = " and ".join(parents)
    says: Says
    if target == model:
        says, note = "itself", "card names the model itself"
    elif target is None:
        says, note = "outside", f"card names {card}, which is not in the family"
    elif equal.get(target, target) in {equal.get(parent, parent) for parent in parents}:
        says, note = "agrees", ""
    elif target == base:
        says, note = "base", f"card says base; weights say fine-tune of {shown}"
    elif list(parents) == [base]:
        says, note = "other", f"card says {target}; weights show no parent but the base"
    else:
        says, note = "other", f"card says {target}; weights say fine-tune of {shown}"
    return {"model": model, "card": card, "weights": list(parents), "says": says, "note": note}


def _circles(claimed: Mapping[str, str]) -> list[list[str]]:
    """Models that name each other in a circle of at least two, each circle once."""
    circles, seen = [], set[str]()
    for start in sorted(claimed):
        way: dict[str, int] = {}
        node: str | None = start
        while node is not None and node not in seen and node not in way:
            way[node] = len(way)
            node = claimed.get(node)
        if node in way and len(way) - way[node] > 1:
            circles.append(list(way)[way[node] :])
        seen.update(way)
    return circles
