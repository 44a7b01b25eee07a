"""How well fingerprints retrieve models of the same dataset: the document of `eval`, rankings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Float64
from ..errors import RequestError, offered
from ..store import Catalog, FamilyView
from .labelled import BLOCK_BYTES, WAYS, LabelledModels, family_views, labelled_models
from .retrieval import (
    FEWEST,
    Exclude,
    QueryResult,
    Retrieval,
    Significance,
    bootstrap_interval,
    dataset_interval,
    permutation_test,
    rank,
)

if TYPE_CHECKING:
    import pyarrow as pa

MOST_MODELS = 4_000
"""Models of a family up to which all distances are held for its silhouette: 128 MB."""

SEVERAL_FAMILIES = "several families: each has its own in by_base"

MEASURES = """micro macro chance note lift ci95 ci95_reason p_value permutations nn1 map silhouette
by_dataset taken_for confusion"""
NO_MEASURES: Mapping[str, Any] = dict.fromkeys(MEASURES.split())


def evaluate(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    way: str = "normalised",
    seed: int = 0,
) -> dict[str, Any]:
    """The evaluation of the catalog's families, or one of them, under one recipe.

    Args:
        with_unlabelled: Whether unlabelled models are candidates.
        way: Of scoring; one of `WAYS`.

    Returns:
        The document of `eval --json`, as `evaluate_families` has it.

    Raises:
        EmptyCatalog, UnknownRecipe: As named.
        RequestError: No such base or way, or no two labelled models to compare.
    """
    check_ways([way])

    def read() -> tuple[list[FamilyView], list[LabelledModels], dict[str, Any]]:
        views = family_views(catalog, recipe, base)
        cost = catalog.cost(sorted({view.recipe.id for view in views}))
        return views, [labelled_models(view, way) for view in views], cost

    views, families, cost = catalog.look(read)
    # outside the snapshot: large families take minutes
    return evaluate_families(
        families,
        recipe=views[0].recipe.name,
        recipe_id=", ".join(sorted({view.recipe.id for view in views})),
        way=way,
        exclude=exclude,
        with_unlabelled=with_unlabelled,
        seed=seed,
        cost=cost,
    )


def check_ways(ways: Iterable[str]) -> None:
    """Refuse what is no way of scoring.

    Raises:
        RequestError: One is none of `WAYS`.
    """
    for way in ways:
        if way not in WAYS:
            raise RequestError(f"no way of scoring {way!r}{offered(way, WAYS)}")


def evaluate_families(
    families: Sequence[LabelledModels],
    *,
    recipe: str,
    recipe_id: str,
    way: str = "normalised",
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    seed: int = 0,
    cost: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The evaluation of families whose vectors one recipe made.

    A query meets the models of its own base only; no measure runs over several families.

    Args:
        cost: Of one model's fingerprint, where a catalog knows it: seconds and bytes.

    Returns:
        Counts of models: `labelled` (`queries`, `singletons`, `dropped`, and those that a sample
        left out), `datasets` (singletons' too), `singletons` (labelled models whose base has no
        other of that label), `dropped` (models all of whose siblings `exclude` removes). Measures,
        None where there is no query: `micro` (mean purity of the queries), `macro` (mean over
        datasets of their mean purity), `chance` (mean of siblings / candidates: what random vectors
        give), `lift` ((micro − chance) / (1 − chance)), `ci95` of micro by bootstrap over datasets,
        then models, or `ci95_reason`, `p_value` of micro by shuffling labels, `nn1` (share of
        queries whose nearest is of the same dataset), `map` (mean average precision over the whole
        ranking), `silhouette`, and `by_dataset`, `taken_for`, `confusion`. Of several families the
        counts are sums, the measures None, and `by_base` has each family's own.

    Raises:
        RequestError: No labelled model has a sibling that may be retrieved.
    """
    retrievals = [
        Retrieval.of(family, exclude, with_unlabelled=with_unlabelled) for family in families
    ]
    check_queries(retrievals, exclude)
    by_base = {
        retrieval.family.base: {**_counts([retrieval]), **_measures(retrieval, seed)}
        for retrieval in sorted(retrievals, key=lambda retrieval: retrieval.family.base)
    }
    is_one = len(families) == 1
    document = {
        "recipe": recipe,
        "recipe_id": recipe_id,
        "way": way,
        "base": families[0].base if is_one else None,
        **_counts(retrievals),
        "k": "siblings",
        **NO_MEASURES,
        **(by_base[families[0].base] if is_one else {"ci95_reason": SEVERAL_FAMILIES}),
        "cost": dict(cost),
        "exclude": exclude,
        "with_unlabelled": with_unlabelled,
    }
    if not is_one:
        document["by_base"] = {
            base: {"n": entry["queries"], **entry} for base, entry in by_base.items()
        }
    return document


