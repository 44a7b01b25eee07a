"""What layers and vocabularies say of a direction: what a model lacks, its children do not have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Bool, Int64
from ...records import ModelRecord
from ...store import Catalog, FamilyUpdates
from .descent import PerModel, Updates
from .touched import TouchedTokens


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
