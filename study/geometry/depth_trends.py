"""Whether intrinsic dimension rises or falls with depth, and whether the estimators agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import rankdata

from ...arrays import Float64
from ..report_json import JsonRecord
from .intrinsic_dimension import Estimator, IntrinsicDimension
from .text_blocks import CONFIDENCE, resampled

FEWEST_LAYERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthTrend(JsonRecord):
    """Spearman's correlation of depth and dimension, by one estimator.

    Attributes:
        layers: Layers with a number.
        low, high: 95 % over fresh texts (`resampled`); None without errors of the dimensions.
    """

    estimator: Estimator
    layers: int
    spearman: float
    low: float | None
    high: float | None

    @property
    def sign(self) -> int | None:
        """1 or −1 where the interval omits zero, 0 where it holds zero; None without one."""
        if self.low is None or self.high is None:
            return None
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


def depth_trends(
    layers: Sequence[Sequence[IntrinsicDimension]], *, resamples: int, seed: int
) -> tuple[DepthTrend, ...]:
    """By estimator; nothing for an estimator with numbers for fewer than four layers."""
    found = []
    for answers in zip(*layers, strict=True):
        known = [(depth, a) for depth, a in enumerate(answers) if a.dimension is not None]
        if len(known) < FEWEST_LAYERS:
            continue
        depths = np.array([depth for depth, _ in known], dtype=np.float64)
        values = np.array([a.dimension for _, a in known], dtype=np.float64)
        low = high = None
        if all(a.blocks for _, a in known):
            blocks = np.array([a.blocks for _, a in known], dtype=np.float64)
            drawn = _spearman(depths, resampled(values, blocks, resamples, seed))
            tail = (1 - CONFIDENCE) / 2
            low, high = map(float, np.quantile(drawn, (tail, 1 - tail)))
        found.append(
            DepthTrend(
                estimator=answers[0].estimator,
                layers=len(known),
                spearman=float(_spearman(depths, values[None])[0]),
                low=low,
                high=high,
            )
        )
    return tuple(found)


def trends_disagree(trends: Sequence[DepthTrend]) -> bool:
    """Whether the interval of one estimator has a sign that the interval of another has not."""
    known = [trend for trend in trends if trend.sign is not None]
    return any(a.sign != b.sign for a, b in combinations(known, 2))


def _spearman(
    depths: Float64[np.ndarray, " layers"], values: Float64[np.ndarray, "draws layers"]
) -> Float64[np.ndarray, " draws"]:
    """Of every row with depth; 0 for a row of equal values."""
    ranks = rankdata(values, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    own = rankdata(depths) - (len(depths) + 1) / 2
    lengths = np.sqrt((ranks**2).sum(axis=1) * (own**2).sum())
    answer: Float64[np.ndarray, " draws"] = np.divide(
        ranks @ own, lengths, out=np.zeros(len(ranks)), where=lengths > 0
    )
    return answer
