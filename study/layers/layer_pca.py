"""Principal components of all layers together, so that layers share one set of axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.stats import spearmanr

from ...arrays import Float32, Float64, Int64
from ..report_json import JsonRecord
from .layer_norms import unit_rows
from .layer_rows import LayerRows

N_AXES = 8
BLOCK_ROWS = 2_048
"""Rows turned to float64 at a time."""

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
        coordinates: Of the rows.
        centroids: Of the layers.
        steps: Distance of each layer's centroid from that of the layer before.
        plane_steps: The same distance on the first two axes, which a plot shows.
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
    plane_steps: tuple[float, ...]
    depth_correlation: float | None

    @property
    def path_length(self) -> float:
        """Length of the path through the centroids of all layers in turn."""
        return float(sum(self.steps))

    def to_json(self) -> dict[str, Any]:
        """Everything but axes and rows, and the path length."""
        document = JsonRecord.to_json(self)
        correlation = document.pop("depth_correlation")
        return document | {"path_length": self.path_length, "depth_correlation": correlation}


def layer_pca(rows: LayerRows, *, unit_norm: bool = False, n_axes: int = N_AXES) -> LayerPca:
    """The first axes of the rows of all layers, exactly: eigenvectors of their covariance.

    Peak beside the rows: a dim × dim matrix in float64 and a block of rows, with `unit_norm` a
    copy of the rows.
    """
    if unit_norm:
        rows = rows.with_vectors(unit_rows(rows.vectors))
    n_axes = min(n_axes, rows.dim, len(rows.vectors))
    means = rows.layer_means()
    mean = means.mean(axis=0)  # every layer has a row of each token
    gram = np.zeros((rows.dim, rows.dim))
    for block in _blocks(rows):
        block -= mean
        gram += block.T @ block
    values, vectors = eigh(gram, subset_by_index=[rows.dim - n_axes, rows.dim - 1])
    axes = _signed(vectors[:, ::-1].T)
    explained = np.clip(values[::-1], 0.0, None) / (float(np.trace(gram)) or 1.0)
    coordinates = np.concatenate([(block - mean) @ axes.T for block in _blocks(rows)])
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
        steps=_step_lengths(means),
        plane_steps=_step_lengths(centroids[:, :2]),
        depth_correlation=float(spearmanr(first, rows.layer).statistic) if varies else None,
    )


def _blocks(rows: LayerRows) -> Iterator[Float64[np.ndarray, "block dim"]]:
    for start in range(0, len(rows.vectors), BLOCK_ROWS):
        yield rows.vectors[start : start + BLOCK_ROWS].astype(np.float64)


def _signed(axes: Float64[np.ndarray, "k dim"]) -> Float64[np.ndarray, "k dim"]:
    """The axes with the signs that make the largest entry of each positive."""
    sizes = np.abs(axes)
    largest = (sizes >= sizes.max(axis=1, keepdims=True) * (1 - SAME_SIZE)).argmax(axis=1)
    signs = np.sign(axes[np.arange(len(axes)), largest])
    return np.ascontiguousarray(axes * signs[:, None])


def _step_lengths(points: Float64[np.ndarray, "layers k"]) -> tuple[float, ...]:
    return tuple(np.linalg.norm(np.diff(points, axis=0), axis=1).tolist())
