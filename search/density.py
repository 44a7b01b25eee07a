"""Dense groups of fingerprints, for a family of any size, by a HDBSCAN that breaks no ties.

Distance is the chord √(2 − 2·score) between two models as points of the unit sphere, with the
scores that find-similar and eval show. Nothing is read from a map.

HDBSCAN (Campello, Moulavi, Sander 2013) is our own: equal mutual reachability distances are the
rule, not an accident, since a model's core distance is the weight of several of its edges. The
paper removes equal edges together (section 3, step 4.2.1). Libraries, scikit-learn among them,
remove them one by one in the order of an unstable sort, so that a model which bridges two clusters
joins one or the other with the processor's sorting code and the order of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from ..arrays import Float64, Int64
from .family_scores import id_digest
from .labelled import WHOLE_FAMILY, LabelledModels

NOISE = -1

SAME_SCORE = 1e-4
"""Scores closer than this are equal: so well processors agree (docs/reliability.md)."""

FINEST = math.sqrt(2 * SAME_SCORE)
"""Smallest chord that differs from 0."""

SAME_DISTANCE = 1e-9
"""Distances closer than this share of themselves are equal."""

BLOCK = 500
"""Points whose distances to all others are held at once."""

Distances = Callable[[Int64[np.ndarray, " rows"]], Float64[np.ndarray, "rows points"]]
"""Distances of some points to all, 0 to themselves."""

Edge = tuple[float, int, int]


@dataclass(slots=True)
class _Cluster:
    """A node of the condensed tree.

    Attributes:
        size: Points of the cluster where it is largest.
        mass: Σ of 1/distance at which each of them leaves it, or is handed to a child.
        born: 1/distance at which it parts from its parent; 0 for the root.
    """

    children: Sequence[int]
    size: int = 0
    mass: float = 0.0
    born: float = 0.0
    parent: int | None = None

    @property
    def stability(self) -> float:
        """Excess of mass (the paper's equation 3)."""
        return self.mass - self.size * self.born


@dataclass(slots=True)
class _Component:
    """Points connected at a distance: in a cluster, or not yet enough for one."""

    cluster: int | None = None
    loose: list[int] = field(default_factory=list)


def hdbscan(distances: Distances, n_points: int, min_size: int) -> Int64[np.ndarray, " points"]:
    """Return each point's cluster, 0 … n − 1, by excess of mass, or `NOISE`.

    The root, which holds all points, is no cluster. Where nothing else is one, points that lie
    together within `FINEST` are: copies of one model.

    `min_size`, at most n_points, is both the fewest points of a cluster and the neighbours of the
    core distance, the point itself counted. Peak: `BLOCK` rows of distances. Time grows with
    n_points².
    """
    core = _core_distances(distances, n_points, min_size)
    tree = sorted(_spanning_tree(distances, core))
    clusters, first_cluster = _condense(tree, n_points, min_size)
    if len(clusters) == 1:
        _, copies = _condense([edge for edge in tree if edge[0] == FINEST], n_points, min_size)
        return copies
    return np.asarray(np.array(_select(clusters), dtype=np.int64)[first_cluster])


def _core_distances(
    distances: Distances, n_points: int, n_neighbours: int
) -> Float64[np.ndarray, " points"]:
    """Return the distance of each point to its nearest so many, itself counted."""
    core = np.empty(n_points)
    for start in range(0, n_points, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n_points))
        nearest = np.partition(distances(rows), n_neighbours - 1, axis=1)
        core[rows] = nearest[:, n_neighbours - 1]
    return core


def _spanning_tree(distances: Distances, core: Float64[np.ndarray, " points"]) -> Iterator[Edge]:
    """Yield the edges of a minimum spanning tree of mutual reachability (Prim 1957)."""
    nearest = np.full(len(core), np.inf)
    towards = np.zeros(len(core), dtype=np.int64)
    outside = np.ones(len(core), dtype=np.bool_)
    point = 0
    for _ in range(len(core) - 1):
        outside[point] = False
        reach = np.maximum(distances(np.array([point]))[0], np.maximum(core, core[point]))
        nearer = reach < nearest
        nearest[nearer], towards[nearer] = reach[nearer], point
        point = int(np.where(outside, nearest, np.inf).argmin())
        yield max(float(nearest[point]), FINEST), int(towards[point]), point


