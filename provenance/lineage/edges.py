"""The parents of each model of a family, with probabilities: from updates and times alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Float64, Int64
from .arborescence import best_arborescence
from .descent import Neighbourhood, PerModel, Rows, Updates, compare_pairs, find_near
from .forms import Forms
from .odds import LEVEL, RESHAPED, pair_log_odds
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    original = _originals(group_equal(updates), rank)
    is_changed = updates.squares.sum(1) > 0
    own = np.flatnonzero((original == np.arange(len(updates))) & is_changed)
    edges: list[Edge] = []
    if len(own):
        number = np.append(own, BASE)
        for edge in _edges_of_different(updates.take(own), times[own], forms.take(own)):
            parent, child = int(number[edge.parent]), int(number[edge.child])
            if parent != BASE:
                parent = _of_its_form(child, parent, np.flatnonzero(original == parent), forms)
            edges.append(replace(edge, parent=parent, child=child))
    for row in np.flatnonzero(~is_changed).tolist():
        is_base = forms.changed()[row] == 0
        edges.append(_copy(BASE, row, REPEATED["duplicate"], is_same=bool(is_base)))
    for row in np.flatnonzero((original != np.arange(len(updates))) & is_changed).tolist():
        equal = np.flatnonzero((original == original[row]) & (rank < rank[row]))
        equal = equal[np.argsort(rank[equal])].tolist()
        first = next((own for own in equal if forms.touched.same(row, own)), equal[0])
        is_known = times[first] < times[row]
        is_sure = is_known or forms.changed()[first] < forms.changed()[row]
        probability = REPEATED["duplicate"] if is_sure else UNDATED
        is_same = bool(forms.same(row, np.array([first]))[0]) and forms.touched.same(row, first)
        if not forms.possible(row, np.array([first]))[0]:
            first, probability = BASE, UNDATED
        edges.append(_copy(first, row, probability, is_same=is_same))
    return sorted(edges, key=lambda edge: edge.child)


def _of_its_form(child: int, parent: int, equal: Rows, forms: Forms) -> int:
    """Of a parent and the models with its update the first of the child's form; else the parent."""
    alike: list[int] = equal[forms.same(child, equal)].tolist()
    return parent if parent in alike or not alike else alike[0]


def _copy(parent: int, child: int, probability: float, *, is_same: bool) -> Edge:
    return Edge(
        parent=parent,
        child=child,
        probability=probability,
        kind="duplicate" if is_same else "fine-tune",
        explained=1.0,
        cosine=1.0,
    )


def _originals(first: Rows, rank: Rows) -> Rows:
    """The row of the smallest rank of each group."""
    order = np.lexsort((rank, first))
    groups, starts = np.unique(first[order], return_index=True)
    return np.asarray(order[starts][np.searchsorted(groups, first)])


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
    around = [np.append(row, near[row]) for row in range(len(updates))]

    def repeat_of(row: int, others: Int64[np.ndarray, " others"]) -> Repeat | None:
        rows = np.append(row, others)
        seen = forms.seen_by(row, updates.take(rows))
        repeat = find_repeat(seen, Neighbourhood.of(seen, rows))
        ruled_out = repeat and not forms.possible(row, np.array(repeat.parents)).all()
        return None if ruled_out else repeat

    found = {row: repeat_of(row, near[row]) for row in range(len(updates))}
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
    for row, rows in enumerate(around):
        seen = forms.seen_by(row, updates.take(rows))
        pairs = compare_pairs(seen, Neighbourhood.of(seen, rows), is_reference[rows])
        candidates.explained[row] = 1 - pairs["left"]
        candidates.cosines[row] = pairs["cosine"]
        if row in repeats:
            candidates.log_odds[row][near[row] == repeats[row].parents[0]] = SURE
            continue
        possible = forms.possible(row, near[row])
        later_by_s = np.where(possible, times[row] - times[near[row]], -np.inf)
        log_odds = pair_log_odds(pairs, later_by_s)
        log_odds[pairs["left"] <= EQUAL**2] = LIMIT  # equal in all that the model has
        log_odds += np.where(forms.same(row, near[row]), 0.0, RESHAPED)
        by_tokens = forms.touched.log_odds(row, near[row])
        # of a short type a rounded copy may be compared where its original is not
        log_odds += np.where(np.isin(near[row], rounded), np.minimum(by_tokens, 0.0), by_tokens)
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
    if repeat is not None and parent == repeat.parents[0]:
        for place, own in enumerate(repeat.parents):
            if not _is_above(child, own, parents):
                weight = repeat.weights[place] if repeat.weights else None
                yield _edge(child, own, candidates, REPEATED[repeat.kind], repeat.kind, weight)
        return
    odds = np.exp(candidates.log_odds[child])
    own_odds = float(odds[candidates.rows[child] == parent].sum()) if parent != base else 1.0
    total = 1.0 + float(odds.sum())
    probability = own_odds / total
    if parent == base or probability < LEVEL:
        yield Edge(parent=BASE, child=child, probability=1.0 / total)
    else:
        yield _edge(child, parent, candidates, probability)


def _edge(
    child: int,
    parent: int,
    candidates: _ParentEvidence,
    probability: float,
    kind: Kind = "fine-tune",
    weight: float | None = None,
) -> Edge:
    at = int(np.flatnonzero(candidates.rows[child] == parent)[0])
    return Edge(
        parent=parent,
        child=child,
        probability=probability,
        kind=kind,
        weight=weight,
        explained=float(candidates.explained[child, at]),
        cosine=float(candidates.cosines[child, at]),
    )


def _is_above(model: int, other: int, parents: Int64[np.ndarray, " nodes"]) -> bool:
    """Whether the other is the model, or descends from it."""
    node, base = other, len(parents) - 1
    while node != base:
        if node == model:
            return True
        node = int(parents[node])
    return False
