"""Standard errors from blocks of texts: an estimate is repeated on parts that share no row.

Rows of one text depend on each other, so whole texts go into a block. The variance of an estimate
from N rows is taken as that between B blocks, divided by B: the variance of TwoNN is proportional
to 1/N (Facco et al. 2017, block analysis). An estimate that omits one block at a time shares rows
between its repeats, and overstates the error of nearest-neighbour statistics 1.4 to 2.4 times
(benchmarks/studies/geometry.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from ...arrays import Float64, Int64

BLOCKS = 10

CONFIDENCE = 0.95


def assign_blocks(ids: Sequence[str], seed: int = 0) -> Int64[np.ndarray, " texts"]:
    """The block, 0…9, of each text of a group.

    Texts are in blocks by the order of a digest of their id: groups with the same ids, as
    translations have, get the same blocks.
    """
    digests = [hashlib.sha256(f"{seed}:{i}".encode("utf-8", "replace")).digest() for i in ids]
    order = sorted(range(len(ids)), key=digests.__getitem__)
    blocks = np.empty(len(ids), dtype=np.int64)
    blocks[order] = np.arange(len(ids)) * BLOCKS // max(1, len(ids))
    return blocks


def block_subsets(
    blocks: Int64[np.ndarray, " rows"], fewest: int
) -> list[Int64[np.ndarray, " subset"]]:
    """The rows of each block, ascending; nothing where a block has fewer rows than `fewest`."""
    subsets = [np.flatnonzero(blocks == block) for block in range(BLOCKS)]
    return subsets if min(map(len, subsets)) >= fewest else []


def standard_error(values: Sequence[float]) -> float | None:
    """Of the estimate from all blocks' rows; None for fewer than two blocks."""
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None


def interval(centre: float, values: Sequence[float]) -> tuple[float, float] | None:
    """95 % by Student's t around an estimate; None for fewer than two blocks."""
    error = standard_error(values)
    if error is None:
        return None
    reach = float(student.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)) * error
    return centre - reach, centre + reach


def resampled(
    centre: Float64[np.ndarray, " layers"],
    values: Float64[np.ndarray, "layers blocks"],
    resamples: int,
    seed: int,
) -> Float64[np.ndarray, "resamples layers"]:
    """What fresh texts might give, layers moving together as they do between the blocks.

    Multiplier bootstrap: the estimate plus Σ_b w_b (value_b − mean)/√(B(B − 1)), w standard normal.
    """
    n = values.shape[1]
    weights = np.random.default_rng(seed).standard_normal((resamples, n))
    apart = values - values.mean(axis=1, keepdims=True)
    drawn: Float64[np.ndarray, "resamples layers"] = (
        centre + weights @ apart.T / (n * (n - 1)) ** 0.5
    )
    return drawn
