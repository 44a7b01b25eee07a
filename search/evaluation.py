"""Same-dataset retrieval: who asks, what is retrieved, how sure that is; the document of `eval`.

Candidates are the labelled models; unlabelled ones, whose truth is unknown, only where they are
asked for. A query is a labelled model that has a sibling among its candidates. For a labelled model
with k−1 siblings, take its k−1 nearest among its candidates; its purity is the share of them that
carry its label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, starmap
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..errors import RequestError, offered
from ..records import Exclude as Exclude
from ..results import agree, count
from ..store import Catalog, FamilyView
from . import evidence
from .family_scores import Codes, Rows, id_digest
from .labelled import BLOCK_BYTES, WAYS, LabelledModels, family_views, labelled_models

if TYPE_CHECKING:
    import pyarrow as pa

EVERY_QUERY = 4_000
"""Models of a family up to which every labelled model with a sibling is a query."""

LARGE_BYTES = 256 * 2**20
"""Scores of a larger family held at a time: each block may read all of its sketches."""

SAMPLE = 1_000
"""Queries of a larger family. The standard error of micro is then at most 0.016."""

FEWEST_SAMPLED, MOST_PAIRS = 100, 40_000_000
"""Above 40,000 models fewer are sampled, so that a million take minutes."""


RankedBlock = tuple[
    Int64[np.ndarray, " block"],
    Int64[np.ndarray, "block models"],
    Float64[np.ndarray, "block models"],
]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FamilyRetrieval:
    """A family, and who of its models asks.

    `codes` are datasets as places in `names`, −1 for none; a query's candidates have another number
    in `groups`; `eligible` labelled models have a sibling among their candidates.
    """

    family: LabelledModels
    names: tuple[str, ...]
    codes: Codes
    groups: Codes
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
        queries: int | None = None,
    ) -> FamilyRetrieval:
        """The retrieval that an evaluation measures; `exclude` removes the query's own author or
        run from its candidates and siblings. Of a large family `queries` are sampled."""
        names = sorted({label for label in family.labels if label is not None})
        marks = {"author": family.authors, "run": family.runs, None: (None,) * len(family.ids)}
        codes = evidence.codes_of_labels(family.labels)
        groups = evidence.marked_groups(marks[exclude])
        eligible = np.flatnonzero(count_siblings(codes, groups, len(names)) > 0)
        return cls(
            family=family,
            names=tuple(names),
            codes=codes,
            groups=groups,
            is_candidate=(codes >= 0) | with_unlabelled,
            eligible=len(eligible),
            queries=_sample(family.ids, eligible, queries)
            if len(codes) > EVERY_QUERY
            else eligible,
        )

    @property
    def is_large(self) -> bool:
        """Whether only queries are ranked, of which there may be a sample."""
        return len(self.codes) > EVERY_QUERY

    def ranked_blocks(self, rows: Rows) -> Iterator[RankedBlock]:
        """Blocks of some rows with the rows of their candidates, nearest first, then −1; and with
        the scores of all models in order of row.

        Peak: about 64 MB beside what the family holds; 320 MB above `EVERY_QUERY` models.
        """
        n_models = len(self.codes)
        row_bytes = 8 * max(1, n_models)
        height = max(1, BLOCK_BYTES // row_bytes)
        scored = max(height, LARGE_BYTES // row_bytes) if self.is_large else height
        for start in range(0, len(rows), scored):
            scores = self.family.scores_between(rows[start : start + scored], np.arange(n_models))
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
    ids: Sequence[str], eligible: Int64[np.ndarray, " eligible"], size: int | None
) -> Int64[np.ndarray, " queries"]:
    """So many rows, else `SAMPLE`: the same in every process and whatever else is in the family; a
    smaller sample is part of a larger one."""
    by_digest = sorted(eligible.tolist(), key=lambda row: id_digest(ids[row]))
    size = size or min(SAMPLE, max(FEWEST_SAMPLED, MOST_PAIRS // max(1, len(ids))))
    return np.array(sorted(by_digest[:size]), dtype=np.int64)


def count_siblings(codes: Codes, groups: Codes, n_labels: int) -> Codes:
    """Models of the same label outside the own group; 0 for unlabelled models."""
    siblings = np.zeros(len(codes), dtype=np.int64)
    labelled = codes >= 0
    own = codes[labelled]
    siblings[labelled] = np.bincount(own, minlength=n_labels)[own] - 1
    together = np.bincount(groups)[groups] > 1
    shared = np.flatnonzero(labelled & together)
    if len(shared):
        pairs = groups[shared] * n_labels + codes[shared]
        _, inverse, same_group = np.unique(pairs, return_inverse=True, return_counts=True)
        siblings[shared] -= same_group[inverse] - 1
    return siblings


MAX_CELLS = 20_000_000
"""Nearest candidates that are held for a permutation test; a larger family is not tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRetrieval:
    """What one labelled model retrieved: purity is the share of the `siblings` nearest that are
    siblings, whose labels are `retrieved`; average precision is over the whole ranking."""

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
    """What the queries of a family retrieved, in order of id, and what others would have.

    `rows` are models that other labels could make a query: all that are labelled, but of a large
    family the queries. `nearest` are their nearest candidates, as many as the largest dataset has
    models, −1 beyond; none where that is more than `MAX_CELLS`.
    """

    results: list[QueryRetrieval]
    rows: Int64[np.ndarray, " labelled"]
    nearest: Int64[np.ndarray, "labelled depth"]


