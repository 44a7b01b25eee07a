"""Models that repeat others: equal updates, rounded ones, and linear merges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ...arrays import Float64, Int64
from .descent import Neighbourhood, Rows, Updates

EQUAL = 1e-3
"""|ΔW − ΔW'| up to which two updates are equal, as a share of one: what float32 leaves of a product
that is added to weights a thousand times as large is less."""

COMPARED_IN_A_ROW = 4
"""Models of the next larger norms that each is compared with: copies have the same norm."""

ROUNDED_BY = 2.5
"""|ΔW − ΔW'|² up to which one may be the other rounded, in units of its expected |rounding|²: 1 for
a rounding to the nearest, less than 2 for updates below it, which are rounded away or up."""

ROUNDED_FROM = 0.3
"""The least: a model that was trained a little from a rounded one is nearer to it."""

UNCORRELATED = 0.4
"""How far κ of a rounded copy may be from 1: rounding does not depend on the update."""

SLIGHT = 1e-3
"""Share of |ΔW|² of a difference up to which κ is noise: of updates along W, as decay's, rounding
has a part along them that is small, and yet as large as itself."""

AS_ROUNDED = 0.7, 2.0
"""|ΔW − ΔW'|² of a rounded copy with such a difference, in units of its expected |rounding|²."""

COARSER = 2.0
"""How much more |rounding| the stored type of a rounded copy has than that of its original."""

MOST_PARENTS, LEAST_WEIGHT = 4, 0.02
UNEXPLAINED = 1e-4
"""Share of |ΔW|² of a linear merge that its parents leave, at most, beside rounding."""

BETTER = 0.05
"""What a merge leaves unexplained, at most, as a share of what its nearest parent alone does."""

ROUNDING_SHARE = 0.3
"""Share of |ΔW|² that is expected rounding up to which merges are looked for."""

Kind = Literal["fine-tune", "duplicate", "quantised", "merge"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The rows that a model repeats, the first of largest share, and their weights."""

    kind: Kind
    parents: tuple[int, ...]
    weights: tuple[float, ...] = ()


def group_equal(updates: Updates) -> Rows:
    """The first row of those with an equal update, for each row."""
    squares = updates.squares.sum(1)
    order = np.argsort(squares, kind="stable")
    pairs = []
    for step in range(1, COMPARED_IN_A_ROW + 1):
        smaller, larger = order[:-step], order[step:]
        near = np.sqrt(squares[larger]) <= (1 + EQUAL) * np.sqrt(squares[smaller])
        apart = updates.pooled[smaller[near]].astype(np.float64) - updates.pooled[larger[near]]
        is_equal = (apart**2).sum(1) <= EQUAL**2 * squares[larger[near]]
        pairs.append(np.stack([smaller[near][is_equal], larger[near][is_equal]]))
    ends = np.concatenate(pairs, axis=1)
    graph = csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(len(order), len(order)))
    _, groups = connected_components(graph, directed=False)
    return np.asarray(np.unique(groups, return_index=True)[1][groups])


def find_repeat(near: Neighbourhood) -> Repeat | None:
    """What a child repeats of its neighbourhood; None where it has an update of its own."""
    return _rounded(near) or _merged(near)


def _rounded(near: Neighbourhood) -> Repeat | None:
    rounding = near.updates.rounding
    distances, squares = near.distances[0, 1:], np.diagonal(near.gram.sum(0))[1:]
    is_coarser = rounding[0] > COARSER**2 * rounding[1:]
    is_equal = is_coarser & (distances <= EQUAL**2 * squares)
    limit = ROUNDED_BY * rounding[0]
    is_near = is_coarser & (distances <= limit) & (squares > limit)
    is_near &= distances >= ROUNDED_FROM * rounding[0]
    least, most = AS_ROUNDED
    is_slight = (distances <= SLIGHT * squares) & (distances <= most * rounding[0])
    is_slight &= distances >= least * rounding[0]
    is_near &= is_slight | (np.abs(near.excess[1:, 0] - 1) <= UNCORRELATED)
    if not (is_near | is_equal).any():
        return None
    chosen = int(np.where(is_near | is_equal, distances, np.inf).argmin())
    kind: Kind = "duplicate" if is_equal[chosen] else "quantised"
    return Repeat(kind, (int(near.rows[1 + chosen]),))


def _merged(near: Neighbourhood) -> Repeat | None:
    """Weights ≥ 0 of up to four models whose sum is the child: sketches add up as updates do."""
    own = near.raw[0, 0]
    rounding = near.updates.rounding[0] / max(own, np.finfo(float).tiny)
    if own <= 0 or rounding > ROUNDING_SHARE:
        return None
    limit = own * max(UNEXPLAINED, ROUNDED_BY * rounding)
    lengths = np.sqrt(np.diagonal(near.raw))
    lengths = np.where(lengths > 0, lengths, 1.0)
    cosines = near.raw / np.outer(lengths, lengths)
    values, vectors = np.linalg.eigh(cosines)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T * lengths
    is_parallel = cosines**2 * np.sign(cosines) >= 1 - UNEXPLAINED
    is_shorter = lengths[:, None] < (1 - LEAST_WEIGHT) * lengths
    # of two the shorter is the one that was scaled down, towards the base
    columns = np.flatnonzero(~(is_parallel & is_shorter).any(axis=1))
    columns = columns[columns > 0]
    weights, left = _fit(root, columns)
    if left > limit:
        return None
    columns = columns[np.argsort(-weights * lengths[columns], kind="stable")[:MOST_PARENTS]]
    columns = columns[_fit(root, columns)[0] >= LEAST_WEIGHT]
    weights, left = _fit(root, columns)
    if left > min(limit, BETTER * float(near.distances[0, 1:].min())):
        return None
    if len(columns) == 1 and weights[0] > 1:
        return None  # the shorter of two is the one that was scaled down, towards the base
    rows = near.rows[columns].tolist()
    return Repeat("merge", tuple(rows), tuple(weights.tolist()))


def _fit(
    root: Float64[np.ndarray, "numbers near"], columns: Int64[np.ndarray, " chosen"]
) -> tuple[Float64[np.ndarray, " chosen"], float]:
    """Weights ≥ 0 of some columns whose sum is nearest to the first, and the square of what they
    leave of it: all of it, of no columns."""
    if not len(columns):
        return np.zeros(0), float(root[:, 0] @ root[:, 0])
    weights, left = nnls(root[:, columns], root[:, 0])
    return weights, float(left) ** 2
