"""t-SNE of many points, in time that grows with their number: gradients from a grid.

Attraction is along the edges of a graph of nearest neighbours, all alike (Böhm, Berens, Kobak
2022, section 2: the map is that of Gaussian affinities). Repulsion is a convolution, which is
computed on a regular grid by FFT and interpolated (Linderman et al. 2019, FIt-SNE). Everything is
added up in a fixed order by one thread, so that the same points give the same map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Float, Float32, Float64, Int64

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Tracked = Callable[[Iterable[int]], Iterable[int]]
"""Passes on the iterations, and shows how far they are."""

Plane = Float32[np.ndarray, "points 2"]
Nearest = Int64[np.ndarray, "points k"]

EARLY, ITERATIONS = 250, 750
"""Iterations with exaggeration, and in all (Belkina et al. 2019)."""

EXAGGERATION = 12.0
START_SPREAD = 1e-4
LEAST_GAIN = 0.01
LONGEST_STEP = 5.0
"""Of one point in one iteration: a first step out of a tight start may else be thrown far."""

BLOCK_BYTES = 1 << 25
"""Of distances at a time."""

GROUP = 16
"""Distances of which the smallest is compared with other groups' first, to save time."""

NODES = 3
"""Of the interpolating polynomial in a box, in each direction."""

FEWEST_BOXES = 50
BOXES_AT_A_TIME = 10
"""By which a growing grid grows: its kernels are kept in between."""


def tsne(
    nearest: Nearest,
    start: Float[np.ndarray, "points 2"],
    track: Tracked = iter,
) -> Float64[np.ndarray, "points 2"]:
    """A place for each point, from its nearest others and a start that keeps the large
    arrangement; `track` sees the iterations pass.

    Peak: two numbers for each edge, and a dozen grids of twice the map's width.
    """
    graph = affinities(nearest)
    places = (start / np.std(start[:, 0]) * START_SPREAD).astype(np.float32)
    velocity, gains = np.zeros_like(places), np.ones_like(places)
    grid = Grid()
    for iteration in track(range(ITERATIONS)):
        exaggeration, momentum = (EXAGGERATION, 0.5) if iteration < EARLY else (1.0, 0.8)
        gradient = exaggeration * attraction(graph, places) - grid.repulsion(places)
        gradient *= 4.0
        is_turned = np.sign(gradient) != np.sign(velocity)
        gains = np.maximum(np.where(is_turned, gains + 0.2, gains * 0.8), LEAST_GAIN)
        # n over the exaggeration as the rate of learning (Belkina et al. 2019)
        velocity = momentum * velocity - len(places) / exaggeration * gains * gradient
        np.clip(velocity, -LONGEST_STEP, LONGEST_STEP, out=velocity)
        places += velocity
        places -= places.mean(axis=0)
    return np.asarray(places, dtype=np.float64)