def rank(retrieval: FamilyRetrieval) -> Ranked:
    """Every query's result, from one reading of the family's scores."""
    labelled = np.flatnonzero(retrieval.codes >= 0)
    rows = retrieval.queries if retrieval.is_large else labelled
    depth = int(np.bincount(retrieval.codes[labelled]).max(initial=0))
    if len(rows) * depth > MAX_CELLS:
        depth = 0
    nearest = np.full((len(rows), depth), -1, dtype=np.int64)
    is_query = np.isin(rows, retrieval.queries)
    results: list[QueryRetrieval] = []
    start = 0
    for block, ranking, _ in retrieval.ranked_blocks(rows):
        nearest[start : start + len(block)] = ranking[:, :depth]
        chosen = is_query[start : start + len(block)]
        start += len(block)
        codes = np.where(ranking >= 0, retrieval.codes[ranking], -2)  # (block, models)
        for row, ranked in zip(block[chosen].tolist(), codes[chosen], strict=True):
            results.append(_score(retrieval, row, ranked[ranked >= -1]))
    return Ranked(results, rows, nearest)


def _score(
    retrieval: FamilyRetrieval, row: int, ranked: Int64[np.ndarray, " candidates"]
) -> QueryRetrieval:
    """Purity, nn1 and average precision of one ranking of label codes."""
    own, names = int(retrieval.codes[row]), retrieval.names
    hits = np.flatnonzero(ranked == own)  # ranks of the siblings, from 0
    k = len(hits)
    precision_at_hits = np.arange(1, k + 1) / (hits + 1)
    return QueryRetrieval(
        model=retrieval.family.ids[row],
        dataset=names[own],
        siblings=k,
        candidates=len(ranked),
        purity=float(np.count_nonzero(hits < k) / k),
        nn1=bool(hits[0] == 0),
        average_precision=float(precision_at_hits.mean()),
        retrieved=tuple(None if code < 0 else names[code] for code in ranked[:k].tolist()),
    )


RESAMPLES, SEED = 2_000, 0

FEWEST = 5
"""Datasets with queries, or queries of one, below which a bootstrap says nothing."""

PERMUTATIONS = 999
FEWEST_PERMUTATIONS = 99

LOOKUPS = 200_000_000
"""Retrieved labels looked up in all permutations, in two seconds; beyond, these are fewer."""

Interval = tuple[float, float]


