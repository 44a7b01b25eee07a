"""Dense groups of fingerprints, for a family of any size.

Distance is the chord √(2 − 2·score) between two models as points of the unit sphere, with the
scores that find-similar and eval show. Nothing is read from a map.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64, Int64
from ..labelled import WHOLE_FAMILY, LabelledModels
from ..scoring.cohort import id_digest
from .hierarchy import BLOCK, NOISE, SAME_SCORE, Distances, hdbscan

AXES = 50
"""Principal axes that stand for the vectors of a family above `WHOLE_FAMILY` models."""

SAMPLE = 20_000
"""Models that HDBSCAN sees of a larger family: its time grows with their square."""

STRAYS = 0.05
"""Share of a cluster's own members whose distance from the others says nothing about it."""

CONFIDENCE = 0.95
"""With which a joining point is no farther from its cluster than the last of those."""


def default_min_size(n_models: int) -> int:
    """Fewest models of a cluster: √n/4, at least 3; 3 of 100 models, 16 of 4,000."""
    return max(3, round(math.sqrt(n_models) / 4))


def find_clusters(family: LabelledModels, min_size: int) -> Int64[np.ndarray, " models"]:
    """A cluster's number for every model, or `NOISE`: the largest is 0, then by first id.

    The order of the models does not matter. Above `WHOLE_FAMILY` models distances are those
    of `AXES` principal axes; above `SAMPLE`, that many picked by their ids are clustered, and
    another one joins its nearest one's cluster where it is as near as the cluster's members
    are to each other (`_joining_cosine`).
    """
    order = np.array(sorted(range(len(family.ids)), key=family.ids.__getitem__), dtype=np.int64)
    if len(order) < 2 * min_size:
        numbers = np.full(len(order), NOISE, dtype=np.int64)
    elif len(order) <= WHOLE_FAMILY:
        scores = family.unrounded_between(order, order)
        # exactly symmetric, and 0 on the diagonal
        chords = np.sqrt(np.maximum(2.0 - (scores + scores.T), 0.0))
        np.fill_diagonal(chords, 0.0)
        numbers = hdbscan(lambda rows: chords[rows], len(order), min_size)
    else:
        numbers = _in_principal_axes(family, order, min_size)
    codes = np.empty_like(numbers)
    codes[order] = _by_size(numbers)
    return codes


def _in_principal_axes(
    family: LabelledModels, order: Int64[np.ndarray, " models"], min_size: int
) -> Int64[np.ndarray, " models"]:
    """Clusters of models in `order`, in few dimensions and from a sample of them."""
    from sklearn.decomposition import PCA

    places = np.arange(len(order))
    if len(order) > SAMPLE:
        hashes = [id_digest(family.ids[row]) for row in order.tolist()]
        places = np.array(sorted(sorted(places.tolist(), key=hashes.__getitem__)[:SAMPLE]))
    sample = family.vectors[order[places]].astype(np.float32)
    pca = PCA(n_components=AXES, svd_solver="randomized", random_state=0).fit(sample)
    points = np.concatenate(
        [
            pca.transform(family.vectors[order[start : start + BLOCK]].astype(np.float32))
            for start in range(0, len(order), BLOCK)
        ]
    ).astype(np.float64)
    # strangers have little of any axis: left short, they would lie close together
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    smallest = max(2, round(min_size * len(places) / len(order)))
    sampled = points[places]
    numbers = hdbscan(_chords_among(sampled), len(sampled), smallest)
    codes = np.full(len(order), NOISE, dtype=np.int64)
    codes[places] = numbers
    rest = np.setdiff1d(np.arange(len(order)), places)
    codes[rest] = _join(points[rest], sampled, numbers)
    return codes


def _chords_among(points: Float64[np.ndarray, "points axes"]) -> Distances:
    """Chords of unit points, computed row by row."""

    def chords(rows: Int64[np.ndarray, " rows"]) -> Float64[np.ndarray, "rows points"]:
        squares = points[rows] @ points.T
        np.subtract(2.0, np.multiply(squares, 2.0, out=squares), out=squares)
        np.maximum(squares, 0.0, out=squares)
        squares[np.arange(len(rows)), rows] = 0.0
        distances: Float64[np.ndarray, "rows points"] = np.sqrt(squares, out=squares)
        return distances

    return chords


def _join(
    points: Float64[np.ndarray, "points axes"],
    sample: Float64[np.ndarray, "sample axes"],
    numbers: Int64[np.ndarray, " sample"],
) -> Int64[np.ndarray, " points"]:
    """The cluster of each point's nearest of the sample, where it is near enough."""
    codes = np.full(len(points), NOISE, dtype=np.int64)
    least = np.array(
        [_joining_cosine(sample[numbers == code]) for code in range(numbers.max() + 1)]
    )
    if not len(least):
        return codes
    for start in range(0, len(points), BLOCK):
        cosines = points[start : start + BLOCK] @ sample.T
        code = numbers[cosines.argmax(axis=1)]
        near = (code != NOISE) & (cosines.max(axis=1) >= least[code] - SAME_SCORE)
        codes[start : start + BLOCK][near] = code[near]
    return codes


def _joining_cosine(members: Float64[np.ndarray, "points axes"]) -> float:
    """Return the cosine with its nearest member from which a point joins their cluster.

    One member more or less, at whatever distance, moves it by one rank among the members.
    """
    nearest = np.empty(len(members))
    for start in range(0, len(members), BLOCK):
        cosines = members[start : start + BLOCK] @ members.T
        own = np.arange(len(cosines))
        cosines[own, start + own] = -1.0
        nearest[start : start + BLOCK] = cosines.max(axis=1)
    return _bounded_quantile(nearest)


def _bounded_quantile(sample: Float64[np.ndarray, " sample"]) -> float:
    """Return an upper bound of the quantile `STRAYS` with `CONFIDENCE`, or the largest value.

    An order statistic, whatever the distribution (David, Nagaraja 2003, section 7.1).
    """
    from scipy.stats import binom

    return float(np.sort(sample)[int(binom.ppf(CONFIDENCE, len(sample), STRAYS))])


def _by_size(numbers: Int64[np.ndarray, " models"]) -> Int64[np.ndarray, " models"]:
    """The same clusters, numbered by size, then by their first model."""
    values, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    ranked = sorted(
        (-count, place, value)
        for value, place, count in zip(values, first, counts, strict=True)
        if value != NOISE
    )
    codes = np.full(len(numbers), NOISE, dtype=np.int64)
    for code, (_, _, value) in enumerate(ranked):
        codes[numbers == value] = code
    return codes
