"""How well a catalog's fingerprints retrieve models of the same dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np

from ..arrays import Float64
from ..errors import RequestError, offered
from ..store import Catalog, FamilyView
from .evaluation import (
    Confusion,
    Counts,
    DatasetScores,
    Evaluation,
    FamilyScores,
    RetrievedLabel,
    Scores,
)
from .labelled import BLOCK_BYTES, WAYS, LabelledModels, family_views, labelled_models
from .precision import QueryResult, rank
from .retrieval import Exclude, Retrieval
from .significance import (
    FEWEST,
    Significance,
    bootstrap_interval,
    dataset_interval,
    permutation_test,
)

MOST_MODELS = 4_000
"""Models of a family up to which all distances are held for its silhouette: 128 MB."""

SEVERAL_FAMILIES = "several families: each has its own in by_base"


def evaluate(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    exclude: Exclude | None = None,
    with_unlabelled: bool = False,
    way: str = "normalised",
    seed: int = 0,
) -> Evaluation:
    """The evaluation of the catalog's families, or one of them, under one recipe.

    Args:
        with_unlabelled: Whether unlabelled models are candidates.
        way: Of scoring; one of `WAYS`.

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
) -> Evaluation:
    """The evaluation of families whose vectors one recipe made.

    A query meets the models of its own base only; no measure runs over several families.

    Raises:
        RequestError: No labelled model has a sibling that may be retrieved.
    """
    retrievals = [
        Retrieval.of(family, exclude, with_unlabelled=with_unlabelled) for family in families
    ]
    check_queries(retrievals, exclude)
    by_base = [_family_scores(retrieval, seed) for retrieval in retrievals]
    by_base.sort(key=lambda scores: scores.base)
    labels = {label for family in families for label in family.labels if label is not None}
    if len(by_base) == 1:
        measures = {entry.name: getattr(by_base[0], entry.name) for entry in fields(Scores)}
    else:
        measures = {**_sums(by_base, len(labels)), "ci95_reason": SEVERAL_FAMILIES}
    return Evaluation(
        recipe=recipe,
        recipe_id=recipe_id,
        way=way,
        exclude=exclude,
        with_unlabelled=with_unlabelled,
        cost=cost,
        by_base=tuple(by_base),
        **measures,
    )


def check_queries(retrievals: Sequence[Retrieval], exclude: Exclude | None) -> None:
    """Refuse families without a query.

    Raises:
        RequestError: It says in one line what would change that.
    """
    if any(retrieval.eligible for retrieval in retrievals):
        return
    counts = [_counts(retrieval) for retrieval in retrievals]
    n_models, labelled = sum(c.models for c in counts), sum(c.labelled for c in counts)
    if not labelled:
        raise RequestError(
            f"none of the {n_models} models has a dataset label: "
            "index them with --labels FILE (columns model,dataset)"
        )
    if sum(c.singletons for c in counts) == labelled:
        raise RequestError(
            f"{labelled} of {n_models} models are labelled, and no two share "
            "base and dataset: index a second model of one of them"
        )
    raise RequestError(
        f"--exclude {exclude} leaves no labelled model a sibling: within each base, "
        f"every dataset comes from one {exclude}; evaluate without it"
    )


def _counts(retrieval: Retrieval) -> Counts:
    labels = Counter(label for label in retrieval.family.labels if label is not None)
    singletons = list(labels.values()).count(1)
    return Counts(
        models=len(retrieval.codes),
        labelled=labels.total(),
        datasets=len(labels),
        queries=len(retrieval.queries),
        singletons=singletons,
        dropped=labels.total() - singletons - retrieval.eligible,
        eligible=retrieval.eligible,
        is_sample=retrieval.is_sample,
    )


def _sums(families: Sequence[FamilyScores], n_datasets: int) -> dict[str, Any]:
    """The counts of several families; a dataset of two is counted once."""
    sums = {
        entry.name: sum(getattr(family, entry.name) for family in families)
        for entry in fields(Counts)
    }
    return {**sums, "datasets": n_datasets, "is_sample": bool(sums["is_sample"])}


def _family_scores(retrieval: Retrieval, seed: int) -> FamilyScores:
    counts, base = asdict(_counts(retrieval)), retrieval.family.base
    if not len(retrieval.queries):
        return FamilyScores(base=base, **counts, ci95_reason="no queries")
    ranked = rank(retrieval)
    results = ranked.results
    significance = permutation_test(retrieval, ranked, seed=seed)
    by_dataset = _by_dataset(results, significance, seed)
    micro = fmean(result.purity for result in results)
    chance = fmean(result.siblings / result.candidates for result in results)
    interval = bootstrap_interval(results, seed=seed)
    return FamilyScores(
        base=base,
        **counts,
        micro=micro,
        macro=fmean(group.purity for group in by_dataset),
        chance=chance,
        lift=(micro - chance) / (1 - chance) if chance < 1 else None,
        ci95=interval,
        ci95_reason=None if interval else _too_few(len(by_dataset)),
        p_value=significance.p_value,
        permutations=significance.permutations,
        nn1=fmean(result.nn1 for result in results),
        map=fmean(result.average_precision for result in results),
        silhouette=mean_silhouette(retrieval.family),
        by_dataset=by_dataset,
        taken_for=_count_retrieved(results),
        confusion=_confusion(results, retrieval.names),
    )


def _too_few(n_datasets: int) -> str:
    have = "1 dataset has" if n_datasets == 1 else f"{n_datasets} datasets have"
    return f"too few to tell: {have} siblings, an interval takes {FEWEST}"


def _by_dataset(
    results: Iterable[QueryResult], significance: Significance, seed: int
) -> tuple[DatasetScores, ...]:
    members: dict[str, list[QueryResult]] = {}
    for result in results:
        members.setdefault(result.dataset, []).append(result)
    return tuple(
        DatasetScores(
            name=name,
            n=len(group),
            purity=fmean(result.purity for result in group),
            chance=fmean(result.siblings / result.candidates for result in group),
            ci95=dataset_interval([result.purity for result in group], seed=seed),
            p_value=significance.by_dataset.get(name),
        )
        for name, group in sorted(members.items())
    )


def _count_retrieved(results: Iterable[QueryResult]) -> tuple[RetrievedLabel, ...]:
    """Retrieved labels counted: datasets in order, each one's most frequent first."""
    counts = Counter((result.dataset, label) for result in results for label in result.retrieved)
    cells = [RetrievedLabel(dataset, label, n) for (dataset, label), n in counts.items()]
    return tuple(sorted(cells, key=lambda c: (c.dataset, -c.n, c.neighbour or "")))


def _confusion(results: Iterable[QueryResult], datasets: Sequence[str]) -> Confusion:
    """Nearest neighbours' labels counted."""
    counts = Counter((result.dataset, result.retrieved[0]) for result in results)
    rows = tuple(tuple(counts[row, column] for column in (*datasets, None)) for row in datasets)
    return Confusion(tuple(datasets), rows)


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