def bootstrap_interval(results: Sequence[QueryRetrieval]) -> Interval | None:
    """95 % percentile interval of micro purity; None below `FEWEST` datasets.

    Datasets are drawn with replacement, then as many models of each as it has (two-stage bootstrap;
    Davison and Hinkley 1997, section 3.8).
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
    rng = np.random.default_rng(SEED)
    means = np.empty(RESAMPLES)
    for draw in range(RESAMPLES):
        datasets = rng.integers(len(sizes), size=len(sizes))
        drawn = np.repeat(datasets, sizes[datasets])
        means[draw] = values[first[drawn] + rng.integers(sizes[drawn])].mean()
    return _percentiles(means)


def dataset_interval(purities: Sequence[float]) -> Interval | None:
    """95 % percentile interval of one dataset's mean purity, its models drawn with replacement;
    None below `FEWEST` models."""
    if len(purities) < FEWEST:
        return None
    rng = np.random.default_rng(SEED)
    draws = rng.integers(len(purities), size=(RESAMPLES, len(purities)))
    return _percentiles(np.asarray(purities)[draws].mean(axis=1))


def _percentiles(means: Float64[np.ndarray, " draws"]) -> Interval:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def permutation_test(
    retrieval: FamilyRetrieval, ranked: Ranked
) -> tuple[float | None, dict[str, float], int | None]:
    """Probabilities of purities at least as high if labels meant nothing, of micro purity and of
    each dataset's, not corrected for their number, and the permutations; none of a large family.

    Labels are shuffled among all labelled models; where queries are a sample, purity is that of the
    sampled models. Where one author or run stands behind many models of one label they are not
    exchangeable, and p is too small.
    """
    # scipy.stats.permutation_test takes one statistic a time, and other draws
    cells = ranked.nearest.size
    if not cells:
        return None, {}, None
    permutations = max(min(PERMUTATIONS, LOOKUPS // cells), FEWEST_PERMUTATIONS)
    micro, by_code = _means(retrieval, ranked, retrieval.codes)
    labelled = np.flatnonzero(retrieval.codes >= 0)
    rng = np.random.default_rng(SEED)
    shuffled = retrieval.codes.copy()
    as_high, as_high_by_code = 0, np.zeros(len(by_code), dtype=np.int64)
    for _ in range(permutations):
        shuffled[labelled] = rng.permutation(retrieval.codes[labelled])
        other, other_by_code = _means(retrieval, ranked, shuffled)
        as_high += other >= micro - 1e-12
        as_high_by_code += other_by_code >= by_code - 1e-12
    return (
        (1 + as_high) / (1 + permutations),
        {
            name: (1 + int(as_high_by_code[code])) / (1 + permutations)
            for code, name in enumerate(retrieval.names)
            if not np.isnan(by_code[code])
        },
        permutations,
    )


def _means(
    retrieval: FamilyRetrieval, ranked: Ranked, codes: Codes
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


SEVERAL_FAMILIES = "several families: each has its own in by_base"

MEASURES = """micro macro chance note lift ci95 ci95_reason p_value permutations nn1 map silhouette
by_dataset taken_for confusion suspects labels_compared"""
NO_MEASURES: Mapping[str, Any] = dict.fromkeys(MEASURES.split())


def evaluate(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    way: str = "normalised",
    queries: int | None = None,
) -> dict[str, Any]:
    """The document of `eval --json`, as `evaluate_families` has it: of the catalog's families, or
    one of them, under one recipe and one of `WAYS` of scoring; so many `queries` of a large one.

    Raises EmptyCatalog, UnknownRecipe, and RequestError for no such base or way, or no two labelled
    models to compare.
    """
    check_ways([way])

    def read() -> tuple[list[FamilyView], list[LabelledModels], dict[str, Any]]:
        views = family_views(catalog, recipe, base)
        cost = catalog.cost(sorted({view.recipe.id for view in views}))
        return views, [labelled_models(view, way) for view in views], cost

    views, families, cost = catalog.look(read)
    # outside the snapshot: large families take minutes
    return {
        "recipe": views[0].recipe.name,
        "recipe_id": ", ".join(sorted({view.recipe.id for view in views})),
        "way": way,
        **evaluate_families(families, exclude, with_unlabelled, queries, cost),
    }


def check_ways(ways: Iterable[str]) -> None:
    """Raise `RequestError` where one is none of `WAYS`."""
    for way in ways:
        if way not in WAYS:
            raise RequestError(f"no way of scoring {way!r}{offered(way, WAYS)}")


def evaluate_families(
    families: Sequence[LabelledModels],
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    queries: int | None = None,
    cost: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The evaluation of families whose vectors one recipe made; of one of more than `EVERY_QUERY`
    models so many `queries` are sampled, None for `SAMPLE` or less. `cost`: of one model's
    fingerprint, where a catalog knows it.

    A query meets the models of its own base only; no measure runs over several families.

    Returns:
        Counts of models: `labelled` (`queries`, `singletons`, `dropped`, and those that a sample
        left out), `datasets` (singletons' too), `singletons` (labelled models whose base has no
        other of that label), `dropped` (models all of whose siblings `exclude` removes). Measures,
        None where there is no query: `micro` (mean purity of the queries), `macro` (mean over
        datasets of their mean purity), `chance` (mean of siblings / candidates: what random vectors
        give), `lift` ((micro − chance) / (1 − chance)), `ci95` of micro by bootstrap over datasets,
        then models, or `ci95_reason`, `p_value` of micro by shuffling labels, `nn1` (share of
        queries whose nearest is of the same dataset), `map` (mean average precision over the whole
        ranking), `silhouette`, and `by_dataset`, `taken_for`, `confusion`, `suspects` (labels that
        contradict the distances, of `labels_compared`; None where z is not what ranks). Of several
        families the counts are sums, the measures None, and `by_base` has each family's own.

    Raises:
        RequestError: No labelled model has a sibling that may be retrieved.
    """
    retrievals = [
        FamilyRetrieval.of(family, exclude, with_unlabelled=with_unlabelled, queries=queries)
        for family in families
    ]
    check_queries(retrievals, exclude)
    by_base = {
        retrieval.family.base: {**_counts([retrieval]), **_measures(retrieval)}
        for retrieval in sorted(retrievals, key=lambda retrieval: retrieval.family.base)
    }
    is_one = len(families) == 1
    document = {
        "base": families[0].base if is_one else None,
        **_counts(retrievals),
        "k": "siblings",
        **NO_MEASURES,
        **(by_base[families[0].base] if is_one else {"ci95_reason": SEVERAL_FAMILIES}),
        "cost": cost or {},
        "exclude": exclude,
        "with_unlabelled": with_unlabelled,
    }
    if not is_one:
        document["by_base"] = {
            base: {"n": entry["queries"], **entry} for base, entry in by_base.items()
        }
    return document


