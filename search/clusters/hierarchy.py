"""HDBSCAN (Campello, Moulavi, Sander 2013) whose result does not depend on how ties are sorted.

Equal mutual reachability distances are the rule, not an accident: a model's core distance is the
weight of several of its edges. The paper removes equal edges together (section 3, step 4.2.1).
Libraries remove them one by one in the order of an unstable sort, so that a model which bridges
two clusters joins one or the other with the processor's sorting code and the order of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from ...arrays import Float64, Int64

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
