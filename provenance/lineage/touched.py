"""What the tokens that models were trained on say of descent (docs/words.md).

A row of the embedding that training moved stays moved in what is trained further: a child lacks
none of its parent's tokens. And a token that the further training did not see keeps its strength to
the last bit; siblings on one data set, which may have each other's tokens, have other strengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Bool, Int64
from ...records import Footprint, ModelRecord
from ...store import Catalog
from .descent import PerModel, PerNear
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
