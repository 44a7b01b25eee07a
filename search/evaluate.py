"""How well a catalog's fingerprints retrieve models of the same dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np

from ..arrays import Float64
from ..errors import RequestError
from ..store import Catalog, FamilyView
from .labelled import LabelledModels, family_views, labelled_models
from .precision import Exclude, QueryResult, score_queries
from .significance import bootstrap_interval, permutation_p

MOST_MODELS = 4_000
"""Labelled models of a family up to which all their distances are held: 128 MB."""


@dataclass(frozen=True, slots=True)
class Group:
    """The queries of one dataset, or of one base."""

    name: str
    n: int
    purity: float
    chance: float


@dataclass(frozen=True, slots=True)
class RetrievedLabel:
    """How often the k−1 nearest of a dataset's models have a label; None = unlabelled."""

    dataset: str
    neighbour: str | None
    n: int


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often a query's very nearest is of which dataset.

    Attributes:
        datasets: All labels, sorted; one without queries has a row of zeros.
        counts: By the query's dataset, then its nearest's; the last column is unlabelled.
    """

    datasets: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def to_json(self) -> dict[str, object]:
        return {"datasets": list(self.datasets), "counts": [list(row) for row in self.counts]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Same-dataset retrieval precision of the labelled models under one recipe.

    Attributes:
        labelled: queries + singletons + dropped.
        datasets: Different labels, singletons included.
        singletons: Labelled models whose base has no other model of that label.
        dropped: Models all of whose siblings `exclude` removes.
        micro: Mean purity of the queries.
        macro: Mean over datasets of their mean purity.
        chance: Mean of siblings / candidates: what random vectors give.
        lift: (micro − chance) / (1 − chance); None where chance is 1.
        ci95: Of micro, by bootstrap over datasets.
        p_value: Of micro, by shuffling labels; None where that would take long.
        nn1: Share of queries whose nearest is of the same dataset.
        map: Mean average precision over the whole ranking.
        silhouette: Mean over labelled models, by cosine distance; None where it is undefined.
        cost: Of one model's fingerprint, where a catalog knows it: seconds and bytes.
    """

    recipe: str
    recipe_id: str
    exclude: Exclude | None
    models: int
    labelled: int
    datasets: int
    queries: int
    singletons: int
    dropped: int
    micro: float
    macro: float
    chance: float
    lift: float | None
    ci95: tuple[float, float]
    p_value: float | None
    nn1: float
    map: float
    silhouette: float | None
    cost: Mapping[str, Any]
    by_dataset: tuple[Group, ...]
    by_base: tuple[Group, ...]
    taken_for: tuple[RetrievedLabel, ...]
    confusion: Confusion

    def to_json(self) -> dict[str, object]:
        """The documented keys; `by_base` only where there are several bases."""
        document: dict[str, object] = {
            "recipe": self.recipe,
            "recipe_id": self.recipe_id,
            "models": self.models,
            "labelled": self.labelled,
            "unlabelled": self.models - self.labelled,
            "datasets": self.datasets,
            "queries": self.queries,
            "singletons": self.singletons,
            "dropped": self.dropped,
            "k": "siblings",
            "micro": self.micro,
            "macro": self.macro,
            "chance": self.chance,
            "lift": self.lift,
            "ci95": list(self.ci95),
            "p_value": self.p_value,
            "nn1": self.nn1,
            "map": self.map,
            "silhouette": self.silhouette,
            "cost": dict(self.cost),
            "by_dataset": {
                group.name: {"n": group.n, "purity": group.purity, "chance": group.chance}
                for group in self.by_dataset
            },
            "taken_for": {
                dataset: [{"dataset": cell.neighbour, "n": cell.n} for cell in cells]
                for dataset, cells in groupby(self.taken_for, lambda cell: cell.dataset)
            },
            "confusion": self.confusion.to_json(),
            "exclude": self.exclude,
        }
        if len(self.by_base) > 1:
            document["by_base"] = {
                group.name: {"n": group.n, "micro": group.purity, "chance": group.chance}
                for group in self.by_base
            }
        return document


