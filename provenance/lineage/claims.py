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