def nearest_others(points: Float32[np.ndarray, "points axes"], k: int) -> Nearest:
    """The k nearest others of each point, the nearest first; of equal ones those of lower place.
    Peak: a block's distances to all points, three times."""
    n_points, lengths = len(points), np.square(points).sum(axis=1)
    k = min(k, n_points - 1)
    nearest = np.empty((n_points, k), dtype=np.int64)
    height = max(1, BLOCK_BYTES // (8 * n_points))
    for start in range(0, n_points, height):
        block = points[start : start + height]
        squares = block @ (-2 * points.T)
        squares += lengths
        squares += lengths[start : start + height, None]
        np.maximum(squares, 0.0, out=squares)
        squares[np.arange(len(block)), start + np.arange(len(block))] = np.inf
        # the k smallest of all are at most the kth smallest of the minima of groups
        n_groups = n_points // GROUP
        groups = squares[:, : n_groups * GROUP].reshape(len(block), GROUP, n_groups).min(axis=1)
        farthest = np.partition(groups if k <= n_groups else squares, k - 1, axis=1)[:, k - 1 : k]
        rows, places = np.nonzero(squares <= farthest)
        order = np.lexsort((places, squares[rows, places], rows))
        first = np.searchsorted(rows, np.arange(len(block)))  # rows are in order before and after
        nearest[start : start + height] = places[order][first[:, None] + np.arange(k)]
    return nearest


def affinities(nearest: Nearest) -> csr_matrix:
    """1/k for each nearest neighbour, made symmetric, of sum 1."""
    from scipy.sparse import csr_matrix

    n_points, k = nearest.shape
    ends = np.arange(0, nearest.size + 1, k)
    ones = np.full(nearest.size, 1 / (2 * nearest.size), dtype=np.float32)
    directed = csr_matrix((ones, nearest.ravel(), ends), shape=(n_points, n_points))
    graph = (directed + directed.T).tocsr()
    graph.sort_indices()
    return graph


def attraction(graph: csr_matrix, places: Plane) -> Plane:
    """Σ_j p_ij (y_i − y_j) / (1 + |y_i − y_j|²)."""
    points = places.view(np.complex64)[:, 0]  # one number a point: half as many steps
    apart = np.repeat(points, np.diff(graph.indptr))
    apart -= points[graph.indices]
    apart *= graph.data / (1 + np.square(apart.real) + np.square(apart.imag))
    pulled: Plane = np.add.reduceat(apart, graph.indptr[:-1])[:, None].view(np.float32)
    return pulled


class Grid:
    """A regular grid over a map, and the kernels of its repulsion."""

    def __init__(self) -> None:
        self._made: tuple[int, float] = (0, 0.0)
        self._kernels: list[np.ndarray] = []

    def repulsion(self, places: Plane) -> Plane:
        """Σ_j (y_i − y_j) / (1 + |y_i − y_j|²)² over Σ_kl 1 / (1 + |y_k − y_l|²)."""
        from scipy.fft import irfft2, rfft2

        low, high = places.min(axis=0), places.max(axis=0)
        span = float((high - low).max())
        boxes = max(FEWEST_BOXES, -(-int(span + 1) // BOXES_AT_A_TIME) * BOXES_AT_A_TIME)
        width = 1.0 if boxes > FEWEST_BOXES else max(span, 1e-3) * (1 + 1e-5) / boxes
        self._prepare(boxes, width)
        side, doubled = boxes * NODES, self._side
        at = (places - low) / np.float32(width)
        box = np.minimum(at.astype(np.int64), boxes - 1)
        weights = _lagrange((at - box).astype(np.float32))  # (points, 2, NODES)
        rows = box[:, :1] * NODES + np.arange(NODES)
        columns = box[:, 1:] * NODES + np.arange(NODES)
        cells = (rows[:, :, None] * side + columns[:, None, :]).reshape(len(places), -1)
        shares = (weights[:, 0, :, None] * weights[:, 1, None, :]).reshape(len(places), -1)
        charge = np.bincount(cells.ravel(), shares.ravel(), minlength=side * side)
        spectrum = rfft2(charge.reshape(side, side).astype(np.float32), (doubled, doubled))
        shape = doubled, doubled
        potential, *kernels = self._kernels
        # Σ of the potential at the points, by Parseval's theorem: half of the columns are not there
        power = (np.square(spectrum.real) + np.square(spectrum.imag)) * potential.real
        columns_of = 2 * power.sum(axis=0, dtype=np.float64)
        total = columns_of.sum() - columns_of[0] / 2
        if doubled % 2 == 0:
            total -= columns_of[-1] / 2
        total = total / doubled**2 - len(places)
        sums = (irfft2(spectrum * kernel, shape)[:side, :side] for kernel in kernels)
        forces = [(some.reshape(-1)[cells] * shares).sum(axis=1) for some in sums]
        return np.stack(forces, axis=1) / np.float32(max(total, 1e-12))

    def _prepare(self, boxes: int, width: float) -> None:
        from scipy.fft import next_fast_len, rfft2

        if self._made == (boxes, width):
            return
        self._made, side = (boxes, width), boxes * NODES
        self._side = next_fast_len(2 * side - 1, real=True)
        steps = np.fft.fftfreq(self._side, 1 / self._side).astype(np.float32) * (width / NODES)
        squares = 1 / (1 + np.square(steps)[:, None] + np.square(steps)[None, :])
        force = np.square(squares)
        kernels = squares, force * steps[:, None], force * steps[None, :]
        self._kernels = [rfft2(kernel) for kernel in kernels]


def _lagrange(at: Float32[np.ndarray, "points 2"]) -> Float32[np.ndarray, "points 2 nodes"]:
    """The polynomials of the nodes of a box, which are in the middle of its `NODES` equal parts."""
    nodes = ((np.arange(NODES) + 0.5) / NODES).astype(np.float32)
    weights = np.ones((*at.shape, NODES), dtype=np.float32)
    for node in range(NODES):
        for other in range(NODES):
            if other != node:
                weights[:, :, node] *= (at - nodes[other]) / (nodes[node] - nodes[other])
    return weights
