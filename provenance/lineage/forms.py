"""What layers, vocabularies and touched tokens say of descent (docs/words.md).

What a model lacks, its children do not have. A row of the embedding that training moved stays moved
in what is trained further: a child lacks none of its parent's tokens. And a token that the further
training did not see keeps its strength to the last bit; siblings on one data set, which may have
each other's tokens, have other strengths.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Bool, Int64
from ...records import Footprint, ModelRecord
from ...store import Catalog, FamilyUpdates
from .descent import PerModel, PerNear, Updates
from .repeats import COARSER

KINDS = ("exact", "frozen")
"""Of footprints that say all that moved."""

FEWEST = 20
"""Touched tokens from which a footprint is compared with another."""

LOST, LOST_SHARE = 1, 0.05
"""Tokens of a parent that a child may lack, and their share: a merge with a small weight, or a
storage that rounds, hides the weakest."""

LACKING, KEPT, REPLACED = -4.0, 3.0, -2.0
"""What is added to the log-odds where a model lacks tokens of a candidate; for the tokens that kept
their strength, as a share of both models' (a cosine); where it has more tokens, and kept none."""

NONE_KEPT = 0.02
"""Share of the tokens that kept their strength up to which chance may have made them equal."""

COARSEST = 2
"""Quarters of an octave in which strengths are stored, for equal ones to say anything."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A parent's tokens in a child. `kept`: those that moved as far in both, beyond what chance
    makes equal; None where strengths are stored too coarsely. `own`: the child's other tokens."""

    touched: int
    missing: int
    kept: int | None
    own: int

    @classmethod
    def of(cls, child: Footprint | None, parent: Footprint | None) -> Overlap | None:
        """None where the tokens of one of both are not known in full, or not of the same rows."""
        if child is None or parent is None or len(parent.tokens) < FEWEST:
            return None
        if (child.vocabulary, child.share) != (parent.vocabulary, parent.share):
            return None
        if child.kind not in KINDS or parent.kind not in KINDS:
            return None
        strengths = np.full(child.vocabulary, -1, dtype=np.int64)
        strengths[child.tokens] = child.strengths
        found = strengths[parent.tokens]
        apart = (found - parent.strengths)[found >= 0]
        step = int(np.gcd.reduce(np.concatenate([child.strengths, parent.strengths]))) or 1
        equal, more, less = (int((apart == own).sum()) for own in (0, step, -step))
        return cls(
            touched=len(found),
            missing=len(found) - len(apart),
            kept=max(0, equal - max(more, less)) if step <= COARSEST else None,
            own=len(child.tokens) - len(apart),
        )

    @property
    def log_odds(self) -> float:
        """That it is a child of the parent, against that it is none."""
        tolerated = LOST + LOST_SHARE * self.touched
        if self.missing > tolerated:
            return LACKING
        if self.kept is None:
            return 0.0
        if self.kept <= NONE_KEPT * self.touched:
            return REPLACED if self.own > tolerated else 0.0  # of one file all have the same tokens
        n_child = self.touched - self.missing + self.own
        return KEPT * self.kept / float(np.sqrt(self.touched * n_child))


