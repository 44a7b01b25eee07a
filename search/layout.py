"""Where the models of a family stand on a map: two coordinates each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from ..arrays import Float64, Int64, Shaped
from .layout_axes import Axes, gram_axes, sampled_axes
from .layout_landmarks import choose_landmarks, place_among
from .layout_neighbours import Start, place_by_tsne, place_by_umap, require_umap

Method = Literal["auto", "pca", "tsne", "umap"]
METHODS: tuple[Method, ...] = get_args(Method)

FEWEST_NEIGHBOURS = 5
"""Models below which a neighbourhood is everybody, and its layout shows only its start."""

EVERY_PAIR = 4_000
"""Models up to which every pair's similarity is held (128 MB) and `auto` places them all alike."""

LARGEST_TSNE = 20_000
"""Models that `tsne` places all alike, in minutes; beyond, it too goes by landmarks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A map of a family. For looking at: no number is to be computed from it.

    Attributes:
        method: What made it; `pca` also where too few or only equal models asked for another.
        coordinates: Centred, in units of the method.
        explained: Share of the variance along each axis, for PCA.
        landmarks: Models that t-SNE placed, the others among them; None = all alike.
    """

    method: Literal["pca", "tsne", "umap"]
    coordinates: Float64[np.ndarray, "models 2"] = field(compare=False)
    explained: tuple[float, float] | None = None
    landmarks: int | None = None

    def __post_init__(self) -> None:
        self.coordinates.flags.writeable = False


def place_models(
    ids: Sequence[str],
    vectors: Shaped[np.ndarray, "models dim"],
    method: Method = "auto",
    *,
    scores: Float64[np.ndarray, "models models"] | None = None,
    seed: int = 0,
) -> Placement:
    """Two coordinates a model, the same for the same models, seed and method.

    Neither the order of models nor the number of threads matters: rows are taken in order of
    id, and sums in one thread. `auto` is t-SNE. Identical models share a spot, or nearly: a
    jitter would draw a difference that is not there.

    Args:
        scores: Every pair's cosine, where there is a better estimate than the vectors'; read
            for families of up to `EVERY_PAIR` models.

    Raises:
        RequestError: `umap` without umap-learn.

    Peak beside the input: twice the pairs' similarities up to `EVERY_PAIR` models; beyond,
    `SAMPLE` models in float32 and 50 numbers a model.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if method == "umap":
        require_umap()
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    with threadpool_limits(limits=1):
        if len(ids) <= EVERY_PAIR:
            placed = _place_all(vectors[order], method, _ordered(scores, order), seed)
        else:
            placed = _place_many([ids[row] for row in order], vectors, order, method, seed)
    coordinates = np.empty_like(placed.coordinates)
    coordinates[order] = placed.coordinates
    return Placement(
        method=placed.method,
        coordinates=coordinates,
        explained=placed.explained,
        landmarks=placed.landmarks,
    )


def _ordered(
    scores: Float64[np.ndarray, "models models"] | None, order: Int64[np.ndarray, " models"]
) -> Float64[np.ndarray, "models models"] | None:
    return None if scores is None else scores[np.ix_(order, order)]


def _place_all(
    vectors: Shaped[np.ndarray, "models dim"],
    method: Method,
    scores: Float64[np.ndarray, "models models"] | None,
    seed: int,
) -> Placement:
    """From every pair's similarity."""
    vectors = vectors.astype(np.float64)
    gram = vectors @ vectors.T if scores is None else scores
    axes = gram_axes(gram, vectors)
    if method == "pca" or len(vectors) < FEWEST_NEIGHBOURS or axes.is_one_spot:
        return _pca(axes)
    start = Start(distances=_distances(gram), points=axes.points)
    if method == "umap":
        return _neighbourhoods("umap", place_by_umap(start, seed))
    return _neighbourhoods("tsne", place_by_tsne(start, seed))


def _place_many(
    ids: Sequence[str],
    vectors: Shaped[np.ndarray, "models dim"],
    order: Int64[np.ndarray, " models"],
    method: Method,
    seed: int,
) -> Placement:
    """From the main axes of the family, where pairs are too many."""
    hashed = _by_hash(ids)
    axes = sampled_axes(vectors, order, hashed, seed)
    if method == "pca" or axes.is_one_spot:
        return _pca(axes)
    if method == "umap":
        return _neighbourhoods("umap", place_by_umap(Start(points=axes.points), seed))
    if method == "tsne" and len(ids) <= LARGEST_TSNE:
        return _neighbourhoods("tsne", place_by_tsne(Start(points=axes.points), seed))
    chosen = choose_landmarks(axes.points, hashed, EVERY_PAIR)
    places = place_by_tsne(Start(points=axes.points[chosen]), seed)
    return _neighbourhoods("tsne", place_among(axes.points, chosen, places), landmarks=len(chosen))


def _pca(axes: Axes) -> Placement:
    points = axes.points[:, :2].astype(np.float64)
    return Placement(method="pca", coordinates=points, explained=axes.explained)


def _neighbourhoods(
    method: Literal["tsne", "umap"],
    coordinates: Float64[np.ndarray, "models 2"],
    landmarks: int | None = None,
) -> Placement:
    return Placement(
        method=method, coordinates=coordinates - coordinates.mean(axis=0), landmarks=landmarks
    )


def _distances(gram: Float64[np.ndarray, "models models"]) -> Float64[np.ndarray, "models models"]:
    """Euclidean, from inner products: √(2 − 2 cos) of unit vectors."""
    squares = np.diag(gram)
    distances = squares[:, None] + squares[None, :] - gram - gram.T
    np.maximum(distances, 0.0, out=distances)
    np.fill_diagonal(distances, 0.0)
    root: Float64[np.ndarray, "models models"] = np.sqrt(distances, out=distances)
    return root


def _by_hash(ids: Sequence[str]) -> Int64[np.ndarray, " models"]:
    """Rows in the order of their ids' SHA-256: any first so many are a fair sample."""
    digests = [hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest() for id in ids]
    return np.array(sorted(range(len(ids)), key=digests.__getitem__), dtype=np.int64)