def check_queries(retrievals: Sequence[FamilyRetrieval], exclude: Exclude | None) -> None:
    """Raise `RequestError` for families without a query; it says what would change that."""
    if any(retrieval.eligible for retrieval in retrievals):
        return
    counts = _counts(retrievals)
    n_models, labelled = counts["models"], counts["labelled"]
    if not labelled:
        raise RequestError(
            f"no model of {n_models} has a dataset label: "
            "index them with --labels FILE (columns model,dataset)"
        )
    if counts["singletons"] == labelled:
        raise RequestError(
            f"{labelled} of {count(n_models, 'model')} {agree(labelled, 'is')} labelled, and no "
            "two share base and dataset: index a second model of one of them"
        )
    raise RequestError(
        f"--exclude {exclude} leaves no labelled model a sibling: within each base, "
        f"every dataset comes from one {exclude}; evaluate without it"
    )


def _counts(retrievals: Sequence[FamilyRetrieval]) -> dict[str, Any]:
    """Who asked, and who did not; a dataset of two families is counted once."""
    labels = [
        Counter(label for label in retrieval.family.labels if label is not None)
        for retrieval in retrievals
    ]
    models = sum(len(retrieval.codes) for retrieval in retrievals)
    labelled = sum(counts.total() for counts in labels)
    singletons = sum(list(counts.values()).count(1) for counts in labels)
    queries = sum(len(retrieval.queries) for retrieval in retrievals)
    return {
        "models": models,
        "labelled": labelled,
        "unlabelled": models - labelled,
        "datasets": len(set().union(*labels)),
        "queries": queries,
        "sampled_queries": queries
        if any(len(one.queries) < one.eligible for one in retrievals)
        else None,
        "singletons": singletons,
        "dropped": labelled - singletons - sum(retrieval.eligible for retrieval in retrievals),
    }


