"""How long the vectors of each layer are, and whether that grows exponentially with depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays import Float32, Float64
from ...errors import StudyError
from ..report_json import JsonRecord

EXPONENTIAL_R2 = 0.9
"""R² from which growth is called exponential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(JsonRecord):
    """Least squares of ln(mean norm) on the layer.

    Attributes:
        rate: e^slope: the factor by which the mean norm changes from layer to layer.
        intercept: ln of the fitted mean norm at layer 0.
        r2: Share of the variance of ln(mean norm) explained; 0 where it does not vary.
    """

    rate: float
    intercept: float
    r2: float

    @property
    def exponential(self) -> bool:
        """Whether the line fits: R² ≥ .9."""
        return self.r2 >= EXPONENTIAL_R2

    def at(self, layer: int) -> float:
        """The fitted mean norm."""
        return float(np.exp(self.intercept + layer * np.log(self.rate)))

    def to_json(self) -> dict[str, Any]:
        """The fields, and whether growth is exponential."""
        return JsonRecord.to_json(self) | {"exponential": self.exponential}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorms(JsonRecord):
    """L2 norms of the vectors of each layer.

    Attributes:
        n_tokens: All tokens, not a sample.
        growth: None with fewer than three layers, or where a mean norm is 0.
    """

    layers: tuple[int, ...]
    smallest: tuple[float, ...] = field(metadata={"key": "min"})
    mean: tuple[float, ...]
    largest: tuple[float, ...] = field(metadata={"key": "max"})
    n_tokens: int
    growth: Growth | None


@dataclass(slots=True)
class NormTally:
    """The smallest, mean and largest norm of each layer, added up batch by batch."""

    first_layer: int = 0
    n_tokens: int = 0
    smallest: Float64[np.ndarray, " layers"] | float = np.inf
    total: Float64[np.ndarray, " layers"] | float = 0.0
    largest: Float64[np.ndarray, " layers"] | float = 0.0

    def add(self, hidden: Float32[np.ndarray, "layers tokens dim"]) -> None:
        """Add a batch. Peak: one layer of it in float64."""
        if hidden.shape[1]:
            norms = np.stack([row_norms(vectors) for vectors in hidden[self.first_layer :]])
            self.smallest = np.minimum(self.smallest, norms.min(axis=1))
            self.total = self.total + norms.sum(axis=1)
            self.largest = np.maximum(self.largest, norms.max(axis=1))
            self.n_tokens += hidden.shape[1]

    def result(self) -> LayerNorms:
        if not self.n_tokens:
            raise StudyError("layers: no tokens to measure norms of; give texts with words")
        mean = tuple((np.asarray(self.total) / self.n_tokens).tolist())
        layers = tuple(range(self.first_layer, self.first_layer + len(mean)))
        return LayerNorms(
            layers=layers,
            smallest=tuple(np.asarray(self.smallest).tolist()),
            mean=mean,
            largest=tuple(np.asarray(self.largest).tolist()),
            n_tokens=self.n_tokens,
            growth=fit_growth(layers, mean),
        )


def fit_growth(layers: Sequence[int], mean_norms: Sequence[float]) -> Growth | None:
    """The line through (layer, ln mean norm); None for fewer than three layers or a norm of 0."""
    if len(layers) < 3 or min(mean_norms) <= 0:
        return None
    x = np.asarray(layers, dtype=np.float64)
    y = np.log(np.asarray(mean_norms, dtype=np.float64))
    slope = float((x - x.mean()) @ (y - y.mean()) / ((x - x.mean()) @ (x - x.mean())))
    intercept = float(y.mean() - slope * x.mean())
    total = float((y - y.mean()) @ (y - y.mean()))
    left = float(np.sum((y - intercept - slope * x) ** 2))
    varies = total > len(x) * 1e-24  # relative differences above 1e-12, float64's rounding
    return Growth(
        rate=float(np.exp(slope)), intercept=intercept, r2=1.0 - left / total if varies else 0.0
    )


def row_norms(vectors: Float32[np.ndarray, "rows dim"]) -> Float64[np.ndarray, " rows"]:
    """L2 norms, in float64."""
    norms: Float64[np.ndarray, " rows"] = np.sqrt(
        np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    )
    return norms


def unit_rows(vectors: Float32[np.ndarray, "rows dim"]) -> Float32[np.ndarray, "rows dim"]:
    """x / ‖x‖; zero rows stay zero."""
    norms = row_norms(vectors)
    norms[norms == 0] = 1.0
    scaled: Float32[np.ndarray, "rows dim"] = (vectors / norms[:, None]).astype(np.float32)
    return scaled
