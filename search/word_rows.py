"""Models as rows over words of one sort, that are compared with one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..arrays import Float64, Int64

Rows = Int64[np.ndarray, " rows"]
Products = Float64[np.ndarray, "models others"]

SHRINKAGE = 2.0
"""Weight of "nothing in common" in the mean of a family, in models."""

ABSENT = -1
"""Code of a model whose words are not known, or cannot be compared with the others'."""


class WordRows(ABC):
    """`codes`: places among the kinds of rows, or `ABSENT`; `related`: deviations above strangers
    between which more says nothing."""

    related: ClassVar[tuple[float, float]]
    codes: Int64[np.ndarray, " models"]

    @property
    def are_here(self) -> Float64[np.ndarray, " models"]:
        """1 of a model whose words are known, else 0."""
        return np.asarray(self.codes != ABSENT, dtype=np.float64)

    @property
    def kinds(self) -> Int64[np.ndarray, " models"]:
        """Places among the kinds; of absent ones the first."""
        return np.asarray(np.maximum(self.codes, 0))

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Any]) -> WordRows: ...

    def known(self, products: Products) -> WordRows:
        """The same rows, whose products with one another may be looked up."""
        return self

    @abstractmethod
    def take(self, rows: Rows) -> WordRows: ...

    @abstractmethod
    def products(self, other: Any) -> Products:
        """The cosines of every pair, 0 of absent ones: the same numbers whatever else there is."""
