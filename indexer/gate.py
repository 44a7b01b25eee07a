"""The base gate: whether a checkpoint is a descendant of the base at all."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ModelError

MIN_COSINE = 0.25
FIRST_LOOK = 6
THEN_EVERY = 8


@dataclass(slots=True)
class BaseGate:
    """Running sums over (child, base) matrix pairs: the first few, then a sample.

    Independent weights have cosine ≈ 0 and |ΔW|/|W| ≈ √2. The cosine decides, since a long
    fine-tune can reach a ratio of 1 and still hold its base: at cosine 0.25 an update that
    owes the base nothing is four times as long as the base.
    """

    base_name: str
    child_sq: float = 0.0
    base_sq: float = 0.0
    update_sq: float = 0.0
    matrices: int = 0
    passed_by: int = 0

    def samples_next(self) -> bool:
        """Whether the next matrix counts; called once for each."""
        self.passed_by += 1
        return self.passed_by <= FIRST_LOOK or self.passed_by % THEN_EVERY == 0

    def add(self, child: float, base: float, update: float) -> None:
        """Take in one pair's norms; after the first few, refuse a model of another base at once."""
        self.child_sq += child**2
        self.base_sq += base**2
        self.update_sq += update**2
        self.matrices += 1
        if self.matrices == FIRST_LOOK:
            self.check()

    @property
    def ratio(self) -> float:
        """|ΔW| / |W| over the matrices seen."""
        return math.sqrt(self.update_sq / self.base_sq) if self.base_sq else math.inf

    @property
    def cosine(self) -> float:
        """Cosine of child and base weights over the matrices seen."""
        if not self.child_sq or not self.base_sq:
            return 0.0
        inner = (self.child_sq + self.base_sq - self.update_sq) / 2
        return inner / math.sqrt(self.child_sq * self.base_sq)

    def check(self) -> None:
        """Raise `ModelError("wrong-base")` if what was seen does not descend from the base."""
        if self.cosine < MIN_COSINE:
            raise ModelError(
                "wrong-base",
                f"not a fine-tune of {self.base_name}: |ΔW|/|W| = {self.ratio:.2f} and cosine "
                f"{self.cosine:.2f} over {self.matrices} matrices (unrelated weights: 1.41 and 0)",
            )