def _measures(retrieval: FamilyRetrieval) -> dict[str, Any]:
    if not len(retrieval.queries):
        return {**NO_MEASURES, "ci95_reason": "no queries"}
    ranked, family = rank(retrieval), retrieval.family
    results = ranked.results
    p_value, p_by_dataset, permutations = permutation_test(retrieval, ranked)
    by_dataset = _by_dataset(results, p_by_dataset)
    micro = fmean(result.purity for result in results)
    chance = fmean(result.siblings / result.candidates for result in results)
    interval = bootstrap_interval(results)
    have = f"{count(len(by_dataset), 'dataset')} {agree(len(by_dataset), 'has')}"
    suspects, compared = suspect_labels(family)
    too_few = f"too few to tell: {have} siblings, an interval takes {FEWEST}"
    return {
        "micro": micro,
        "macro": fmean(group["purity"] for group in by_dataset.values()),
        "chance": chance,
        "note": _note(chance),
        "lift": (micro - chance) / (1 - chance) if chance < 1 else None,
        "ci95": interval and list(interval),
        "ci95_reason": None if interval else too_few,
        "p_value": p_value,
        "permutations": permutations,
        "nn1": fmean(result.nn1 for result in results),
        "map": fmean(result.average_precision for result in results),
        "silhouette": None if retrieval.is_large else family_silhouette(family, family.labels),
        "by_dataset": by_dataset,
        "taken_for": _count_retrieved(results),
        "confusion": _confusion(results, retrieval.names),
        "suspects": [one.to_json(family.ids) for one in suspects] if compared else None,
        "labels_compared": compared,
    }


def suspect_labels(family: LabelledModels) -> tuple[list[evidence.Suspect], int]:
    """The models whose labels contradict their distances to models of other runs, and how many
    labels were compared: those of a sample in a large family, none where z is not what ranks."""
    labelled = np.array([row for row, label in enumerate(family.labels) if label], dtype=np.int64)
    if (
        family.source is None
        or family.source.way != "normalised"
        or len(family.ids) < evidence.FEWEST_MODELS
    ):
        return [], 0
    if len(labelled) > EVERY_QUERY:
        labelled = _sample(family.ids, labelled, SAMPLE)
    rows = labelled.tolist()
    pairs = family.pairs_between(labelled, labelled)
    strangers = (pairs.cosines < evidence.COPY_COSINE) & ~np.eye(len(rows), dtype=np.bool_)
    strangers &= evidence.other_runs([family.runs[row] for row in rows])
    found = evidence.name_suspects(pairs.z, [family.labels[row] for row in rows], strangers)
    return [replace(one, place=rows[one.place]) for one in found], len(rows)


def _note(chance: float) -> str | None:
    return "every candidate has this label: no test" if chance == 1.0 else None


