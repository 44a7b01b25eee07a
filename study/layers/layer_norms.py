"""Norms of the vectors of each layer, and the principal components of all layers together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.linalg import eigh
from scipy.stats import linregress, spearmanr, t

from ...arrays import Float32, Float64, Int64
from ...results import JsonRecord
from .layer_rows import LayerRows

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates

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
        return float(np.exp(self.intercept + layer * np.log(self.rate)))

    def to_json(self) -> dict[str, Any]:
        more = {"verdict": self.verdict, "exponential": self.exponential}
        return JsonRecord.to_json(self) | more


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


Tally = list[Float64[np.ndarray, "3 layers"]]
"""Of each batch the smallest norm of each layer, their sum and the largest."""


def tallied(
    states: Iterable[TokenStates], tally: Tally, *, first_layer: int
) -> Iterator[TokenStates]:
    """The same batches, whose norms are added to the tally after they were used and checked.
    Peak: one layer of a batch in float64."""
    for batch in states:
        yield batch
        if batch.hidden.shape[1]:
            norms = np.stack([row_norms(vectors) for vectors in batch.hidden[first_layer:]])
            tally.append(np.stack([norms.min(axis=1), norms.sum(axis=1), norms.max(axis=1)]))


def layer_norms(tally: Tally, layers: tuple[int, ...], n_tokens: int) -> LayerNorms:
    smallest, total, largest = np.stack(tally, axis=1)  # (batches, layers) each
    mean = tuple((total.sum(axis=0) / n_tokens).tolist())
    return LayerNorms(
        layers=layers,
        smallest=tuple(smallest.min(axis=0).tolist()),
        mean=mean,
        largest=tuple(largest.max(axis=0).tolist()),
        n_tokens=n_tokens,
        growth=fit_growth(layers, mean),
    )


def fit_growth(layers: Sequence[int], mean_norms: Sequence[float]) -> Growth | None:
    """The line through (layer, ln mean norm); None for fewer than three layers or a norm of 0."""
    if len(layers) < 3 or min(mean_norms) <= 0:
        return None
    x = np.asarray(layers, dtype=np.float64)
    y = np.log(np.asarray(mean_norms, dtype=np.float64))
    if np.ptp(y) <= SAME:
        return Growth(rate=1.0, rate_interval=(1.0, 1.0), intercept=float(y.mean()), r2=0.0)
    line = linregress(x, y)
    slope, margin = line.slope, t.ppf(0.5 + CONFIDENCE / 2, len(x) - 2) * line.stderr + SAME
    return Growth(
        rate=float(np.exp(slope)),
        rate_interval=(float(np.exp(slope - margin)), float(np.exp(slope + margin))),
        intercept=float(line.intercept),
        r2=float(line.rvalue**2),
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


N_AXES = 8

SAME_SIZE = 1e-5
"""Entries that differ by less than this share count as equal: processors round differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPca(JsonRecord):
    """Rows and layer centroids on the principal axes of all layers.

    Attributes:
        unit_norm: Whether every row was scaled to length 1 first.
        axes: Orthonormal, by falling variance; the largest entry of each axis is positive,
            the first of equally large ones.
        explained: Share of all variance on each axis, 0…1.
        coordinates, centroids: Of the rows, and of the layers.
        steps: Distance of each layer's centroid from that of the layer before.
        depth_correlation: Spearman's ρ of the first coordinate and the layer; None where
            either does not vary.
    """

    unit_norm: bool
    layers: tuple[int, ...]
    axes: Float64[np.ndarray, "k dim"] = field(compare=False, repr=False)
    explained: tuple[float, ...]
    coordinates: Float32[np.ndarray, "rows k"] = field(compare=False, repr=False)
    layer: Int64[np.ndarray, " rows"] = field(compare=False, repr=False)
    centroids: Float64[np.ndarray, "layers k"] = field(compare=False)
    steps: tuple[float, ...]
    depth_correlation: float | None

    @property
    def path_length(self) -> float:
        """Length of the path through the centroids of all layers in turn."""
        return float(sum(self.steps))

    def to_json(self) -> dict[str, Any]:
        document = JsonRecord.to_json(self)
        correlation = document.pop("depth_correlation")
        return document | {"path_length": self.path_length, "depth_correlation": correlation}


def layer_pca(rows: LayerRows, *, unit_norm: bool = False, n_axes: int = N_AXES) -> LayerPca:
    """The first axes of the rows of all layers, exactly: eigenvectors of their covariance.

    Peak beside the rows: these in float64, and a dim × dim matrix.
    """
    if unit_norm:
        rows = rows.with_vectors(unit_rows(rows.vectors))
    n_axes = min(n_axes, rows.dim, len(rows.vectors))
    means = rows.layer_means()
    mean = means.mean(axis=0)  # every layer has a row of each token
    centred = rows.vectors - mean
    gram = centred.T @ centred
    values, vectors = eigh(gram, subset_by_index=[rows.dim - n_axes, rows.dim - 1])
    axes = _signed(vectors[:, ::-1].T)
    explained = np.clip(values[::-1], 0.0, None) / (float(np.trace(gram)) or 1.0)
    coordinates = centred @ axes.T
    centroids = (means - mean) @ axes.T
    first = coordinates[:, 0]
    varies = np.ptp(first) > 0 and np.ptp(rows.layer) > 0
    return LayerPca(
        unit_norm=unit_norm,
        layers=rows.layers,
        axes=axes,
        explained=tuple(explained.tolist()),
        coordinates=coordinates.astype(np.float32),
        layer=rows.layer,
        centroids=centroids,
        steps=tuple(np.linalg.norm(np.diff(means, axis=0), axis=1).tolist()),
        depth_correlation=float(spearmanr(first, rows.layer).statistic) if varies else None,
    )


def _signed(axes: Float64[np.ndarray, "k dim"]) -> Float64[np.ndarray, "k dim"]:
    """The axes with the signs that make the largest entry of each positive."""
    sizes = np.abs(axes)
    largest = (sizes >= sizes.max(axis=1, keepdims=True) * (1 - SAME_SIZE)).argmax(axis=1)
    signs = np.sign(axes[np.arange(len(axes)), largest])
    return np.ascontiguousarray(axes * signs[:, None])
