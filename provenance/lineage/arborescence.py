"""The tree of greatest weight in a directed graph: Chu, Liu 1965; Edmonds 1967."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ...arrays import Bool, Float64, Int64


def best_arborescence(
    tails: Int64[np.ndarray, " edges"],
    heads: Int64[np.ndarray, " edges"],
    weights: Float64[np.ndarray, " edges"],
    n_nodes: int,
) -> Int64[np.ndarray, " nodes"]:
    """The edge that leads to each node in the tree of greatest weight from the root `n_nodes`.

    Every node must have an edge from the root. Of equal weights the first edge is taken. Cycles of
    the best edges are contracted, all of a round at once, in O(edges · rounds).
    """
    order = np.lexsort((-weights, heads))
    best: Int64[np.ndarray, " nodes"]
    best = order[np.searchsorted(heads[order], np.arange(n_nodes), side="left")]
    above = np.append(tails[best], n_nodes)
    component, on_cycle = _contracted(above)
    if not on_cycle.any():
        return best
    n_left = int(component.max())  # the root's number, which is the last
    gains = weights - np.where(on_cycle[heads], weights[best[heads]], 0.0)
    stays = np.flatnonzero(component[tails] != component[heads])
    chosen = stays[
        best_arborescence(component[tails[stays]], component[heads[stays]], gains[stays], n_left)
    ]
    best[heads[chosen]] = chosen
    return best


def _contracted(
    above: Int64[np.ndarray, " nodes"],
) -> tuple[Int64[np.ndarray, " nodes"], Bool[np.ndarray, " nodes"]]:
    """The node that each becomes, those of a cycle one, the root the last; and which nodes are on a
    cycle."""
    n_nodes = len(above)
    edges = (np.ones(n_nodes - 1), (above[:-1], np.arange(n_nodes - 1)))
    graph = csr_array(edges, shape=(n_nodes, n_nodes))
    _, labels = connected_components(graph, connection="strong")
    on_cycle: Bool[np.ndarray, " nodes"] = np.bincount(labels)[labels] > 1
    labels[-1] = n_nodes
    component: Int64[np.ndarray, " nodes"] = np.unique(labels, return_inverse=True)[1]
    return component.astype(np.int64), on_cycle
