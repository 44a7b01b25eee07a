"""Dense groups of fingerprints: HDBSCAN (Campello, Moulavi, Sander 2013).

Distance is the chord √(2 − 2·score) between two models as points of the unit sphere, with the
scores that find-similar and eval show. Nothing is read from a map.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

from ..precision import LabelledFamily
from ..refine import WHOLE_FAMILY
from .scores import by_hash, scores_between

AXES = 50
"""Principal axes that stand for the vectors of a family above `WHOLE_FAMILY` models."""

SAMPLE = 20_000
"""Models that HDBSCAN sees of a larger family: its time grows with their square, 40 s here."""

BLOCK = 1_000
"""Models that look for the sample's nearest at once."""

NOISE = -1


def default_min_size(n_models: int) -> int:
    """Fewest models of a cluster: √n/4, at least 3; 3 of 100 models, 16 of 4,000."""
    return max(3, round(math.sqrt(n_models) / 4))


def find_clusters(family: LabelledFamily, min_size: int) -> Int64[np.ndarray, " models"]:
    """A cluster's number for every model, or `NOISE`: the largest is 0, then by first id.

    The order of the models does not matter. Above `WHOLE_FAMILY` models distances are those
    of `AXES` principal axes; above `SAMPLE`, that many picked by their ids are clustered, and
    another one joins its nearest one's cluster, no farther from it than its members lie apart.
    """
    order = np.array(sorted(range(len(family.ids)), key=family.ids.__getitem__), dtype=np.int64)
    if len(order) < 2 * min_size:
        found = np.full(len(order), NOISE, dtype=np.int64)
    elif len(order) <= WHOLE_FAMILY:
        chords = _chords(scores_between(family, order, order))
        found = _hdbscan(chords, min_size, metric="precomputed")
    else:
        found = _in_principal_axes(family, order, min_size)
    codes = np.empty_like(found)
    codes[order] = _by_size(found)
    return codes


def _chords(scores: Float64[np.ndarray, "points points"]) -> Float64[np.ndarray, "points points"]:
    """√(2 − 2·score), exactly symmetric and 0 on the diagonal."""
    chords = np.sqrt(np.maximum(2.0 - (scores + scores.T), 0.0))
    np.fill_diagonal(chords, 0.0)
    distances: Float64[np.ndarray, "points points"] = chords
    return distances


def _hdbscan(
    points: Float64[np.ndarray, "points axes"], min_size: int, *, metric: str
) -> Int64[np.ndarray, " points"]:
    from sklearn.cluster import HDBSCAN

    if np.ptp(points) == 0:  # one point many times over: dense, and nothing to part it from
        return np.zeros(len(points), dtype=np.int64)
    made = HDBSCAN(min_cluster_size=min_size, metric=metric, copy=True).fit(points)
    return np.asarray(made.labels_, dtype=np.int64)


def _in_principal_axes(
    family: LabelledFamily, order: Int64[np.ndarray, " models"], min_size: int
) -> Int64[np.ndarray, " models"]:
    """Clusters of models in `order`, in few dimensions and from a sample of them."""
    from sklearn.decomposition import PCA

    places = np.arange(len(order))
    if len(order) > SAMPLE:
        hashes = [by_hash(family.ids[row]) for row in order.tolist()]
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
    found = _hdbscan(points[places], smallest, metric="euclidean")
    codes = np.full(len(order), NOISE, dtype=np.int64)
    codes[places] = found
    rest = np.setdiff1d(np.arange(len(order)), places)
    codes[rest] = _join(points[rest], points[places], found)
    return codes


def _join(
    points: Float64[np.ndarray, "points axes"],
    sample: Float64[np.ndarray, "sample axes"],
    found: Int64[np.ndarray, " sample"],
) -> Int64[np.ndarray, " points"]:
    """The cluster of each point's nearest of the sample, where it is near enough."""
    codes = np.full(len(points), NOISE, dtype=np.int64)
    if not len(points) or found.max() == NOISE:
        return codes
    reach = np.full(found.max() + 1, -1.0)  # the least cosine of a member with its nearest
    for code in range(len(reach)):
        reach[code] = _least_near(sample[found == code])
    for start in range(0, len(points), BLOCK):
        cosines = points[start : start + BLOCK] @ sample.T
        nearest = cosines.argmax(axis=1)
        code = found[nearest]
        near = (code != NOISE) & (cosines.max(axis=1) >= reach[code])
        codes[start : start + BLOCK][near] = code[near]
    return codes


def _least_near(members: Float64[np.ndarray, "points axes"]) -> float:
    """The smallest cosine of a member with its nearest."""
    least = 1.0
    for start in range(0, len(members), BLOCK):
        cosines = members[start : start + BLOCK] @ members.T
        own = np.arange(len(cosines))
        cosines[own, start + own] = -1.0
        least = min(least, float(cosines.max(axis=1).min()))
    return least


def _by_size(found: Int64[np.ndarray, " models"]) -> Int64[np.ndarray, " models"]:
    """The same clusters, numbered by size, then by their first model."""
    numbers, first, counts = np.unique(found, return_index=True, return_counts=True)
    ranked = sorted(
        (-count, place, number)
        for number, place, count in zip(numbers, first, counts, strict=True)
        if number != NOISE
    )
    codes = np.full(len(found), NOISE, dtype=np.int64)
    for code, (_, _, number) in enumerate(ranked):
        codes[found == number] = code
    return codes
