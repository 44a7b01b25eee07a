"""How far purity can be trusted: an interval over labels, and a test against chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Int64
from .labelled import LabelledModels
from .precision import Exclude, QueryResult, coded, count_siblings, label_codes, ranked_blocks

RESAMPLES = 2_000
PERMUTATIONS = 999

MAX_CELLS = 200_000
"""Retrieved labels looked up in one permutation; a larger family is not tested."""


def bootstrap_interval(
    results: Sequence[QueryResult], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """95 % percentile interval of micro purity, labels resampled with replacement.

    Models of one label are not independent, labels nearly are; so a label goes in or out
    with all its queries. With one label the interval is a point and says nothing.
    """
    names = sorted({result.dataset for result in results})
    codes = label_codes([result.dataset for result in results], names)
    counts = np.bincount(codes, minlength=len(names))
    sums = np.bincount(codes, [result.purity for result in results], minlength=len(names))
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(names), size=(resamples, len(names)))
    micro = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.quantile(micro, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A family's rankings, cut where no relabelling can look deeper."""

    codes: Int64[np.ndarray, " models"] = field(compare=False)
    groups: Int64[np.ndarray, " models"] = field(compare=False)
    nearest: Int64[np.ndarray, "labelled depth"] = field(compare=False)
    n_labels: int


def permutation_p(
    families: Sequence[LabelledModels],
    exclude: Exclude | None = None,
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> float | None:
    """Probability of a micro purity at least this high if labels meant nothing.

    Labels are shuffled among the labelled models of each base. Where one author or run
    stands behind many models of one label they are not exchangeable, and p is too small.
    None where the families are too large for this to be cheap, or hold no query.
    """
    if _cells(families) > MAX_CELLS:
        return None
    ranked = [_rank(family, exclude) for family in families]
    observed = _micro([(ranking, ranking.codes) for ranking in ranked])
    if observed is None:
        return None
    rng = np.random.default_rng(seed)
    as_high = 0
    for _ in range(permutations):
        shuffled = _micro([(ranking, _shuffle(ranking.codes, rng)) for ranking in ranked])
        as_high += shuffled is not None and shuffled >= observed - 1e-12
    return (1 + as_high) / (1 + permutations)


def _cells(families: Sequence[LabelledModels]) -> int:
    """Labelled models × the largest label's members, summed over families."""
    total = 0
    for family in families:
        counts = Counter(label for label in family.labels if label is not None)
        total += counts.total() * max(counts.values(), default=0)
    return total


def _rank(family: LabelledModels, exclude: Exclude | None) -> _Ranked:
    family, names, codes, groups = coded(family, exclude)
    labelled = np.flatnonzero(codes >= 0)
    depth = int(np.bincount(codes[labelled]).max()) if len(labelled) else 0
    nearest = np.full((len(labelled), depth), -1, dtype=np.int64)
    start = 0
    for rows, ranking in ranked_blocks(family, groups, labelled):
        cut = ranking[:, :depth]
        nearest[start : start + len(rows), : cut.shape[1]] = cut
        start += len(rows)
    return _Ranked(codes, groups, nearest, len(names))


def _shuffle(
    codes: Int64[np.ndarray, " models"], rng: np.random.Generator
) -> Int64[np.ndarray, " models"]:
    """The same codes, permuted among the labelled models."""
    shuffled = codes.copy()
    labelled = codes >= 0
    shuffled[labelled] = rng.permutation(codes[labelled])
    return shuffled


def _micro(relabelled: Sequence[tuple[_Ranked, Int64[np.ndarray, " _"]]]) -> float | None:
    """Micro purity of the rankings under these labels; None without a query."""
    total, queries = 0.0, 0
    for ranked, codes in relabelled:
        siblings = count_siblings(codes, ranked.groups, ranked.n_labels)[ranked.codes >= 0]
        own = codes[ranked.codes >= 0]
        counted = np.arange(ranked.nearest.shape[1])[None, :] < siblings[:, None]
        hits = (codes[ranked.nearest] == own[:, None]) & counted
        is_query = siblings > 0
        total += float((hits.sum(axis=1)[is_query] / siblings[is_query]).sum())
        queries += int(is_query.sum())
    return total / queries if queries else None
