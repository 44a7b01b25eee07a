"""A large family's map: t-SNE of some models, and all others placed among them."""

from __future__ import annotations

import numpy as np

from ..arrays import Float, Float64, Int64

NEAREST = 15
PERPLEXITY = 5.0
"""Of the few landmarks that place a model, as openTSNE's default for new points."""

HALVINGS = 50
AT_ONCE = 4_096


def choose_landmarks(
    points: Float[np.ndarray, "models axes"], hashed: Int64[np.ndarray, " models"], n_landmarks: int
) -> Int64[np.ndarray, " landmarks"]:
    """Rows, ascending: half of them the first of `hashed`, half from where those are far.

    The second half is one round of k-means‖ (Bahmani et al. 2012), without replacement: with
    chances as the squared distance to the nearest of the first, so that small groups which the
    sample passed over get landmarks too. Its dice are the ranks in `hashed`.
    """
    first, rest = hashed[: n_landmarks // 2], hashed[n_landmarks // 2 :]
    squares, _ = _nearest(points[rest], points[first], 1)
    uniform = (np.arange(len(rest)) + 0.5) / len(rest)
    # the smallest of exponential variables at these rates (Efraimidis, Spirakis 2006)
    waits = -np.log1p(-uniform) / np.maximum(squares[:, 0], 1e-30)
    soonest = np.argsort(waits, kind="stable")[: n_landmarks - len(first)]
    chosen: Int64[np.ndarray, " landmarks"] = np.sort(np.concatenate([first, rest[soonest]]))
    return chosen


def place_among(
    points: Float[np.ndarray, "models axes"],
    landmarks: Int64[np.ndarray, " landmarks"],
    places: Float64[np.ndarray, "landmarks 2"],
) -> Float64[np.ndarray, "models 2"]:
    """Each model at the mean of its `NEAREST` landmarks, weighted by their t-SNE affinities.

    The placement that openTSNE starts new points from (Poličar et al. 2019, section 2),
    at perplexity 5 and not optimised any further. Landmarks stay where they are.
    """
    coordinates = np.empty((len(points), 2))
    for begin in range(0, len(points), AT_ONCE):
        squares, nearest = _nearest(points[begin : begin + AT_ONCE], points[landmarks], NEAREST)
        weights = _affinities(squares)
        coordinates[begin : begin + AT_ONCE] = np.einsum("mk,mkc->mc", weights, places[nearest])
    coordinates[landmarks] = places
    return coordinates


def _nearest(
    points: Float[np.ndarray, "models axes"], landmarks: Float[np.ndarray, "landmarks axes"], k: int
) -> tuple[Float64[np.ndarray, "models k"], Int64[np.ndarray, "models k"]]:
    """Squared distances to the nearest landmarks, and which they are."""
    lengths = np.square(landmarks).sum(axis=1)
    squares = np.empty((len(points), k))
    nearest = np.empty((len(points), k), dtype=np.int64)
    for begin in range(0, len(points), AT_ONCE):
        block = points[begin : begin + AT_ONCE]
        distances = np.square(block).sum(axis=1)[:, None] + lengths - 2 * block @ landmarks.T
        found = np.argpartition(distances, k - 1, axis=1)[:, :k]
        nearest[begin : begin + AT_ONCE] = found
        squares[begin : begin + AT_ONCE] = np.take_along_axis(distances, found, axis=1)
    return np.maximum(squares, 0.0), nearest


def _affinities(squares: Float64[np.ndarray, "models k"]) -> Float64[np.ndarray, "models k"]:
    """Gaussian weights of each row that sum to 1 and have `PERPLEXITY` (t-SNE's equation 1)."""
    beyond = squares - squares.min(axis=1, keepdims=True)
    scale = np.maximum(beyond.mean(axis=1, keepdims=True), 1e-30)
    low, high = np.full(scale.shape, -20.0), np.full(scale.shape, 20.0)  # ln of the precision
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        weights: Float64[np.ndarray, "models k"] = np.exp(-beyond / scale * np.exp(middle))
        weights /= weights.sum(axis=1, keepdims=True)
        entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=1, keepdims=True)
        wide = entropy > np.log(PERPLEXITY)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return weights
