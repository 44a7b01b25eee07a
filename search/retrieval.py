"""Same-dataset retrieval: which models are queries, what each retrieves, how sure that is.

Candidates are the labelled models; unlabelled ones, whose truth is unknown, only where they are
asked for. A query is a labelled model that has a sibling among its candidates. In a family of more
than `EVERY_QUERY` models a sample of them stands for all. For a labelled model with k−1 siblings,
take its k−1 nearest among its candidates; its purity is the share of them that carry its label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..records import Exclude as Exclude
from .family_scores import id_digest
from .labelled import BLOCK_BYTES, LabelledModels

EVERY_QUERY = 4_000
"""Models of a family up to which every labelled model with a sibling is a query."""

LARGE_BYTES = 256 * 2**20
"""Scores of a larger family held at a time: each block may read all of its sketches."""

SAMPLE = 1_000
"""Queries of a larger family. The standard error of micro is then at most 0.016."""

FEWEST_SAMPLED, MOST_PAIRS = 100, 40_000_000
"""Above 40,000 models fewer are sampled, so that a million take minutes."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Retrieval:
    """A family, its models by row in order of id, and who of them asks.

    Attributes:
        names: Of the datasets, sorted.
        codes: Each model's dataset as its place in `names`; −1 = unlabelled.
        groups: A number a model; a query's candidates have another.
        is_candidate: Whether a model may be retrieved at all.
        eligible: How many labelled models have a sibling among their candidates.
        queries: Those of them that are used; fewer where they are a sample.
    """

    family: LabelledModels
    names: tuple[str, ...]
    codes: Int64[np.ndarray, " models"]
    groups: Int64[np.ndarray, " models"]
    is_candidate: Bool[np.ndarray, " models"]
    eligible: int
    queries: Int64[np.ndarray, " queries"]

    @classmethod
    def of(
        cls,
        family: LabelledModels,
        exclude: Exclude | None = None,
        *,
        with_unlabelled: bool = False,
    ) -> Retrieval:
        """The retrieval that an evaluation of the family measures.

        Args:
            exclude: Removes the query's own author or run from its candidates and siblings.
            with_unlabelled: Whether unlabelled models are candidates.
        """
        family = family.sorted_by_id()
        names = sorted({label for label in family.labels if label is not None})
        codes, groups = label_codes(family.labels, names), exclusion_groups(family, exclude)
        eligible = np.flatnonzero(count_siblings(codes, groups, len(names)) > 0)
        return cls(
            family=family,
            names=tuple(names),
            codes=codes,
            groups=groups,
            is_candidate=(codes >= 0) | with_unlabelled,
            eligible=len(eligible),
            queries=_sample(family.ids, eligible) if len(codes) > EVERY_QUERY else eligible,
        )

    @property
    def is_large(self) -> bool:
        """Whether only queries are ranked, of which there may be a sample."""
        return len(self.codes) > EVERY_QUERY

    @property
    def is_sample(self) -> bool:
        """Whether the queries are a sample of the models that could ask."""
        return len(self.queries) < self.eligible

    def ranked_blocks(
        self, rows: Int64[np.ndarray, " rows"]
    ) -> Iterator[
        tuple[
            Int64[np.ndarray, " block"],
            Int64[np.ndarray, "block models"],
            Float64[np.ndarray, "block models"],
        ]
    ]:
        """Blocks of some rows with the rows of their candidates, nearest first, then −1; and
        with the scores of all models in order of row.

        Peak: about 64 MB beside what the family holds; 320 MB above `EVERY_QUERY` models.
        """
        n_models = len(self.codes)
        row_bytes = 8 * max(1, n_models)
        height = max(1, BLOCK_BYTES // row_bytes)
        scored = max(height, LARGE_BYTES // row_bytes) if self.is_large else height
        for start in range(0, len(rows), scored):
            scores = self.family.score_block(rows[start : start + scored])
            for part in range(0, len(scores), height):
                block = rows[start + part : min(start + part + height, start + scored)]
                block_scores = scores[part : part + height]
                yield block, self._ranked(block, block_scores), block_scores

    def _ranked(
        self, block: Int64[np.ndarray, " block"], scores: Float64[np.ndarray, "block models"]
    ) -> Int64[np.ndarray, "block models"]:
        allowed = (self.groups[block][:, None] != self.groups[None, :]) & self.is_candidate
        ranking = np.argsort(np.where(allowed, -scores, np.inf), axis=1, kind="stable")
        ranking[np.arange(len(self.codes))[None, :] >= allowed.sum(axis=1)[:, None]] = -1
        return ranking


def _sample(
    ids: Sequence[str], eligible: Int64[np.ndarray, " eligible"]
) -> Int64[np.ndarray, " queries"]:
    """`SAMPLE` rows, the same in every process and whatever else is in the family."""
    by_digest = sorted(eligible.tolist(), key=lambda row: id_digest(ids[row]))
    size = min(SAMPLE, max(FEWEST_SAMPLED, MOST_PAIRS // max(1, len(ids))))
    return np.array(sorted(by_digest[:size]), dtype=np.int64)


def label_codes(labels: Sequence[str | None], names: Sequence[str]) -> Int64[np.ndarray, " models"]:
    """Each label's position in `names`; −1 where there is none."""
    position = {name: code for code, name in enumerate(names)}
    return np.array([-1 if label is None else position[label] for label in labels], dtype=np.int64)


def exclusion_groups(
    family: LabelledModels, exclude: Exclude | None
) -> Int64[np.ndarray, " models"]:
    """A number a model; a query's candidates are the models of every other number.

    Without `exclude`, and for an unknown author or run, the group is the model alone.
    """
    if exclude is None:
        return np.arange(len(family.ids), dtype=np.int64)
    if exclude not in ("author", "run"):
        raise ValueError(f"exclude must be 'author' or 'run', got {exclude!r}")
    marks = family.authors if exclude == "author" else family.runs
    first: dict[str, int] = {}
    return np.array(
        [i if mark is None else first.setdefault(mark, i) for i, mark in enumerate(marks)],
        dtype=np.int64,
    )


def count_siblings(
    codes: Int64[np.ndarray, " models"], groups: Int64[np.ndarray, " models"], n_labels: int
) -> Int64[np.ndarray, " models"]:
    """Models of the same label outside the own group; 0 for unlabelled models."""
    siblings = np.zeros(len(codes), dtype=np.int64)
    labelled = codes >= 0
    own = codes[labelled]
    pairs = groups[labelled] * n_labels + own
    _, inverse, same_group = np.unique(pairs, return_inverse=True, return_counts=True)
    siblings[labelled] = np.bincount(own, minlength=n_labels)[own] - same_group[inverse]
    return siblings


MAX_CELLS = 20_000_000
"""Nearest candidates that are held for a permutation test; a larger family is not tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """What one labelled model retrieved.

    Attributes:
        siblings: k − 1: candidates with the model's own label.
        candidates: Everything that could have been retrieved.
        purity: Share of the `siblings` nearest that are siblings, 0…1.
        nn1: Whether the very nearest is a sibling.
        average_precision: Over the whole ranking, 0…1.
        retrieved: Labels of the `siblings` nearest, nearest first.
    """

    base: str
    model: str
    dataset: str
    siblings: int
    candidates: int
    purity: float
    nn1: bool
    average_precision: float
    retrieved: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """What the queries of a family retrieved, and what others would have.

    Attributes:
        results: One for each query, in order of id.
        rows: The models that other labels could make a query: all that are labelled, but of a
            large family the queries.
        nearest: Their nearest candidates, as many as the largest dataset has models, −1 beyond;
            none where that is more than `MAX_CELLS`.
    """

    results: list[QueryResult]
    rows: Int64[np.ndarray, " labelled"]
    nearest: Int64[np.ndarray, "labelled depth"]


def rank(retrieval: Retrieval) -> Ranked:
    """Every query's result, from one reading of the family's scores."""
    labelled = np.flatnonzero(retrieval.codes >= 0)
    rows = retrieval.queries if retrieval.is_large else labelled
    depth = int(np.bincount(retrieval.codes[labelled]).max(initial=0))
    if len(rows) * depth > MAX_CELLS:
        depth = 0
    nearest = np.full((len(rows), depth), -1, dtype=np.int64)
    is_query = np.isin(rows, retrieval.queries)
    results: list[QueryResult] = []
    start = 0
    for block, ranking, _ in retrieval.ranked_blocks(rows):
        nearest[start : start + len(block)] = ranking[:, :depth]
        chosen = is_query[start : start + len(block)]
        start += len(block)
        codes = np.where(ranking >= 0, retrieval.codes[ranking], -2)  # (block, models)
        for row, ranked in zip(block[chosen].tolist(), codes[chosen], strict=True):
            results.append(_score(retrieval, row, ranked[ranked >= -1]))
    return Ranked(results, rows, nearest)


def _score(retrieval: Retrieval, row: int, ranked: Int64[np.ndarray, " candidates"]) -> QueryResult:
    """Purity, hit at one and average precision of one ranking of label codes."""
    own, names = int(retrieval.codes[row]), retrieval.names
    hits = np.flatnonzero(ranked == own)  # ranks of the siblings, from 0
    k = len(hits)
    precision_at_hits = np.arange(1, k + 1) / (hits + 1)
    return QueryResult(
        base=retrieval.family.base,
        model=retrieval.family.ids[row],
        dataset=names[own],
        siblings=k,
        candidates=len(ranked),
        purity=float(np.count_nonzero(hits < k) / k),
        nn1=bool(hits[0] == 0),
        average_precision=float(precision_at_hits.mean()),
        retrieved=tuple(None if code < 0 else names[code] for code in ranked[:k].tolist()),
    )


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
    # scipy.stats.bootstrap has no two stages
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
    # scipy.stats.permutation_test takes one statistic a time, and other draws
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
