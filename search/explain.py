"""Which slots, layers and roles carry the similarity of two models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from jaxtyping import Float64

from ..errors import RequestError
from ..records import ROLES, Slot, SlotStats

BLOCKS = ("update", "output", "input")
"""What the thirds of a sketch are features of: ΔW, ΔWΔWᵀ, ΔWᵀΔW."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotShare:
    """One slot's part in the similarity of two models that both changed it.

    Attributes:
        contribution: Its part of the similarity; the parts of all slots sum to it.
        share: The same as a fraction of the similarity; None where that is not positive.
        blocks: Parts of `contribution`, in the order of `BLOCKS`.
        relative_norms: |ΔW| / |W| of the query and of the other model; None = W not read.
    """

    slot: Slot
    contribution: float
    share: float | None
    blocks: tuple[float, ...]
    relative_norms: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Contributions summed over the slots of one role, layer or block."""

    name: str
    contribution: float
    share: float | None


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
            "by_role": [_total_json("role", total) for total in self.by_role],
            "by_layer": [_total_json("layer", total) for total in self.by_layer],
            "by_block": [_total_json("block", total) for total in self.by_block],
            "slots": [_slot_json(share) for share in self.slots],
            "only_query": [str(slot) for slot in self.only_query],
            "only_model": [str(slot) for slot in self.only_model],
        }


def explain_slots(
    query: str, ours: Sequence[SlotStats], model: str, theirs: Sequence[SlotStats]
) -> Explanation:
    """The similarity of two models by slot, role, layer and kind of feature.

    A slot's contribution is the mean over `BLOCKS` of ⟨a, b⟩ / √(⟨a, a⟩⟨b, b⟩), where the
    products in the root run over all slots of a model.

    Raises:
        RequestError: A model has no sketches, or the two were made by different recipes.
    """
    mine = {stats.slot: stats for stats in ours if stats.fro_norm > 0}
    other = {stats.slot: stats for stats in theirs if stats.fro_norm > 0}
    parts = _contributions(_blocks(query, mine), _blocks(model, other))
    similarity = sum(sum(blocks) for blocks in parts.values())
    shares = [_share(slot, parts[slot], similarity, mine, other) for slot in parts]
    by_role = _totals(parts, similarity, lambda slot: slot.role)
    return Explanation(
        query=query,
        model=model,
        similarity=similarity,
        by_role=tuple(sorted(by_role, key=lambda total: ROLES.index(total.name))),
        by_layer=_totals(parts, similarity, lambda slot: f"{slot.stack}.{slot.layer}"),
        by_block=_block_totals(parts, similarity),
        slots=tuple(sorted(shares, key=lambda share: (-share.contribution, share.slot))),
        only_query=tuple(sorted(mine.keys() - other.keys())),
        only_model=tuple(sorted(other.keys() - mine.keys())),
    )


def _blocks(
    model: str, slots: dict[Slot, SlotStats]
) -> dict[Slot, Float64[np.ndarray, "blocks features"]]:
    """Each slot's sketch as one row a block.

    Raises:
        RequestError: No sketches, or none that fall into three equal blocks.
    """
    if not any(stats.sketch.size for stats in slots.values()):
        raise RequestError(
            f"{model} has no sketches to explain a similarity with: "
            "index it with a recipe that keeps them, such as the default one"
        )
    for slot, stats in slots.items():
        if stats.sketch.size % len(BLOCKS):
            raise RequestError(
                f"the sketch of {model} at {slot} has {stats.sketch.size} features, "
                f"not {len(BLOCKS)} equal blocks: index it again"
            )
    return {
        slot: stats.sketch.astype(np.float64).reshape(len(BLOCKS), -1)
        for slot, stats in slots.items()
    }


def _contributions(
    ours: dict[Slot, Float64[np.ndarray, "blocks features"]],
    theirs: dict[Slot, Float64[np.ndarray, "blocks features"]],
) -> dict[Slot, tuple[float, ...]]:
    """Each common slot's part of the similarity, by block; in the slots' order.

    Raises:
        RequestError: A slot's sketches differ in size.
    """
    scale = len(BLOCKS) * _length(ours.values()) * _length(theirs.values())
    parts: dict[Slot, tuple[float, ...]] = {}
    for slot in sorted(ours.keys() & theirs.keys()):
        a, b = ours[slot], theirs[slot]
        if a.shape != b.shape:
            raise RequestError(
                f"sketches at {slot} differ in size, {a.size} and {b.size}: "
                "index both models with one recipe"
            )
        products = (a * b).sum(axis=1)
        parts[slot] = tuple((products / scale if scale else products).tolist())
    return parts


def _length(sketches: Iterable[Float64[np.ndarray, "blocks features"]]) -> float:
    """√ of a model's inner product with itself: the mean over blocks, summed over slots."""
    return sqrt(sum(float((sketch**2).sum()) for sketch in sketches) / len(BLOCKS))


def _share(
    slot: Slot,
    blocks: tuple[float, ...],
    similarity: float,
    ours: dict[Slot, SlotStats],
    theirs: dict[Slot, SlotStats],
) -> SlotShare:
    return SlotShare(
        slot=slot,
        contribution=sum(blocks),
        share=_fraction(sum(blocks), similarity),
        blocks=blocks,
        relative_norms=(ours[slot].relative_norm, theirs[slot].relative_norm),
    )


def _fraction(contribution: float, similarity: float) -> float | None:
    """The contribution as a share; fractions of nothing, or of less, mean nothing."""
    return contribution / similarity if similarity > 0 else None


def _totals(
    parts: dict[Slot, tuple[float, ...]], similarity: float, name: Callable[[Slot], str]
) -> tuple[Total, ...]:
    """Contributions summed over the slots of one name, in the slots' order."""
    sums: dict[str, float] = {}
    for slot, blocks in parts.items():
        sums[name(slot)] = sums.get(name(slot), 0.0) + sum(blocks)
    return tuple(_total(key, value, similarity) for key, value in sums.items())


def _block_totals(
    parts: dict[Slot, tuple[float, ...]], similarity: float
) -> tuple[Total, ...]:
    return tuple(
        _total(name, sum(blocks[i] for blocks in parts.values()), similarity)
        for i, name in enumerate(BLOCKS)
    )


def _total(name: str, contribution: float, similarity: float) -> Total:
    share = _fraction(contribution, similarity)
    return Total(name=name, contribution=contribution, share=share)


def _total_json(kind: str, total: Total) -> dict[str, object]:
    return {kind: total.name, "contribution": total.contribution, "share": total.share}


def _slot_json(share: SlotShare) -> dict[str, object]:
    return {
        "slot": str(share.slot),
        "contribution": share.contribution,
        "share": share.share,
        "blocks": dict(zip(BLOCKS, share.blocks, strict=True)),
        "relative_norm": {
            "query": share.relative_norms[0],
            "model": share.relative_norms[1],
        },
    }
