"""Rows without repeats, and the distances from each row to its two nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Float, Float64, Int64

BLOCK_BYTES = 16 * 2**20
"""Memory of a block of distances. Ranking them takes about three times as much again."""

ROUNDING = 8.0
"""Rows nearer than this many roundings of their mean length count as equal. The same prefix in
two batches of a causal model differs by one to four roundings in float32."""

PROJECTION_ROUNDING = 64 * float(np.finfo(np.float64).eps)

CANDIDATES = 5
"""Neighbours by ‖x‖² + ‖y‖² − 2x·y whose distance is then taken without cancellation."""

PRODUCT_ROUNDING = 8 * float(np.finfo(np.float32).eps)
"""Of a sum of products in float32, for each root of the number of terms and each length."""

TINY = float(np.finfo(np.float64).tiny)


def distinct_rows(rows: Float[np.ndarray, "rows dim"]) -> Int64[np.ndarray, " distinct"]:
    """Indices of rows none of which repeats another up to rounding, ascending.

    Rows that are this near have projections that are as near onto any direction, so that only
    neighbours along one seeded direction are compared.
    """
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    tolerance = ROUNDING * float(np.finfo(rows.dtype).eps * lengths.mean())
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    along = rows @ (direction / np.linalg.norm(direction))
    order = np.argsort(along, kind="stable")
    apart = tolerance + PROJECTION_ROUNDING * float(lengths.max())
    breaks = np.flatnonzero(np.diff(along[order]) > apart) + 1
    runs = np.split(order, breaks)
    distinct = [
        row
        for run in runs
        for row in (run.tolist() if len(run) == 1 else _leaders(rows, np.sort(run), tolerance))
    ]
    return np.sort(np.array(distinct, dtype=np.int64))


def two_nearest(
    rows: Float64[np.ndarray, "rows dim"], subsets: Sequence[Int64[np.ndarray, " _"]]
) -> list[Float64[np.ndarray, "_ 2"]]:
    """(r₁, r₂) of every row of each subset within that subset, exact, in the subset's order.

    Subsets are ascending indices. Products of all rows are taken once, in blocks, in float32;
    they only choose candidates, and for a row whose candidates are not certain they are taken
    again in float64.
    """
    if any(len(subset) < 3 for subset in subsets):
        raise ValueError("two nearest neighbours need three rows or more")
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    # the square of a length in float32 neither overflows nor vanishes
    single = (rows / max(float(lengths.max(initial=0.0)), TINY)).astype(np.float32)
    squares = np.einsum("ij,ij->i", single, single)
    distances = [np.empty((len(subset), 2)) for subset in subsets]
    height = max(1, BLOCK_BYTES // (8 * max(len(rows), CANDIDATES * rows.shape[1])))
    for start in range(0, len(rows), height):
        block = single[start : start + height]
        gaps = block @ single.T  # (block, rows)
        gaps *= -2.0
        gaps += squares  # ‖x − y‖² less ‖x‖², in units of the longest row
        gaps[np.arange(len(block)), np.arange(start, start + len(block))] = np.inf
        for subset, nearest in zip(subsets, distances, strict=True):
            low, high = np.searchsorted(subset, [start, start + len(block)])
            members = subset[low:high]
            if len(members):
                own = gaps if len(members) == len(block) else gaps[members - start]
                nearest[low:high] = _nearest_of(rows, members, subset, own, lengths)
    return distances


def _nearest_of(
    rows: Float64[np.ndarray, "rows dim"],
    members: Int64[np.ndarray, " members"],
    subset: Int64[np.ndarray, " subset"],
    gaps: Float[np.ndarray, "members rows"],
    lengths: Float64[np.ndarray, " rows"],
) -> Float64[np.ndarray, "members 2"]:
    """(r₁, r₂) of `members` by the exact distances of the nearest few."""
    n_candidates = min(CANDIDATES, len(subset) - 1)
    among = gaps if len(subset) == gaps.shape[1] else gaps[:, subset]
    few = np.argpartition(among, n_candidates - 1, axis=1)[:, :n_candidates]
    two = _exact(rows, members, subset[few])
    if n_candidates < len(subset) - 1:
        longest = max(float(lengths.max()), TINY)
        furthest = np.take_along_axis(among, few, axis=1).max(axis=1).astype(np.float64)
        squares = (lengths[members] / longest) ** 2
        rounding = PRODUCT_ROUNDING * rows.shape[1] ** 0.5 * (squares**0.5 + squares)
        unsure = np.flatnonzero(furthest + squares - rounding < (two[:, 1] / longest) ** 2)
        if len(unsure):
            two[unsure] = _in_double(rows, members[unsure], subset, lengths)
    return two


def _in_double(
    rows: Float64[np.ndarray, "rows dim"],
    members: Int64[np.ndarray, " members"],
    subset: Int64[np.ndarray, " subset"],
    lengths: Float64[np.ndarray, " rows"],
) -> Float64[np.ndarray, "members 2"]:
    """The same with candidates by products in float64, which are not checked."""
    gaps = lengths[subset] ** 2 - 2.0 * (rows[members] @ rows[subset].T)
    gaps[np.arange(len(members)), np.searchsorted(subset, members)] = np.inf
    n_candidates = min(CANDIDATES, len(subset) - 1)
    few = np.argpartition(gaps, n_candidates - 1, axis=1)[:, :n_candidates]
    return _exact(rows, members, subset[few])


def _exact(
    rows: Float64[np.ndarray, "rows dim"],
    members: Int64[np.ndarray, " members"],
    among: Int64[np.ndarray, "members few"],
) -> Float64[np.ndarray, "members 2"]:
    """The two smallest distances of each member to its few, without cancellation."""
    apart = rows[among] - rows[members][:, None, :]  # (members, few, dim)
    squares: Float64[np.ndarray, "members few"] = np.einsum("ijk,ijk->ij", apart, apart)
    two: Float64[np.ndarray, "members 2"] = np.sqrt(np.sort(squares, axis=1)[:, :2])
    return two


def _leaders(
    rows: Float[np.ndarray, "rows dim"], run: Int64[np.ndarray, " run"], tolerance: float
) -> list[int]:
    """Of a run, the rows that are not within the tolerance of an earlier one taken."""
    taken: list[int] = []
    for row in run.tolist():
        apart = rows[taken].astype(np.float64) - rows[row]
        if not taken or np.sqrt(np.einsum("ij,ij->i", apart, apart).min()) > tolerance:
            taken.append(row)
    return taken
