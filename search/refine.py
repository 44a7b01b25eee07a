"""Scores from the per-slot sketches: the same kernel as the pooled vector's, estimated from
ten times as many features, for a family or for the best candidates of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float64, Int64

from ..records import Recipe, Slot
from ..store import Catalog, SlotSketches
from .centring import references, shrinkage
from .standard_error import cosine_standard_errors

CANDIDATES = 128
"""How many of a search's best are scored again."""

ERRORS_AT_ONCE = 32
"""Models whose features stand side by side, at about 1 MB a model."""

WHOLE_FAMILY = 4_000
"""Models up to which every pair is scored from sketches; their scores take 128 MB."""

_NOTHING = np.zeros(1)

Sketches = Mapping[Slot, Float[np.ndarray, " features"]]


def has_sketches(recipe: Recipe) -> bool:
    """Whether models keep per-slot sketches under this recipe."""
    return "slot_blocks" in dict(recipe.params)


def family_scores(
    catalog: Catalog, base: str, recipe: Recipe, ids: Sequence[str]
) -> Float64[np.ndarray, "models models"]:
    """Every pair's cosine over all slots, not centred; a slot that one lacks counts as zero.

    Peak: the scores, and one slot's sketches in float64: float32 would part exact twins.
    """
    scores = np.zeros((len(ids), len(ids)))
    for _, places, sketches in catalog.sketches(base, recipe, ids):
        block = sketches.astype(np.float64)
        scores[np.ix_(places, places)] += block @ block.T
    lengths = np.sqrt(np.diag(scores))
    lengths[lengths == 0] = 1.0
    return scores / lengths[:, None] / lengths[None, :]


@dataclass(frozen=True, slots=True)
class SketchMeans:
    """aμ of every kind, slot by slot, for models scaled to unit length over all slots."""

    by_kind: Mapping[str, Mapping[Slot, Float64[np.ndarray, " features"]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(
        cls, catalog: Catalog, base: str, recipe: Recipe, ids: Sequence[str], kinds: Sequence[str]
    ) -> SketchMeans:
        """Over the family's models. Peak: the sketches of the reference."""
        means: dict[str, dict[Slot, Float64[np.ndarray, " features"]]] = {}
        for kind, rows in references(ids, kinds).items():
            slots = list(catalog.sketches(base, recipe, [ids[row] for row in rows]))
            lengths = _lengths(slots, len(rows))
            share = shrinkage(len(rows)) / len(rows)
            means[kind] = {
                slot: share * (sketches.astype(np.float64) / lengths[places, None]).sum(axis=0)
                for slot, places, sketches in slots
            }
        return cls(means)

    def centred(
        self, kind: str, sketches: Sketches
    ) -> dict[Slot, Float64[np.ndarray, " features"]]:
        """One model's sketches without its kind's mean, of unit length over all slots."""
        mean = self.by_kind.get(kind, {})
        centred = _unit({slot: sketch.astype(np.float64) for slot, sketch in sketches.items()})
        for slot, values in mean.items():
            centred[slot] = centred.get(slot, 0.0) - values
        return _unit(centred)


class Candidates:
    """Some stored models' sketches, centred when they are compared."""

    def __init__(
        self,
        catalog: Catalog,
        base: str,
        recipe: Recipe,
        ids: Sequence[str],
        kinds: Sequence[str],
        means: SketchMeans,
    ) -> None:
        self._slots = {
            slot: (places, sketches)
            for slot, places, sketches in catalog.sketches(base, recipe, ids)
        }
        self._lengths = _lengths([(s, *v) for s, v in self._slots.items()], len(ids))
        self._kinds = np.array(kinds)
        self._means = means

    def cosines(
        self, query: Mapping[Slot, Float64[np.ndarray, " features"]]
    ) -> Float64[np.ndarray, " models"]:
        """Centred cosine of every candidate with a centred query of unit length."""
        inner = np.zeros(len(self._lengths))
        squares = np.zeros(len(self._lengths))
        everyone = np.arange(len(self._lengths))
        for slot in self._all_slots(query):
            b = self._centred(slot, everyone)
            squares += np.einsum("mf,mf->m", b, b)
            inner += np.einsum("mf,f->m", b, query.get(slot, _NOTHING))
        return inner / np.where(squares > 0, np.sqrt(squares), 1.0)

    def plain_cosines(self, query: Sketches) -> Float64[np.ndarray, " models"]:
        """The same of stored sketches as they are, before any mean is taken out."""
        inner = np.zeros(len(self._lengths))
        for slot, sketch in _unit({s: q.astype(np.float64) for s, q in query.items()}).items():
            if slot in self._slots:
                places, sketches = self._slots[slot]
                inner[places] += np.einsum("mf,f->m", sketches.astype(np.float64), sketch)
        cosines: Float64[np.ndarray, " models"] = inner / self._lengths
        return cosines

    def standard_errors(
        self,
        query: Mapping[Slot, Float64[np.ndarray, " features"]],
        chosen: Int64[np.ndarray, " chosen"],
    ) -> Float64[np.ndarray, " chosen"]:
        """Standard error of those candidates' cosines; the means count as known."""
        slots = [(slot, query.get(slot, _NOTHING)) for slot in self._all_slots(query)]
        errors = np.empty(len(chosen))
        for start in range(0, len(chosen), ERRORS_AT_ONCE):
            rows = chosen[start : start + ERRORS_AT_ONCE]
            blocks = [self._centred(slot, rows) for slot, _ in slots]
            pairs = zip(blocks, slots, strict=True)
            a = np.concatenate([np.broadcast_to(own, block.shape[1]) for block, (_, own) in pairs])
            b = np.concatenate(blocks, axis=1)
            lengths = np.linalg.norm(b, axis=1, keepdims=True)
            unit = b / np.where(lengths > 0, lengths, 1.0)
            errors[start : start + len(rows)] = cosine_standard_errors(a, unit)
        return errors

    def _all_slots(self, query: Mapping[Slot, object]) -> list[Slot]:
        means = [slot for mean in self._means.by_kind.values() for slot in mean]
        return sorted({*self._slots, *query, *means})

    def _centred(
        self, slot: Slot, chosen: Int64[np.ndarray, " chosen"]
    ) -> Float64[np.ndarray, "chosen features"]:
        """One slot of some candidates, each scaled to unit length and without its kind's mean."""
        means = {k: mean[slot] for k, mean in self._means.by_kind.items() if slot in mean}
        stored = self._slots.get(slot)
        widths = [1, *map(len, means.values()), *([stored[1].shape[1]] if stored else [])]
        everyone = np.zeros((len(self._lengths), max(widths)))
        if stored is not None:
            places, sketches = stored
            everyone[places] = sketches / self._lengths[places, None]
        rows: Float64[np.ndarray, "chosen features"] = everyone[chosen]
        for kind, mean in means.items():
            rows[self._kinds[chosen] == kind] -= mean
        return rows


def _unit(
    sketches: Mapping[Slot, Float64[np.ndarray, " features"]],
) -> dict[Slot, Float64[np.ndarray, " features"]]:
    length = np.sqrt(sum(float(sketch @ sketch) for sketch in sketches.values())) or 1.0
    return {slot: sketch / length for slot, sketch in sketches.items()}


def _lengths(slots: Sequence[SlotSketches], n_models: int) -> Float64[np.ndarray, " models"]:
    """Length of every model's sketches together; 1 where there are none."""
    squares = np.zeros(n_models)
    for _, places, sketches in slots:
        squares[places] += np.square(sketches.astype(np.float64)).sum(axis=1)
    return np.where(squares > 0, np.sqrt(squares), 1.0)
