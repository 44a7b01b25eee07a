"""The dimensions that the layer classifier reads, and how its weights spread over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays import Float64, Int64
from ..report_json import JsonRecord
from .layer_classifier import LayerClassifier

CURVE_DIMS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Where the JSON reads the contribution curve."""

N_LARGEST = 10
"""Dimensions of a layer that the JSON names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions(JsonRecord):
    """The shares of dimensions in the weights of each layer, in standardised units.

    Attributes:
        shares: |w| / Σ|w|, a sum of 1 for each layer; 0 where a layer has no weights at all.
        signs: Signs of the weights: whether a larger value speaks for the layer or against it.
        n50: The smallest number of dimensions that hold half of a layer's shares.
        n90: The same for nine tenths.
    """

    layers: tuple[int, ...]
    shares: Float64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    signs: Int64[np.ndarray, "layers dim"] = field(compare=False, repr=False)
    n50: tuple[int, ...]
    n90: tuple[int, ...]

    @property
    def max_share(self) -> tuple[float, ...]:
        """The largest share of each layer."""
        return tuple(self.shares.max(axis=1).tolist())

    def ranked(self) -> Int64[np.ndarray, " dim"]:
        """Dimensions, counted from 0, by their mean share over the layers, largest first."""
        return np.argsort(-self.shares.mean(axis=0), kind="stable")

    def curve(self) -> Float64[np.ndarray, "layers dim"]:
        """The share of each layer's k largest dimensions, for k from 1 to all of them."""
        return np.cumsum(-np.sort(-self.shares, axis=1), axis=1)

    def to_json(self) -> dict[str, Any]:
        """Everything but the shares; the dimensions of largest share, which count from 0; and the
        contribution curve, the share of the k largest dimensions, at some k."""
        largest = [
            [
                {"dim": int(j), "share": float(shares[j]), "sign": int(signs[j])}
                for j in np.argsort(-shares, kind="stable")[:N_LARGEST]
            ]
            for shares, signs in zip(self.shares, self.signs, strict=True)
        ]
        dim = self.shares.shape[1]
        dims = sorted({k for k in CURVE_DIMS if k < dim} | {dim})
        curve = {"dims": dims, "share": self.curve()[:, np.array(dims) - 1].tolist()}
        extra = {"max_share": list(self.max_share), "largest": largest, "curve": curve}
        return JsonRecord.to_json(self) | extra


def contributions(classifier: LayerClassifier) -> Contributions:
    """Each dimension's share in telling each layer from the others.

    Weights are in standardised units: raw weights would be largest where the spread is smallest.
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
    """The smallest number of dimensions whose shares add up to a portion of all."""
    cumulated = np.cumsum(np.sort(shares)[::-1])
    reached = np.flatnonzero(cumulated >= portion * cumulated[-1] - 1e-12)
    return int(reached[0]) + 1