def _by_dataset(
    results: Iterable[QueryRetrieval], p_values: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """The queries of each dataset; p is not corrected for the number of datasets."""
    members: dict[str, list[QueryRetrieval]] = {}
    for result in results:
        members.setdefault(result.dataset, []).append(result)
    document = {}
    for name, group in sorted(members.items()):
        chance = fmean(result.siblings / result.candidates for result in group)
        interval = dataset_interval([result.purity for result in group])
        document[name] = {
            "n": len(group),
            "purity": fmean(result.purity for result in group),
            "chance": chance,
            "ci95": interval and list(interval),
            "p_value": p_values.get(name),
            "note": _note(chance),
        }
    return document


def _count_retrieved(results: Iterable[QueryRetrieval]) -> dict[str, list[dict[str, Any]]]:
    """How often the k−1 nearest of each dataset's models have a label, the most frequent first."""
    counts = Counter((result.dataset, label) for result in results for label in result.retrieved)
    document: dict[str, list[dict[str, Any]]] = {}
    for (dataset, label), n in sorted(
        counts.items(), key=lambda cell: (cell[0][0], -cell[1], cell[0][1] or "")
    ):
        document.setdefault(dataset, []).append({"dataset": label, "n": n})
    return document


def _confusion(results: Iterable[QueryRetrieval], datasets: Sequence[str]) -> dict[str, Any]:
    """How often a query's very nearest is of which dataset; the last column is unlabelled."""
    counts = Counter((result.dataset, result.retrieved[0]) for result in results)
    rows = [[counts[row, column] for column in (*datasets, None)] for row in datasets]
    return {"datasets": list(datasets), "counts": rows}


def mean_silhouette(scores: evidence.Square, marks: Sequence[str | None]) -> float | None:
    """Mean silhouette (Rousseeuw 1987) of marked models by cosine distance 1 − score, from every
    pair's scores; 0 of one that is alone. None without two marks or a pair of siblings."""
    rows = [row for row, mark in enumerate(marks) if mark is not None]
    names = [str(marks[row]) for row in rows]
    if not 2 <= len(set(names)) < len(names):
        return None
    return float(np.mean(silhouettes(scores[np.ix_(rows, rows)], names)))


def family_silhouette(family: LabelledModels, marks: Sequence[str | None]) -> float | None:
    """The same, of all marked models of a family. Peak: every pair's score, twice."""
    every = np.arange(len(marks))
    return mean_silhouette(family.scores_between(every, every), marks)


def silhouettes(scores: evidence.Square, groups: Sequence[str]) -> evidence.Numbers:
    """The silhouette of every model by distance 1 − score; 0 for a model that is alone.

    scikit-learn's function gives the same: to import it takes five times as long as `eval`.
    """
    names, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    distances = np.clip(1.0 - scores, 0.0, None)
    np.fill_diagonal(distances, 0.0)
    rows = np.arange(len(codes))
    sums = distances @ np.equal.outer(codes, np.arange(len(names))).astype(np.float64)
    others = sizes[codes] - 1
    within = sums[rows, codes] / np.maximum(others, 1)
    means = sums / sizes
    means[rows, codes] = np.inf
    between = means.min(axis=1)
    longest = np.maximum(within, between)
    is_defined = (others > 0) & (longest > 0)
    values = np.zeros(len(codes))
    np.divide(between - within, longest, out=values, where=is_defined)
    return values


def rankings(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    ways: Sequence[str] = ("normalised",),
) -> Iterator[pa.Table]:
    """What `evaluate` ranks, for each family and way; it raises the same. A row for each query and
    candidate, some queries at a time: base, recipe, way, query, query_dataset, rank (from 1),
    model, dataset, author, run, score."""
    check_ways(ways)

    def read() -> list[tuple[FamilyView, str, LabelledModels]]:
        views = family_views(catalog, recipe, base)
        return [(view, way, labelled_models(view, way)) for way in ways for view in views]

    found = [
        (FamilyRetrieval.of(family, exclude, with_unlabelled=with_unlabelled), view.recipe.id, way)
        for view, way, family in catalog.look(read)
    ]
    check_queries([retrieval for retrieval, *_ in found], exclude)
    return chain.from_iterable(starmap(_ranking_tables, found))


def _ranking_tables(retrieval: FamilyRetrieval, recipe_id: str, way: str) -> Iterator[pa.Table]:
    import pyarrow as pa

    family = retrieval.family
    columns = (family.ids, family.labels, family.authors, family.runs)
    constants = ([family.base], [recipe_id], [way])
    ids, datasets, authors, runs, bases, recipes, ways = (
        pa.array(values, pa.string()).dictionary_encode() for values in (*columns, *constants)
    )
    for block, ranking, scores in retrieval.ranked_blocks(retrieval.queries):
        places, ranks = np.nonzero(ranking >= 0)
        queries, models = block[places], ranking[places, ranks]
        first = np.zeros(len(models), dtype=np.int64)
        yield pa.table(
            {
                "base": bases.take(first),
                "recipe": recipes.take(first),
                "way": ways.take(first),
                "query": ids.take(queries),
                "query_dataset": datasets.take(queries),
                "rank": (ranks + 1).astype(np.int32),
                "model": ids.take(models),
                "dataset": datasets.take(models),
                "author": authors.take(models),
                "run": runs.take(models),
                "score": scores[places, models],
            }
        )
