"""The tree of greatest weight in a directed graph: Chu, Liu 1965; Edmonds 1967."""

from __future__ import annotations

import numpy as np

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
    best = _best_edges(heads, weights, n_nodes)
    above = np.append(tails[best], n_nodes)
    on_cycle = _on_cycles(above)
    if not on_cycle.any():
        return best
    component = _contracted(above, on_cycle)
    n_left = int(component.max())  # the root's number, which is the last
    gains = weights - np.where(on_cycle[heads], weights[best[heads]], 0.0)
    stays = np.flatnonzero(component[tails] != component[heads])
    chosen = stays[
        best_arborescence(component[tails[stays]], component[heads[stays]], gains[stays], n_left)
    ]
    best[heads[chosen]] = chosen
    return best


def _best_edges(
    heads: Int64[np.ndarray, " edges"], weights: Float64[np.ndarray, " edges"], n_nodes: int
) -> Int64[np.ndarray, " nodes"]:
    order = np.lexsort((np.arange(len(heads)), -weights, heads))
    best: Int64[np.ndarray, " nodes"] = order[
        np.searchsorted(heads[order], np.arange(n_nodes), side="left")
    ]
    return best


def _on_cycles(above: Int64[np.ndarray, " nodes"]) -> Bool[np.ndarray, " nodes"]:
    """Which nodes are their own forebears; the last is the root, which is above itself."""
    far = above.copy()
    far[-1] = len(above) - 1
    for _ in range(len(above).bit_length()):
        far = far[far]
    on_cycle = np.zeros(len(above), dtype=np.bool_)
    on_cycle[far] = True
    on_cycle[-1] = False
    return on_cycle


def _contracted(
    above: Int64[np.ndarray, " nodes"], on_cycle: Bool[np.ndarray, " nodes"]
) -> Int64[np.ndarray, " nodes"]:
    """The node that each becomes: those of a cycle one; the root is the last."""
    first = np.arange(len(above))
    for start in np.flatnonzero(on_cycle).tolist():
        node = above[start]
        while node != start and first[node] == node and node > start:
            node = above[node]
        if node == start:  # `start` is the smallest of its cycle
            node = above[start]
            while node != start:
                first[node] = start
                node = above[node]
    _, component = np.unique(first, return_inverse=True)
    numbers: Int64[np.ndarray, " nodes"] = component.astype(np.int64)
    return numbers
