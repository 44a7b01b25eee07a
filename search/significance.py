"""How far purity can be trusted: an interval over datasets and models, a test against chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float64, Int64
from .precision import QueryResult, Ranked
from .retrieval import Retrieval, count_siblings

RESAMPLES = 2_000

FEWEST = 5
"""Datasets with queries, or queries of one dataset, below which there is no interval: a bootstrap
over two or three says nothing."""

PERMUTATIONS = 999
FEWEST_PERMUTATIONS = 99

LOOKUPS = 200_000_000
"""Retrieved labels looked up in all permutations, which takes about two seconds: larger families
have fewer permutations."""

Interval = tuple[float, float]


def bootstrap_interval(
    results: Sequence[QueryResult], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """95 % percentile interval of micro purity; None below `FEWEST` datasets.

    Datasets are drawn with replacement, then as many models of each as it has: models of one
    dataset are not independent, datasets nearly are (two-stage bootstrap; Davison and Hinkley
    1997, section 3.8).
    """
    purities: dict[str, list[float]] = {}
    for result in results:
        purities.setdefault(result.dataset, []).append(result.purity)
    if len(purities) < FEWEST:
        return None
    sizes = np.array([len(purities[name]) for name in sorted(purities)])
    values = np.concatenate([purities[name] for name in sorted(purities)])
    first = np.cumsum(sizes) - sizes
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    for draw in range(resamples):
        datasets = rng.integers(len(sizes), size=len(sizes))
        drawn = np.repeat(datasets, sizes[datasets])
        means[draw] = values[first[drawn] + rng.integers(sizes[drawn])].mean()
    return _percentiles(means)


def dataset_interval(
    purities: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """95 % percentile interval of one dataset's mean purity, its models drawn with replacement;
    None below `FEWEST` models."""
    if len(purities) < FEWEST:
        return None
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(purities), size=(resamples, len(purities)))
    return _percentiles(np.asarray(purities)[draws].mean(axis=1))


def _percentiles(means: Float64[np.ndarray, " draws"]) -> Interval:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Significance:
    """Probabilities of purities at least as high if labels meant nothing.

    Attributes:
        p_value: Of the family's micro purity; None where it is too large for this.
        by_dataset: Of each dataset's mean purity, not corrected for their number.
        permutations: How often labels were shuffled; p is at least 1 / (1 + permutations).
    """

    p_value: float | None = None
    by_dataset: Mapping[str, float] = field(default_factory=dict)
    permutations: int | None = None


def permutation_test(
    retrieval: Retrieval, ranked: Ranked, *, seed: int = 0, permutations: int = PERMUTATIONS
) -> Significance:
    """Whether purity is above what labels give that mean nothing.

    Labels are shuffled among all labelled models; where queries are a sample, purity is that of
    the sampled models. Where one author or run stands behind many models of one label they are
    not exchangeable, and p is too small.

    Args:
        ranked: What `rank` says of the retrieval.
    """
    cells = ranked.nearest.size
    if not cells:
        return Significance()
    permutations = max(min(permutations, LOOKUPS // cells), FEWEST_PERMUTATIONS)
    micro, by_code = _means(retrieval, ranked, retrieval.codes)
    labelled = np.flatnonzero(retrieval.codes >= 0)
    rng = np.random.default_rng(seed)
    shuffled = retrieval.codes.copy()
    as_high, as_high_by_code = 0, np.zeros(len(by_code), dtype=np.int64)
    for _ in range(permutations):
        shuffled[labelled] = rng.permutation(retrieval.codes[labelled])
        other, other_by_code = _means(retrieval, ranked, shuffled)
        as_high += other >= micro - 1e-12
        as_high_by_code += other_by_code >= by_code - 1e-12
    return Significance(
        (1 + as_high) / (1 + permutations),
        {
            name: (1 + int(as_high_by_code[code])) / (1 + permutations)
            for code, name in enumerate(retrieval.names)
            if not np.isnan(by_code[code])
        },
        permutations,
    )


def _means(
    retrieval: Retrieval, ranked: Ranked, codes: Int64[np.ndarray, " models"]
) -> tuple[float, Float64[np.ndarray, " names"]]:
    """Mean purity of all queries and of each dataset's under these labels; NaN of none."""
    n_labels = len(retrieval.names)
    siblings = count_siblings(codes, retrieval.groups, n_labels)[ranked.rows]
    own = codes[ranked.rows]
    counted = np.arange(ranked.nearest.shape[1])[None, :] < siblings[:, None]
    hits = (codes[ranked.nearest] == own[:, None]) & counted
    is_query = siblings > 0
    purities = hits.sum(axis=1)[is_query] / siblings[is_query]
    counts = np.bincount(own[is_query], minlength=n_labels)
    sums = np.bincount(own[is_query], purities, minlength=n_labels)
    with np.errstate(invalid="ignore"):
        return float(np.divide(sums.sum(), counts.sum())), sums / counts
