"""The parents of each model of a family, with probabilities: from updates and times alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ...arrays import Bool, Float64, Int64
from .descent import (
    LEVEL,
    RESHAPED,
    Neighbourhood,
    PerModel,
    Rows,
    Updates,
    compare_pairs,
    find_near,
    pair_log_odds,
)
from .forms import Forms
from .repeats import EQUAL, Kind, Repeat, find_repeat, group_equal

BASE = -1
"""The row of the base."""

SURE = 30.0
"""Log-odds of the edge of a model that repeats another."""

LIMIT = 15.0
"""Log-odds of any other edge, at most."""

REPEATED = {"duplicate": 0.95, "quantised": 0.92, "merge": 0.9}
"""Probability of the edges of models that repeat others (docs/lineage.md has what was counted)."""

UNDATED = 0.5
"""Probability that of two equal models the first is the original, where no time tells."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One parent of a model, by row.

    Attributes:
        parent: `BASE` where no indexed model is likely enough.
        weight: Of a parent of a merge.
        explained: 1 − |ΔW_C − ΔW_P|² / |ΔW_C|², the share of the child's update.
        cosine: Of the two updates.
    """

    parent: int
    child: int
    probability: float
    kind: Kind = "fine-tune"
    weight: float | None = None
    explained: float | None = None
    cosine: float | None = None


@dataclass(slots=True)
class _ParentEvidence:
    """What speaks for each candidate of each model: rows of models that are all different."""

    repeats: dict[int, Repeat]
    rows: Int64[np.ndarray, "models near"]
    log_odds: Float64[np.ndarray, "models near"]
    explained: Float64[np.ndarray, "models near"]
    cosines: Float64[np.ndarray, "models near"]


def infer_edges(
    updates: Updates, times: PerModel, rank: Rows, forms: Forms | None = None
) -> list[Edge]:
    """The parents of each model: one edge, or several of a merge, in order of row.

    Args:
        times: Of publication, in seconds; NaN where unknown.
        rank: Which of equal models is their original: the smallest.
        forms: What layers, vocabularies and touched tokens say; nothing where None.
    """
    forms = forms or Forms.unknown(len(updates))
    by_rank = np.argsort(rank)
    group = group_equal(updates)
    groups, firsts = np.unique(group[by_rank], return_index=True)
    original = by_rank[firsts[np.searchsorted(groups, group)]]
    is_changed = updates.squares.sum(1) > 0
    own = np.flatnonzero((original == np.arange(len(updates))) & is_changed)
    edges: list[Edge] = []
    if len(own):
        number = np.append(own, BASE)
        for edge in _edges_of_different(updates.take(own), times[own], forms.take(own)):
            parent, child = int(number[edge.parent]), int(number[edge.child])
            if parent != BASE:
                # of a parent and the models with its update the first of the child's form
                equal = np.flatnonzero(original == parent)
                alike = equal[forms.same(child, equal)].tolist()
                parent = parent if parent in alike or not alike else alike[0]
            edges.append(replace(edge, parent=parent, child=child))
    for row in np.flatnonzero(~is_changed).tolist():
        is_base = forms.changed()[row] == 0
        edges.append(_copy(BASE, row, REPEATED["duplicate"], is_same=bool(is_base)))
    for row in np.flatnonzero((original != np.arange(len(updates))) & is_changed).tolist():
        is_older = (original == original[row]) & (rank < rank[row])
        equal = by_rank[is_older[by_rank]].tolist()
        first = next((own for own in equal if forms.touched.same(row, own)), equal[0])
        is_known = times[first] < times[row]
        is_sure = is_known or forms.changed()[first] < forms.changed()[row]
        probability = REPEATED["duplicate"] if is_sure else UNDATED
        is_same = bool(forms.same(row, np.array([first]))[0]) and forms.touched.same(row, first)
        if not forms.possible(row, np.array([first]))[0]:
            first, probability = BASE, UNDATED
        edges.append(_copy(first, row, probability, is_same=is_same))
    return sorted(edges, key=lambda edge: edge.child)


def _copy(parent: int, child: int, probability: float, *, is_same: bool) -> Edge:
    kind: Kind = "duplicate" if is_same else "fine-tune"
    return Edge(parent, child, probability, kind, explained=1.0, cosine=1.0)


def _edges_of_different(updates: Updates, times: PerModel, forms: Forms) -> Iterator[Edge]:
    """The edges among models that are all different and changed."""
    candidates = _find_candidates(updates, times, forms)
    n_models, n_near = candidates.rows.shape
    models = np.arange(n_models)
    tails = np.concatenate([np.full(n_models, n_models), candidates.rows.ravel()])
    heads = np.concatenate([models, np.repeat(models, n_near)])
    log_odds = np.concatenate([np.zeros(n_models), candidates.log_odds.ravel()])
    usable = np.flatnonzero(np.isfinite(log_odds))
    best = best_arborescence(tails[usable], heads[usable], log_odds[usable], n_models)
    parents = np.append(tails[usable[best]], n_models)
    for child in range(n_models):
        yield from _edges_of(child, parents, candidates)


def _find_candidates(updates: Updates, times: PerModel, forms: Forms) -> _ParentEvidence:
    near = find_near(updates)

    def around(row: int, others: Rows) -> Neighbourhood:
        rows = np.append(row, others)
        return Neighbourhood.of(forms.seen_by(row, updates.take(rows)), rows)

    def repeat_of(row: int, others: Rows) -> Repeat | None:
        repeat = find_repeat(around(row, others))
        ruled_out = repeat and not forms.possible(row, np.array(repeat.parents)).all()
        return None if ruled_out else repeat

    found = {row: repeat_of(row, others) for row, others in enumerate(near)}
    repeats = {row: repeat for row, repeat in found.items() if repeat is not None}
    merges = {row for row, repeat in repeats.items() if repeat.kind == "merge"}
    for row in merges:
        if not merges.isdisjoint(repeats[row].parents):
            # of models on one line each lies between any two others
            plain = repeat_of(row, np.setdiff1d(near[row], list(merges)))
            if plain is not None and len(plain.parents) <= len(repeats[row].parents):
                repeats[row] = plain
    rounded = [row for row, repeat in repeats.items() if repeat.kind == "quantised"]
    is_reference = np.ones(len(updates), dtype=np.bool_)
    is_reference[list(repeats)] = False
    empty = (np.full(near.shape, -np.inf) for _ in range(3))
    candidates = _ParentEvidence(repeats, near, *empty)
    for row, others in enumerate(near):
        of_child = around(row, others)
        pairs = compare_pairs(of_child, is_reference[of_child.rows])
        candidates.explained[row] = 1 - pairs["left"]
        candidates.cosines[row] = pairs["cosine"]
        if row in repeats:
            candidates.log_odds[row][others == repeats[row].parents[0]] = SURE
            continue
        possible = forms.possible(row, others)
        later_by_s = np.where(possible, times[row] - times[others], -np.inf)
        log_odds = pair_log_odds(pairs, later_by_s)
        log_odds[pairs["left"] <= EQUAL**2] = LIMIT  # equal in all that the model has
        log_odds += np.where(forms.same(row, others), 0.0, RESHAPED)
        by_tokens = forms.touched.log_odds(row, others)
        # of a short type a rounded copy may be compared where its original is not
        log_odds += np.where(np.isin(others, rounded), np.minimum(by_tokens, 0.0), by_tokens)
        candidates.log_odds[row] = np.where(possible, np.clip(log_odds, -LIMIT, LIMIT), -np.inf)
    _refuse_circles(candidates)
    _keep_likeliest_of_rounded(candidates, updates.rounding)
    return candidates


def _keep_likeliest_of_rounded(candidates: _ParentEvidence, rounding: PerModel) -> None:
    """Of a model and its rounded copies one is a candidate: a share of the probability for each
    would leave none likely enough."""
    original = np.arange(len(rounding))
    for row in np.argsort(rounding, kind="stable").tolist():
        repeat = candidates.repeats.get(row)
        if repeat is not None and repeat.kind == "quantised":
            original[row] = original[repeat.parents[0]]
    for row, near in enumerate(candidates.rows):
        best = np.argsort(-candidates.log_odds[row], kind="stable")
        _, first = np.unique(original[near[best]], return_index=True)
        candidates.log_odds[row, np.delete(best, first)] = -np.inf


def _refuse_circles(candidates: _ParentEvidence) -> None:
    """Nothing that a model was made of was trained from that model, nor from a likely child of it.

    Otherwise a child of a merge, which holds a share of each of its parents, is taken for a parent
    of these.
    """
    at = candidates.rows
    for made, repeat in candidates.repeats.items():
        children = np.flatnonzero(((at == made) & (candidates.log_odds > 0)).any(axis=1))
        for parent in set(repeat.parents) - candidates.repeats.keys():
            candidates.log_odds[parent][np.isin(at[parent], [made, *children])] = -np.inf


def _edges_of(
    child: int, parents: Int64[np.ndarray, " nodes"], candidates: _ParentEvidence
) -> Iterator[Edge]:
    """The edges to a model; `parents` has the tree, in which the base is the last."""
    repeat, parent, base = candidates.repeats.get(child), int(parents[child]), len(parents) - 1
    odds = np.exp(candidates.log_odds[child])
    total = 1.0 + float(odds.sum())
    named = Repeat("fine-tune", (parent,))
    if repeat is not None and parent == repeat.parents[0]:
        named, probability = repeat, REPEATED[repeat.kind]
    else:
        probability = float(odds[candidates.rows[child] == parent].sum()) / total
        if parent == base or probability < LEVEL:
            yield Edge(BASE, child, 1.0 / total)
            return
    for own, weight in zip_longest(named.parents, named.weights):
        if not _is_above(child, own, parents):
            at = int(np.flatnonzero(candidates.rows[child] == own)[0])
            shares = float(candidates.explained[child, at]), float(candidates.cosines[child, at])
            yield Edge(own, child, probability, named.kind, weight, *shares)


def _is_above(model: int, other: int, parents: Int64[np.ndarray, " nodes"]) -> bool:
    """Whether the other is the model, or descends from it."""
    node, base = other, len(parents) - 1
    while node != base:
        if node == model:
            return True
        node = int(parents[node])
    return False


def best_arborescence(
    tails: Int64[np.ndarray, " edges"],
    heads: Int64[np.ndarray, " edges"],
    weights: Float64[np.ndarray, " edges"],
    n_nodes: int,
) -> Int64[np.ndarray, " nodes"]:
    """The edge that leads to each node in the tree of greatest weight from the root `n_nodes`.

    Chu, Liu 1965; Edmonds 1967. Every node must have an edge from the root. Of equal weights the
    first edge is taken. Cycles of the best edges are contracted, all of a round at once, in
    O(edges · rounds).
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
    """The node that each becomes, a cycle one, the root the last; and which are on a cycle."""
    n_nodes = len(above)
    edges = (np.ones(n_nodes - 1), (above[:-1], np.arange(n_nodes - 1)))
    graph = csr_array(edges, shape=(n_nodes, n_nodes))
    _, labels = connected_components(graph, connection="strong")
    on_cycle: Bool[np.ndarray, " nodes"] = np.bincount(labels)[labels] > 1
    labels[-1] = n_nodes
    component: Int64[np.ndarray, " nodes"] = np.unique(labels, return_inverse=True)[1]
    return component.astype(np.int64), on_cycle
