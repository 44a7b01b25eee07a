"""What an evaluation found, as records and as the document of `eval --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .retrieval import Exclude
from .significance import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetScores:
    """The queries of one dataset.

    Attributes:
        ci95: Of the purity, by bootstrap over the dataset's models; None where they are few.
        p_value: By shuffling labels, not corrected for the number of datasets.
    """

    name: str
    n: int
    purity: float
    chance: float
    ci95: Interval | None
    p_value: float | None

    def to_json(self) -> dict[str, object]:
        return {
            "n": self.n,
            "purity": self.purity,
            "chance": self.chance,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "p_value": self.p_value,
            "note": _note(self.chance),
        }


def _note(chance: float | None) -> str | None:
    """Why purity says nothing, where it does not."""
    return "every candidate has this label: no test" if chance == 1.0 else None


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
class Counts:
    """Who was asked, and who was not.

    Attributes:
        labelled: queries + singletons + dropped, and those that a sample left out.
        datasets: Different labels, singletons included.
        singletons: Labelled models whose base has no other model of that label.
        dropped: Models all of whose siblings `exclude` removes.
        eligible: Labelled models with a sibling among their candidates.
        is_sample: Whether the queries are a sample of them.
    """

    models: int
    labelled: int
    datasets: int
    queries: int
    singletons: int
    dropped: int
    eligible: int
    is_sample: bool

    def to_json(self) -> dict[str, object]:
        return {
            "models": self.models,
            "labelled": self.labelled,
            "unlabelled": self.models - self.labelled,
            "datasets": self.datasets,
            "queries": self.queries,
            "sampled_queries": self.queries if self.is_sample else None,
            "singletons": self.singletons,
            "dropped": self.dropped,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores(Counts):
    """How well queries are answered; all None where there are none.

    Attributes:
        micro: Mean purity of the queries.
        macro: Mean over datasets of their mean purity.
        chance: Mean of siblings / candidates: what random vectors give.
        lift: (micro − chance) / (1 − chance); None where chance is 1.
        ci95: Of micro, by bootstrap over datasets, then models; None where datasets are few.
        ci95_reason: Why there is no interval.
        p_value: Of micro, by shuffling labels; None where that would take long.
        permutations: How often they were shuffled.
        nn1: Share of queries whose nearest is of the same dataset.
        map: Mean average precision over the whole ranking.
        silhouette: Mean over labelled models, by cosine distance; None where it is undefined.
    """

    micro: float | None = None
    macro: float | None = None
    chance: float | None = None
    lift: float | None = None
    ci95: Interval | None = None
    ci95_reason: str | None = None
    p_value: float | None = None
    permutations: int | None = None
    nn1: float | None = None
    map: float | None = None
    silhouette: float | None = None
    by_dataset: tuple[DatasetScores, ...] | None = None
    taken_for: tuple[RetrievedLabel, ...] | None = None
    confusion: Confusion | None = None

    def measures_json(self) -> dict[str, object]:
        """The measures by name; datasets and what they are taken for by dataset."""
        by_dataset, taken_for = self.by_dataset, self.taken_for
        return {
            "micro": self.micro,
            "macro": self.macro,
            "chance": self.chance,
            "note": _note(self.chance),
            "lift": self.lift,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "ci95_reason": self.ci95_reason,
            "p_value": self.p_value,
            "permutations": self.permutations,
            "nn1": self.nn1,
            "map": self.map,
            "silhouette": self.silhouette,
            "by_dataset": by_dataset and {group.name: group.to_json() for group in by_dataset},
            "taken_for": taken_for
            and {
                dataset: [{"dataset": cell.neighbour, "n": cell.n} for cell in cells]
                for dataset, cells in groupby(taken_for, lambda cell: cell.dataset)
            },
            "confusion": self.confusion and self.confusion.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyScores(Scores):
    """Same-dataset retrieval precision of the labelled models of one family."""

    base: str

    def to_json(self) -> dict[str, object]:
        """Its entry of `by_base`."""
        return {"n": self.queries, **Counts.to_json(self), **self.measures_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Scores):
    """The same of all families under one recipe, by one way of scoring.

    Measures are those of the only family; of several families they are None, and counts are sums.

    Attributes:
        cost: Of one model's fingerprint, where a catalog knows it: seconds and bytes.
    """

    recipe: str
    recipe_id: str
    way: str
    exclude: Exclude | None
    with_unlabelled: bool
    cost: Mapping[str, Any]
    by_base: tuple[FamilyScores, ...]

    def to_json(self) -> dict[str, object]:
        """The documented keys; `by_base` only where there are several families."""
        document: dict[str, object] = {
            "recipe": self.recipe,
            "recipe_id": self.recipe_id,
            "way": self.way,
            "base": self.by_base[0].base if len(self.by_base) == 1 else None,
            **Counts.to_json(self),
            "k": "siblings",
            **self.measures_json(),
            "cost": dict(self.cost),
            "exclude": self.exclude,
            "with_unlabelled": self.with_unlabelled,
        }
        if len(self.by_base) > 1:
            document["by_base"] = {family.base: family.to_json() for family in self.by_base}
        return document
