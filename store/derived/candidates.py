"""What searches need of an engine: the keys near a vector that pass a filter."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from ...arrays import Float32, Int64

CLOSE = 1e-5
"""Scores whose order single precision may change."""


@runtime_checkable
class CandidateIndex(Protocol):
    """Vectors of one family that an engine holds, found by key. It does not change its answers.

    Attributes:
        keys: Of the models that it answers for, rising.
    """

    keys: Int64[np.ndarray, " models"]

    @property
    def is_exact(self) -> bool:
        """Whether every vector is compared with a query; else likely ones are."""
        ...

    def nearest(
        self,
        query: Float32[np.ndarray, " dim"],
        n: int,
        allowed: Int64[np.ndarray, " allowed"] | None = None,
    ) -> Int64[np.ndarray, " candidates"]:
        """Keys of at least the `n` nearest of those that are allowed, where the index is exact,
        with all that single precision cannot tell from the last; else of about `n` likely ones.

        Args:
            allowed: The keys that pass a filter, rising; None for all.
        """
        ...
