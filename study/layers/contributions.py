"""Which dimensions a layer classifier reads a layer from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays import Float64, Int64
from .classifier import LayerClassifier

N_LARGEST = 10
"""Dimensions of a layer that the JSON names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """Shares of the weights of each layer, in standardised units.

    Attributes:
        shares: |w| / Σ|w|, a sum of 1 for each layer; 0 where a layer has no weights at all.
        signs: Of the weights: whether a larger value speaks for the layer or against it.
        n50: Fewest dimensions that hold half of a layer's shares.
        n90: Fewest that hold nine tenths.
    """

    layers: tuple[int, ...]
    shares: Float64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    signs: Int64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    n50: tuple[int, ...]
    n90: tuple[int, ...]

    @property
    def max_share(self) -> tuple[float, ...]:
        """Of each layer, its largest share."""
        return tuple(self.shares.max(axis=1).tolist())

    def ranked(self) -> Int64[np.ndarray, " dim"]:
        """Dimensions, counted from 0, by their mean share over the layers, largest first."""
        return np.argsort(-self.shares.mean(axis=0), kind="stable")

    def to_json(self) -> dict[str, Any]:
        return {
            "layers": list(self.layers),
            "n50": list(self.n50),
            "n90": list(self.n90),
            "max_share": list(self.max_share),
            "largest": [self._largest(i) for i in range(len(self.layers))],
        }

    def _largest(self, index: int) -> list[dict[str, Any]]:
        """One layer's dimensions of largest share; dimensions count from 0."""
        shares, signs = self.shares[index], self.signs[index]
        return [
            {"dim": int(j), "share": float(shares[j]), "sign": int(signs[j])}
            for j in np.argsort(-shares, kind="stable")[:N_LARGEST]
        ]


def contributions(classifier: LayerClassifier) -> Contributions:
    """Each dimension's share in telling each layer from the others.

    Raw weights would rank dimensions by how small their spread is; these are in units of it.
    """
    sizes = np.abs(classifier.weights)
    totals = sizes.sum(axis=1, keepdims=True)
    shares = sizes / np.where(totals > 0, totals, 1.0)
    return Contributions(
        layers=classifier.layers,
        shares=shares,
        signs=np.sign(classifier.weights).astype(np.int64),
        n50=tuple(dims_holding(layer, 0.5) for layer in shares),
        n90=tuple(dims_holding(layer, 0.9) for layer in shares),
    )


def dims_holding(shares: Float64[np.ndarray, " dim"], portion: float) -> int:
    """Fewest dimensions whose shares add up to a portion of them all."""
    cumulated = np.cumsum(np.sort(shares)[::-1])
    reached = np.flatnonzero(cumulated >= portion * cumulated[-1] - 1e-12)
    return int(reached[0]) + 1