def check_queries(retrievals: Sequence[Retrieval], exclude: Exclude | None) -> None:
    """Refuse families without a query.

    Raises:
        RequestError: It says in one line what would change that.
    """
    if any(retrieval.eligible for retrieval in retrievals):
        return
    counts = _counts(retrievals)
    n_models, labelled = counts["models"], counts["labelled"]
    if not labelled:
        raise RequestError(
            f"none of the {n_models} models has a dataset label: "
            "index them with --labels FILE (columns model,dataset)"
        )
    if counts["singletons"] == labelled:
        raise RequestError(
            f"{labelled} of {n_models} models are labelled, and no two share "
            "base and dataset: index a second model of one of them"
        )
    raise RequestError(
        f"--exclude {exclude} leaves no labelled model a sibling: within each base, "
        f"every dataset comes from one {exclude}; evaluate without it"
    )


def _counts(retrievals: Sequence[Retrieval]) -> dict[str, Any]:
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
        "sampled_queries": queries if any(one.is_sample for one in retrievals) else None,
        "singletons": singletons,
        "dropped": labelled - singletons - sum(retrieval.eligible for retrieval in retrievals),
    }


def _measures(retrieval: Retrieval, seed: int) -> dict[str, Any]:
    if not len(retrieval.queries):
        return {**NO_MEASURES, "ci95_reason": "no queries"}
    ranked = rank(retrieval)
    results = ranked.results
    significance = permutation_test(retrieval, ranked, seed=seed)
    by_dataset = _by_dataset(results, significance, seed)
    micro = fmean(result.purity for result in results)
    chance = fmean(result.siblings / result.candidates for result in results)
    interval = bootstrap_interval(results, seed=seed)
    return {
        "micro": micro,
        "macro": fmean(group["purity"] for group in by_dataset.values()),
        "chance": chance,
        "note": _note(chance),
        "lift": (micro - chance) / (1 - chance) if chance < 1 else None,
        "ci95": interval and list(interval),
        "ci95_reason": None if interval else _too_few(len(by_dataset)),
        "p_value": significance.p_value,
        "permutations": significance.permutations,
        "nn1": fmean(result.nn1 for result in results),
        "map": fmean(result.average_precision for result in results),
        "silhouette": mean_silhouette(retrieval.family),
        "by_dataset": by_dataset,
        "taken_for": _count_retrieved(results),
        "confusion": _confusion(results, retrieval.names),
    }


def _note(chance: float) -> str | None:
    """Why purity says nothing, where it does not."""
    return "every candidate has this label: no test" if chance == 1.0 else None


def _too_few(n_datasets: int) -> str:
    have = "1 dataset has" if n_datasets == 1 else f"{n_datasets} datasets have"
    return f"too few to tell: {have} siblings, an interval takes {FEWEST}"


def _by_dataset(
    results: Iterable[QueryResult], significance: Significance, seed: int
) -> dict[str, dict[str, Any]]:
    """The queries of each dataset; p is not corrected for the number of datasets."""
    members: dict[str, list[QueryResult]] = {}
    for result in results:
        members.setdefault(result.dataset, []).append(result)
    document = {}
    for name, group in sorted(members.items()):
        chance = fmean(result.siblings / result.candidates for result in group)
        interval = dataset_interval([result.purity for result in group], seed=seed)
        document[name] = {
            "n": len(group),
            "purity": fmean(result.purity for result in group),
            "chance": chance,
            "ci95": interval and list(interval),
            "p_value": significance.by_dataset.get(name),
            "note": _note(chance),
        }
    return document


