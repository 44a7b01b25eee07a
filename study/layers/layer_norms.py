"""How long the vectors of each layer are, and whether they grow or shrink with depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.stats import t

from ...arrays import Float32, Float64
from ...errors import StudyError
from ..report_json import JsonRecord

EXPONENTIAL_R2 = 0.9
"""R² from which a trend may be called exponential."""

CONFIDENCE = 0.95

SAME = 1e-12
"""Relative differences of mean norms up to this are float64's rounding."""

Verdict = Literal["grow", "shrink", "flat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(JsonRecord):
    """Least squares of ln(mean norm) on the layer.

    Attributes:
        rate: e^slope: the factor by which the mean norm changes from layer to layer.
        rate_interval: 95 % interval of the rate, e^(slope ± t·s.e.) (Draper and Smith 1998,
            section 1.4). It takes the layers' deviations from the line as independent.
        intercept: ln of the fitted mean norm at layer 0.
        r2: Share of the variance of ln(mean norm) explained; 0 where it does not vary.
    """

    rate: float
    rate_interval: tuple[float, float]
    intercept: float
    r2: float

    @property
    def verdict(self) -> Verdict:
        """`flat` where the interval holds 1, which is no change."""
        low, high = self.rate_interval
        if low > 1:
            return "grow"
        return "shrink" if high < 1 else "flat"

    @property
    def exponential(self) -> bool:
        """Whether norms change, and the line fits: R² ≥ .9, and an interval without 1."""
        return self.verdict != "flat" and self.r2 >= EXPONENTIAL_R2

    def at(self, layer: int) -> float:
        """The fitted mean norm."""
        return float(np.exp(self.intercept + layer * np.log(self.rate)))

    def to_json(self) -> dict[str, Any]:
        """The fields, the verdict, and whether the change is exponential."""
        return JsonRecord.to_json(self) | {
            "verdict": self.verdict,
            "exponential": self.exponential,
        }


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
    spread = float((x - x.mean()) @ (x - x.mean()))
    slope = float((x - x.mean()) @ (y - y.mean())) / spread
    intercept = float(y.mean() - slope * x.mean())
    total = float((y - y.mean()) @ (y - y.mean()))
    if total <= len(x) * SAME**2:
        return Growth(rate=1.0, rate_interval=(1.0, 1.0), intercept=float(y.mean()), r2=0.0)
    left = float(np.sum((y - intercept - slope * x) ** 2))
    free = len(x) - 2
    margin = float(t.ppf(0.5 + CONFIDENCE / 2, free)) * np.sqrt(left / free / spread) + SAME
    return Growth(
        rate=float(np.exp(slope)),
        rate_interval=(float(np.exp(slope - margin)), float(np.exp(slope + margin))),
        intercept=intercept,
        r2=1.0 - left / total,
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