def evaluate(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    exclude: Exclude | None = None,
    seed: int = 0,
) -> Evaluation:
    """The evaluation of the catalog's families, or one of them, under one recipe.

    Raises:
        EmptyCatalog, UnknownRecipe: As named.
        RequestError: No such base, or no two labelled models to compare.
    """

    def read() -> tuple[list[FamilyView], list[LabelledModels], dict[str, Any]]:
        views = family_views(catalog, recipe, base)
        cost = catalog.cost(sorted({view.recipe.id for view in views}))
        return views, [labelled_models(view) for view in views], cost

    views, families, cost = catalog.look(read)
    # outside the snapshot: large families take minutes
    return evaluate_families(
        families,
        recipe=views[0].recipe.name,
        recipe_id=", ".join(sorted({view.recipe.id for view in views})),
        exclude=exclude,
        seed=seed,
        cost=cost,
    )


def evaluate_families(
    families: Sequence[LabelledModels],
    *,
    recipe: str,
    recipe_id: str,
    exclude: Exclude | None = None,
    seed: int = 0,
    cost: Mapping[str, Any] = MappingProxyType({}),
) -> Evaluation:
    """The evaluation of families whose vectors one recipe made.

    A query meets the models of its own base only; means and intervals run over all queries.

    Raises:
        RequestError: No labelled model has a sibling that may be retrieved.
    """
    results = [result for family in families for result in score_queries(family, exclude)]
    labels = [label for family in families for label in family.labels if label is not None]
    sizes = [n for f in families for label, n in Counter(f.labels).items() if label is not None]
    singletons = sizes.count(1)
    if not results:
        raise RequestError(_why_no_queries(families, labels, singletons, exclude))
    by_dataset = _grouped(results, lambda result: result.dataset)
    micro = fmean(result.purity for result in results)
    chance = fmean(result.siblings / result.candidates for result in results)
    return Evaluation(
        recipe=recipe,
        recipe_id=recipe_id,
        exclude=exclude,
        models=sum(len(family.ids) for family in families),
        labelled=len(labels),
        datasets=len(set(labels)),
        queries=len(results),
        singletons=singletons,
        dropped=len(labels) - singletons - len(results),
        micro=micro,
        macro=fmean(group.purity for group in by_dataset),
        chance=chance,
        lift=(micro - chance) / (1 - chance) if chance < 1 else None,
        ci95=bootstrap_interval(results, seed=seed),
        p_value=permutation_p(families, exclude, seed=seed),
        nn1=fmean(result.nn1 for result in results),
        map=fmean(result.average_precision for result in results),
        silhouette=mean_silhouette(families),
        cost=cost,
        by_dataset=by_dataset,
        by_base=_grouped(results, lambda result: result.base),
        taken_for=_count_retrieved(results),
        confusion=_confusion(results, sorted(set(labels))),
    )


def _grouped(
    results: Iterable[QueryResult], name: Callable[[QueryResult], str]
) -> tuple[Group, ...]:
    members: dict[str, list[QueryResult]] = {}
    for result in results:
        members.setdefault(name(result), []).append(result)
    return tuple(
        Group(
            name=key,
            n=len(group),
            purity=fmean(result.purity for result in group),
            chance=fmean(result.siblings / result.candidates for result in group),
        )
        for key, group in sorted(members.items())
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


def _why_no_queries(
    families: Sequence[LabelledModels],
    labels: Sequence[str],
    singletons: int,
    exclude: Exclude | None,
) -> str:
    """One line: why nothing can be evaluated, and what would change that."""
    n_models = sum(len(family.ids) for family in families)
    if not labels:
        return (
            f"none of the {n_models} models has a dataset label: "
            "index them with --labels FILE (columns model,dataset)"
        )
    if singletons == len(labels):
        return (
            f"{len(labels)} of {n_models} models are labelled, and no two share "
            "base and dataset: index a second model of one of them"
        )
    return (
        f"--exclude {exclude} leaves no labelled model a sibling: within each base, "
        f"every dataset comes from one {exclude}; evaluate without it"
    )


def mean_silhouette(families: Sequence[LabelledModels]) -> float | None:
    """Mean silhouette (Rousseeuw 1987) of all labelled models, by cosine distance 1 − score.

    Models whose dataset no other model of their base has count 0, as their definition says.
    None where no family has two datasets and a pair of siblings, or one is too large.
    """
    values: list[float] = []
    for family in families:
        rows = np.array([i for i, label in enumerate(family.labels) if label is not None])
        counts = Counter(family.labels[row] for row in rows)
        if len(counts) < 2 or max(counts.values()) < 2:
            continue
        if len(rows) > MOST_MODELS:
            return None
        labels = [str(family.labels[row]) for row in rows]
        values += silhouettes(family.score_block(rows)[:, rows], labels).tolist()
    return float(np.mean(values)) if values else None


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