def _count_retrieved(results: Iterable[QueryResult]) -> dict[str, list[dict[str, Any]]]:
    """How often the k−1 nearest of each dataset's models have a label, the most frequent first."""
    counts = Counter((result.dataset, label) for result in results for label in result.retrieved)
    document: dict[str, list[dict[str, Any]]] = {}
    for (dataset, label), n in sorted(
        counts.items(), key=lambda cell: (cell[0][0], -cell[1], cell[0][1] or "")
    ):
        document.setdefault(dataset, []).append({"dataset": label, "n": n})
    return document


def _confusion(results: Iterable[QueryResult], datasets: Sequence[str]) -> dict[str, Any]:
    """How often a query's very nearest is of which dataset; the last column is unlabelled."""
    counts = Counter((result.dataset, result.retrieved[0]) for result in results)
    rows = [[counts[row, column] for column in (*datasets, None)] for row in datasets]
    return {"datasets": list(datasets), "counts": rows}


def mean_silhouette(family: LabelledModels) -> float | None:
    """Mean silhouette (Rousseeuw 1987) of the labelled models, by cosine distance 1 − score.

    Models whose dataset no other model has count 0, as their definition says. None where there
    are no two datasets or no pair of siblings, or more than `MOST_MODELS` models.
    """
    rows = np.array([i for i, label in enumerate(family.labels) if label is not None])
    counts = Counter(family.labels[row] for row in rows)
    if len(family.ids) > MOST_MODELS or len(counts) < 2 or max(counts.values()) < 2:
        return None
    height = max(1, BLOCK_BYTES // (8 * len(family.ids)))
    blocks = [rows[start : start + height] for start in range(0, len(rows), height)]
    scores = np.concatenate([family.score_block(block)[:, rows] for block in blocks])
    return float(np.mean(silhouettes(scores, [str(family.labels[row]) for row in rows])))


def silhouettes(
    scores: Float64[np.ndarray, "models models"], groups: Sequence[str]
) -> Float64[np.ndarray, " models"]:
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


@dataclass(frozen=True, slots=True)
class Rankings:
    """The rankings of one family under one recipe, by one way of scoring."""

    recipe_id: str
    way: str
    retrieval: Retrieval

    def tables(self) -> Iterator[pa.Table]:
        """A row for each query and candidate, some queries at a time: base, recipe, way, query,
        query_dataset, rank (from 1), model, dataset, author, run, score."""
        import pyarrow as pa

        family = self.retrieval.family
        columns = (family.ids, family.labels, family.authors, family.runs)
        constants = ([family.base], [self.recipe_id], [self.way])
        ids, datasets, authors, runs, base, recipe, way = (
            pa.array(values, pa.string()).dictionary_encode() for values in (*columns, *constants)
        )
        for block, ranking, scores in self.retrieval.ranked_blocks(self.retrieval.queries):
            places, ranks = np.nonzero(ranking >= 0)
            queries, models = block[places], ranking[places, ranks]
            first = np.zeros(len(models), dtype=np.int64)
            yield pa.table(
                {
                    "base": base.take(first),
                    "recipe": recipe.take(first),
                    "way": way.take(first),
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


def rankings(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    ways: Sequence[str] = ("normalised",),
) -> list[Rankings]:
    """What `evaluate` ranks, for each family and way.

    Raises:
        EmptyCatalog, UnknownRecipe, RequestError: as `evaluate`.
    """
    check_ways(ways)

    def read() -> list[tuple[FamilyView, str, LabelledModels]]:
        views = family_views(catalog, recipe, base)
        return [(view, way, labelled_models(view, way)) for way in ways for view in views]

    found = []
    for view, way, family in catalog.look(read):
        retrieval = Retrieval.of(family, exclude, with_unlabelled=with_unlabelled)
        found.append(Rankings(view.recipe.id, way, retrieval))
    check_queries([ranking.retrieval for ranking in found], exclude)
    return found