def _condense(
    tree: Sequence[Edge], n_points: int, min_size: int
) -> tuple[list[_Cluster], Int64[np.ndarray, " points"]]:
    """Return the condensed tree, children first, and the cluster that each point joins first.

    A point that the edges bring into none has `NOISE`. From the shortest edges up; whatever the
    edges of one length connect is connected at once.
    """
    above = np.arange(n_points)
    components = {point: _Component(loose=[point]) for point in range(n_points)}
    clusters: list[_Cluster] = []
    first_cluster = np.full(n_points, NOISE, dtype=np.int64)
    for distance, edges in _by_distance(tree):
        joined: dict[int, list[_Component]] = {}
        for _, left, right in edges:
            root, absorbed = _root(above, left), _root(above, right)
            parts = [
                part
                for point in (root, absorbed)
                for part in (joined.pop(point) if point in joined else [components.pop(point)])
            ]
            joined[root] = parts
            above[absorbed] = root
        for root, parts in joined.items():
            whole = _connect(parts, 1 / distance, min_size, clusters)
            if whole.cluster is not None:
                first_cluster[whole.loose] = whole.cluster
                whole.loose.clear()
            components[root] = whole
    return clusters, first_cluster


def _by_distance(tree: Sequence[Edge]) -> Iterator[tuple[float, list[Edge]]]:
    """Yield the sorted edges in groups of one length."""
    group: list[Edge] = []
    for edge in tree:
        if group and edge[0] > group[0][0] * (1 + SAME_DISTANCE):
            yield group[0][0], group
            group = []
        group.append(edge)
    if group:
        yield group[0][0], group


def _root(above: Int64[np.ndarray, " points"], point: int) -> int:
    """Return the point that stands for a component (union-find with path halving)."""
    while above[point] != point:
        above[point] = above[above[point]]
        point = int(above[point])
    return point


def _connect(
    parts: Sequence[_Component], density: float, min_size: int, clusters: list[_Cluster]
) -> _Component:
    """Return the component that the parts make; a new cluster is appended to `clusters`.

    Two clusters or more become the children of a new one. One takes the loose points in.
    """
    loose = [point for part in parts for point in part.loose]
    children = [part.cluster for part in parts if part.cluster is not None]
    size = len(loose) + sum(clusters[child].size for child in children)
    if size < min_size:
        return _Component(loose=loose)
    if len(children) == 1:
        number = children[0]
    else:
        number = len(clusters)
        clusters.append(_Cluster(children=children))
        for child in children:
            clusters[child].parent, clusters[child].born = number, density
    cluster = clusters[number]
    cluster.mass += (size - cluster.size) * density
    cluster.size = size
    return _Component(cluster=number, loose=loose)


def _select(clusters: Sequence[_Cluster]) -> list[int]:
    """Return each condensed cluster's label, or `NOISE` (the paper's algorithm 3).

    A cluster is selected, with all that is below it, unless what is below is more stable.
    """
    best = [0.0] * len(clusters)
    selected = [False] * len(clusters)
    for number, cluster in enumerate(clusters):
        below = sum(best[child] for child in cluster.children)
        best[number] = max(cluster.stability, below)
        is_stable = cluster.stability >= below * (1 - SAME_DISTANCE)
        selected[number] = is_stable and cluster.parent is not None
    labels = [NOISE] * len(clusters)
    fresh = count()
    for number in reversed(range(len(clusters))):
        parent = clusters[number].parent
        if parent is not None and labels[parent] != NOISE:
            labels[number] = labels[parent]
        elif selected[number]:
            labels[number] = next(fresh)
    return labels


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
