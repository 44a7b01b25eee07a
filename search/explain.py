"""Which slots, layers and roles carry the similarity of two models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from ..errors import RequestError
from ..records import ROLES, STACKS, Recipe, Slot, SlotStats
from ..store import Catalog, SketchMatrix, block_dims, true_cosines
from .family_scores import weights_by_kinds
from .neighbours import FreshQuery, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotShare:
    """One slot's part in the similarity of two models that both changed it.

    Attributes:
        contribution: Its part of the similarity; the parts of all slots sum to it.
        share: The same as a fraction of the similarity; None where that is not positive.
        blocks: Parts of `contribution`, by block of features.
        relative_norms: |ΔW| / |W| of the query and of the other model; None = W not read.
    """

    slot: Slot
    contribution: float
    share: float | None
    blocks: Mapping[str, float]
    relative_norms: tuple[float | None, float | None]

    def to_json(self) -> dict[str, object]:
        return {
            "slot": str(self.slot),
            "contribution": self.contribution,
            "share": self.share,
            "blocks": dict(self.blocks),
            "relative_norm": dict(zip(("query", "model"), self.relative_norms, strict=True)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Contributions summed over the slots of one role, layer or block."""

    name: str
    contribution: float
    share: float | None

    def to_json(self, kind: str) -> dict[str, object]:
        """The documented keys; the name is under `kind`."""
        return {kind: self.name, "contribution": self.contribution, "share": self.share}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The similarity of two models, taken apart.

    Attributes:
        similarity: Cosine of all sketches together; close to the searched score, which a
            recipe computes from a pooled vector.
        slots: The slots both changed, largest contribution first.
        only_query: Slots that only the query changed; they contribute nothing.
        only_model: Slots that only the other model changed.
    """

    query: str
    model: str
    similarity: float
    by_role: tuple[Total, ...]
    by_layer: tuple[Total, ...]
    by_block: tuple[Total, ...]
    slots: tuple[SlotShare, ...]
    only_query: tuple[Slot, ...]
    only_model: tuple[Slot, ...]

    def to_json(self) -> dict[str, object]:
        """Plain lists and dictionaries, ready for json.dumps."""
        return {
            "query": self.query,
            "model": self.model,
            "similarity": self.similarity,
            "by_role": [total.to_json("role") for total in self.by_role],
            "by_layer": [total.to_json("layer") for total in self.by_layer],
            "by_block": [total.to_json("block") for total in self.by_block],
            "slots": [share.to_json() for share in self.slots],
            "only_query": [str(slot) for slot in self.only_query],
            "only_model": [str(slot) for slot in self.only_model],
        }


@dataclass(frozen=True, slots=True)
class Explained:
    """One of the two models: its name, its kind, its slots."""

    model: str
    kind: str
    slots: Sequence[SlotStats]


def explain_pair(
    catalog: Catalog,
    query: Query,
    model: str,
    *,
    recipe: str | None = None,
    base: str | None = None,
) -> Explanation:
    """Which slots carry the similarity of a query and a stored model of its family.

    Raises:
        RequestError: The recipe stores no slot sketches; an unknown model or recipe raises its
            subclass.
    """

    def answer() -> Explanation:
        if isinstance(query, FreshQuery):
            family, made_by = query.base, query.fingerprint.recipe
            first = Explained(query.model, query.kind, query.slots)
        else:
            row = catalog.model(query.model, query.base or base)
            family, made_by = row.base, catalog.find_recipe(recipe, row.base)
            first = Explained(row.id, row.record.kind, catalog.slots(row.key, made_by.id))
        sketch_blocks(made_by)
        row = catalog.model(model, family)
        second = Explained(row.id, row.record.kind, catalog.slots(row.key, made_by.id))
        return explain_slots(first, second, made_by)

    return catalog.look(answer)


def explain_slots(query: Explained, other: Explained, recipe: Recipe) -> Explanation:
    """The similarity of two models by slot, role, layer and kind of feature.

    A slot's contribution is its part of the plain cosine that `find-similar` shows: the mean
    over slots of each slot's cosine, its blocks weighted as between models of these kinds. A
    slot that one of two lacks adds nothing.

    Raises:
        RequestError: The recipe stores no slot sketches, or a model has none that fit it.
    """
    sizes = sketch_blocks(recipe)
    mine = {stats.slot: stats for stats in query.slots if stats.fro_norm > 0}
    theirs = {stats.slot: stats for stats in other.slots if stats.fro_norm > 0}
    parts = _contributions(query, mine, other, theirs, recipe)
    similarity = fsum(fsum(blocks) for blocks in parts.values())

    def share(contribution: float) -> float | None:
        return contribution / similarity if similarity > 0 else None

    def totals(name: Callable[[Slot], str]) -> list[Total]:
        sums: dict[str, float] = {}
        for slot, blocks in parts.items():
            sums[name(slot)] = sums.get(name(slot), 0.0) + fsum(blocks)
        return [Total(name=key, contribution=s, share=share(s)) for key, s in sums.items()]

    by_block = {name: fsum(part[i] for part in parts.values()) for i, name in enumerate(sizes)}
    shares = [
        SlotShare(
            slot=slot,
            contribution=fsum(blocks),
            share=share(fsum(blocks)),
            blocks=dict(zip(sizes, blocks, strict=True)),
            relative_norms=(_relative_norm(mine, slot), _relative_norm(theirs, slot)),
        )
        for slot, blocks in parts.items()
    ]
    return Explanation(
        query=query.model,
        model=other.model,
        similarity=similarity,
        by_role=tuple(
            sorted(totals(lambda slot: slot.role), key=lambda total: ROLES.index(total.name))
        ),
        by_layer=tuple(totals(lambda slot: f"{slot.stack}.{slot.layer}")),
        by_block=tuple(
            Total(name=name, contribution=s, share=share(s)) for name, s in by_block.items()
        ),
        slots=tuple(sorted(shares, key=lambda share: -share.contribution)),
        only_query=tuple(sorted(mine.keys() - theirs.keys(), key=_reading_order)),
        only_model=tuple(sorted(theirs.keys() - mine.keys(), key=_reading_order)),
    )


def sketch_blocks(recipe: Recipe) -> dict[str, int]:
    """The blocks of the recipe's slot sketches in order, each with its length.

    Raises:
        RequestError: The recipe stores no slot sketches.
    """
    blocks = block_dims(recipe)
    if not blocks:
        raise RequestError(
            f"recipe {recipe.name} stores no slot sketches to explain with: "
            "use a recipe that does, such as the default one"
        )
    return blocks


def _contributions(
    query: Explained,
    mine: Mapping[Slot, SlotStats],
    other: Explained,
    theirs: Mapping[Slot, SlotStats],
    recipe: Recipe,
) -> dict[Slot, tuple[float, ...]]:
    """Each common slot's part of the cosine, by block; in reading order.

    Parts are those of the cosine of codes, scaled together to what they estimate.
    """
    first, second = _sketches(query.model, mine, recipe), _sketches(other.model, theirs, recipe)
    kinds = sorted({query.kind, other.kind})
    pair = kinds.index(query.kind), kinds.index(other.kind)
    weights = weights_by_kinds(list(block_dims(recipe)), kinds)[pair]
    weights = weights * first.weights[0].any(axis=0) * second.weights[0].any(axis=0)
    weights /= weights.sum() or 1.0
    parts: dict[Slot, list[float]] = {}
    for slot, block, share in first.shares(second):
        parts.setdefault(slot, []).append(float(weights[block] * share[0, 0]))
    coded = np.array([fsum(fsum(blocks) for blocks in parts.values())])
    scale = float(true_cosines(coded)[0] / coded[0]) if coded[0] else 1.0
    return {
        slot: tuple(part * scale for part in parts[slot])
        for slot in sorted(parts, key=_reading_order)
    }


def _sketches(model: str, slots: Mapping[Slot, SlotStats], recipe: Recipe) -> SketchMatrix:
    """One model's sketches.

    Raises:
        RequestError: A sketch is not of this recipe.
    """
    try:
        return SketchMatrix.of_model({slot: s.sketch for slot, s in slots.items()}, recipe)
    except ValueError as err:
        raise RequestError(f"{model} has {err}: index it again with this recipe") from None


def _reading_order(slot: Slot) -> tuple[int, int, int]:
    """Stacks as data flows through them, then layers, then roles in printing order."""
    return STACKS.index(slot.stack), slot.layer, ROLES.index(slot.role)


def _relative_norm(slots: dict[Slot, SlotStats], slot: Slot) -> float | None:
    return slots[slot].relative_norm if slot in slots else None