@dataclass(frozen=True, slots=True, eq=False)
class TouchedTokens:
    """The footprints of some models, None where unknown.

    Attributes:
        is_full: Whether a model has an embedding of its own; an adapter lacks its parent's.
        rounding: Expected |rounding|² of their stored weights.
    """

    footprints: Sequence[Footprint | None]
    is_full: Bool[np.ndarray, " models"]
    rounding: PerModel

    @classmethod
    def of_family(
        cls, catalog: Catalog, base: str, members: Sequence[ModelRecord], rounding: PerModel
    ) -> TouchedTokens:
        known = {one.model: one.footprint for one in catalog.footprints.all(base)}
        is_full = np.array([record.kind == "full" for record in members], dtype=np.bool_)
        return cls([known.get(record.id) for record in members], is_full, rounding)

    @classmethod
    def unknown(cls, n_models: int) -> TouchedTokens:
        return cls([None] * n_models, np.zeros(n_models, np.bool_), np.zeros(n_models))

    def take(self, rows: Int64[np.ndarray, " rows"]) -> TouchedTokens:
        chosen = [self.footprints[row] for row in rows.tolist()]
        return TouchedTokens(chosen, self.is_full[rows], self.rounding[rows])

    @property
    def counts(self) -> Int64[np.ndarray, " models"]:
        """How many rows of each model's embedding moved; 0 where unknown."""
        return np.array(
            [
                0 if one is None else one.vocabulary if one.kind == "dense" else len(one.tokens)
                for one in self.footprints
            ],
            dtype=np.int64,
        )

    def overlap(self, child: int, parent: int) -> Overlap | None:
        """None of an adapter, and of a shorter type than the parent's."""
        is_shorter = self.rounding[child] > COARSER**2 * self.rounding[parent]
        if not self.is_full[child] or is_shorter:
            return None
        return Overlap.of(self.footprints[child], self.footprints[parent])

    def log_odds(self, child: int, parents: Int64[np.ndarray, " near"]) -> PerNear:
        """What is added to those of each candidate; 0 where nothing is known."""
        overlaps = [self.overlap(child, parent) for parent in parents.tolist()]
        return np.array([0.0 if one is None else one.log_odds for one in overlaps])

    def same(self, model: int, other: int) -> bool:
        """Whether the embeddings of two models may be equal; True where that is not known."""
        ours, theirs = self.footprints[model], self.footprints[other]
        if ours is None or theirs is None or "none" in (ours.kind, theirs.kind):
            return True
        if self.rounding[model] != self.rounding[other]:
            return True
        return (
            ours.kind == theirs.kind
            and np.array_equal(ours.tokens, theirs.tokens)
            and np.array_equal(ours.strengths, theirs.strengths)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Forms:
    """Forms of some models, and of their base.

    Attributes:
        lacks: Whether a full checkpoint has no matrix of the shape of the base's at a slot.
        slot_layers: The layer of each slot, by its place among those that have a sketch.
        layers, vocabulary: NaN where unknown.
    """

    lacks: Bool[np.ndarray, "models slots"]
    slot_layers: Int64[np.ndarray, " slots"]
    layers: PerModel
    vocabulary: PerModel
    base_layers: float
    base_vocabulary: float
    touched: TouchedTokens

    @classmethod
    def of_family(
        cls,
        catalog: Catalog,
        base: str,
        members: Sequence[ModelRecord],
        updates: FamilyUpdates,
        touched: TouchedTokens,
    ) -> Forms:
        """Of members; the base's vocabulary is that of most of them, where no signature of the base
        is kept."""
        # NumPy makes NaN of None
        vocabulary = np.array([record.vocabulary for record in members], dtype=np.float64)
        places = {name: place for place, name in enumerate(updates.layer_names)}
        return cls(
            lacks=np.isnan(updates.fro_norm) & touched.is_full[:, None],
            slot_layers=np.array(
                [places.get((slot.stack, slot.layer), -1) for slot in updates.slots], dtype=np.int64
            ),
            layers=np.array([record.layers for record in members], dtype=np.float64),
            vocabulary=vocabulary,
            base_layers=float(len({(slot.stack, slot.layer) for slot in catalog.shapes(base)})),
            base_vocabulary=_vocabulary_of(catalog, base, vocabulary),
            touched=touched,
        )

    @classmethod
    def unknown(cls, n_models: int) -> Forms:
        """Of models of which nothing is known."""
        nothing = np.full(n_models, np.nan)
        no_slots = np.zeros((n_models, 0), np.bool_), np.zeros(0, np.int64)
        touched = TouchedTokens.unknown(n_models)
        return cls(*no_slots, nothing, nothing, np.nan, np.nan, touched)

    def take(self, rows: Int64[np.ndarray, " rows"]) -> Forms:
        return replace(
            self,
            lacks=self.lacks[rows],
            layers=self.layers[rows],
            vocabulary=self.vocabulary[rows],
            touched=self.touched.take(rows),
        )

    def seen_by(self, model: int, updates: Updates) -> Updates:
        """Updates in what a model has: what it lacks, it does not differ in."""
        lacks = self.lacks[model]
        if not lacks.any():
            return updates
        layers = np.ones(updates.squares.shape[1], dtype=np.bool_)
        layers[self.slot_layers[~lacks]] = False
        return replace(
            updates,
            layers=np.where(layers[:, None], np.float32(0), updates.layers),
            squares=np.where(layers, 0.0, updates.squares),
            slot_norms=np.where(lacks, 0.0, updates.slot_norms),
        )

    def possible(
        self, child: int, parents: Int64[np.ndarray, " parents"]
    ) -> Bool[np.ndarray, " parents"]:
        """Whether a model may descend from each of others: it has no matrix that these lack, not
        fewer layers than one that has more than the base, and not the base's vocabulary where
        theirs is another."""
        restored = (self.lacks[parents] & ~self.lacks[child]).any(axis=1)
        layers, vocabulary = self.layers[parents], self.vocabulary[parents]
        restored |= (layers > self.base_layers) & (self.layers[child] < layers)
        is_base = self.vocabulary[child] == self.base_vocabulary
        restored |= is_base & ~np.isnan(vocabulary) & (vocabulary != self.base_vocabulary)
        return np.asarray(~restored)

    def same(self, model: int, others: Int64[np.ndarray, " others"]) -> Bool[np.ndarray, " others"]:
        """Whether nothing differs that is known of a model and of each of others."""
        differs = (self.lacks[others] != self.lacks[model]).any(axis=1)
        for numbers in (self.layers, self.vocabulary):
            differs |= np.abs(numbers[others] - numbers[model]) > 0
        return np.asarray(~differs)

    def changed(self) -> Int64[np.ndarray, " models"]:
        """How much each model's form is not the base's: the larger, the later of two."""
        layers = ~np.isnan(self.layers) & (self.layers != self.base_layers)
        vocabulary = ~np.isnan(self.vocabulary) & (self.vocabulary != self.base_vocabulary)
        return np.asarray(self.lacks.sum(axis=1) + layers + vocabulary)


def _vocabulary_of(catalog: Catalog, base: str, vocabulary: PerModel) -> float:
    for signature in catalog.signatures.all(base):
        tokens = json.loads(signature.facts).get("vocabulary")
        if isinstance(tokens, int):
            return float(tokens)
    sizes, counts = np.unique(vocabulary[~np.isnan(vocabulary)], return_counts=True)
    return float(sizes[counts.argmax()]) if len(sizes) else np.nan
