"""Whether evidence holds: answers, their probabilities, and queries that nothing answers.

Data sets are held out: a query's own label and its whole data set are hidden from the calibration
of its answers. Every query is asked a second time after the other models of its data set were taken
out of the family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deltadex.records import Recipe
from deltadex.search import family_views, labelled_models
from deltadex.search.evidence import (
    LARGEST_LOGIT,
    Calibration,
    codes_of_labels,
    find_cases,
    fit_choices,
    unlabelled_features,
)
from deltadex.search.family_scores import Cohort, FamilyScores, KnownCosines
from deltadex.store import Catalog, FamilyView, SketchMatrix

from .plan import PLANS
from .selections import Selection, selections

BINS = 10
RIDGE = 0.1
CASES_OF_A_FAMILY = 25.0
"""Weight of a family among those that coefficients are fitted over."""


class Subfamily:
    """Some models of a family, scored as if there were no others."""

    def __init__(
        self,
        matrix: SketchMatrix,
        rows: np.ndarray,
        ids: Sequence[str],
        kinds: Sequence[str],
        recipe: Recipe,
    ) -> None:
        """Of some rows of the whole family's sketches."""
        self.ids, own = [ids[row] for row in rows], [kinds[row] for row in rows]
        cohort = Cohort.sample(self.ids, own)
        self.scores = FamilyScores(cohort, recipe, lambda part: matrix.take(rows[part]))
        models = self.scores.prepare(matrix.take(rows), own, list(range(len(rows))))
        pairs = self.scores.compare(models, models)
        self.z, self.cosines = pairs.z, pairs.cosines

    def calibrate(self, labels: Sequence[str | None]) -> Calibration:
        """By these labels of its models."""
        named = [labels[row] for row in self.scores.cohort.tolist()]
        return self.scores.evidence.calibrate(named, len(self.ids))


def subfamilies(view: FamilyView, rows: np.ndarray) -> Callable[[np.ndarray], Subfamily]:
    """Makes a family of some of these models."""
    whole = view.sketches(view.keys[rows])
    known = KnownCosines(whole, whole.cosines(whole), np.arange(len(rows)))
    ids, kinds = [view.ids[row] for row in rows], [view.kinds[row] for row in rows]
    return lambda chosen: Subfamily(known, chosen, ids, kinds, view.recipe)


@dataclass(slots=True)
class Tally:
    """The nearest models of queries with siblings and of lone ones: whether the nearest is a
    sibling, whether it stands out, and its probability, NaN without one."""

    right: list[bool] = field(default_factory=list)
    stands_out: list[bool] = field(default_factory=list)
    probability: list[float] = field(default_factory=list)
    lone: list[bool] = field(default_factory=list)

    def line(self, name: str) -> str:
        """A row of the table."""
        right, out, p, lone = (
            np.array(x) for x in (self.right, self.stands_out, self.probability, self.lone)
        )
        if not len(right):
            return f"| {name} | 0 | | | | | | |"
        known = ~np.isnan(p)
        wrong = out & ~lone & ~right
        answered = f"{out[~lone].mean():.2f}" if (~lone).any() else ""
        silent = f"{1 - out[lone].mean():.3f}" if lone.any() else ""
        scores = (
            f"{calibration_error(p[known], right[known]):.3f} "
            f"| {np.square(p[known] - right[known]).mean():.3f}"
            if known.any()
            else " | "
        )
        return (
            f"| {name} | {(~lone).sum()} | {answered} | {wrong.sum()} of {(out & ~lone).sum()} "
            f"| {lone.sum()} | {silent} | {scores} |"
        )

    def add(self, other: Tally) -> None:
        """All of another one."""
        for name in ("right", "stands_out", "probability", "lone"):
            getattr(self, name).extend(getattr(other, name))


def calibration_error(p: np.ndarray, right: np.ndarray) -> float:
    """Mean difference between probability and share over bins of equal mass (ECE)."""
    bins = np.array_split(np.argsort(p, kind="stable"), BINS)
    return float(sum(abs(p[b].mean() - right[b].mean()) * len(b) for b in bins if len(b)) / len(p))


HEADER = (
    "| family | queries | answered | wrong | lone | silent | ECE | Brier |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query's ranking: z falling, labels, and the calibration that answers it."""

    z: np.ndarray
    labels: Sequence[str]
    dataset: str
    lone: bool
    known: Calibration


def ask_family(
    make: Callable[[np.ndarray], Subfamily],
    rows: np.ndarray,
    datasets: Sequence[str],
    authors: Sequence[str],
    *,
    hide_labels: bool,
) -> list[Asked]:
    """The rankings of every labelled model of a family, among its siblings and without them."""
    family, own = make(rows), np.array([datasets[row] for row in rows], dtype=object)
    by = np.array([authors[row] for row in rows], dtype=object)
    places, found = np.arange(len(rows)), []

    def ranked(z: np.ndarray, others: np.ndarray, lone: bool, known: Calibration) -> Asked:
        order = others[np.argsort(-z[others], kind="stable")]
        return Asked(z[order], own[chosen[order]].tolist(), dataset, lone, known)

    for dataset in sorted(set(own.tolist()) - {""}):
        labels = [None if hide_labels or name in ("", dataset) else name for name in own]
        rest, queries = places[own != dataset], places[own == dataset]
        known = family.calibrate(labels)
        lone_known = make(rows[rest]).calibrate([labels[place] for place in rest])
        for query in queries.tolist():
            chosen, may = places, (own != "") & (by != by[query]) & (places != query)
            if (may & (own == dataset)).any():
                found.append(ranked(family.z[query], np.flatnonzero(may), False, known))
            chosen = np.append(rest, query)
            others = np.flatnonzero(may[chosen])
            if len(others) > 3:
                found.append(ranked(make(rows[chosen]).z[-1], others, True, lone_known))
    return found


def tally(asked: Sequence[Asked], *, hide_labels: bool) -> Tally:
    """What was answered."""
    counts = Tally()
    for query in asked:
        labels = [None] * len(query.z) if hide_labels else query.labels
        judged = query.known.judge(query.z, labels)
        p = judged.probability(0)
        counts.right.append(query.labels[0] == query.dataset)
        counts.stands_out.append(judged.verdicts[0] != "no model stands out")
        counts.probability.append(np.nan if p is None else p)
        counts.lone.append(query.lone)
    return counts


def families_of(
    view: FamilyView,
) -> tuple[Callable[[np.ndarray], Subfamily], list[Selection], list[str], list[str]]:
    """The families that are cut out of one; data sets and authors of its models, a model without an
    author being one's own."""
    models = labelled_models(view)
    datasets = [re.sub(" [ab]$", "", label or "") for label in models.labels]
    authors = [a or id for a, id in zip(models.authors, models.ids, strict=True)]
    kinds = [id.split("/", 1)[0] for id in models.ids]
    chosen = list(selections(kinds, datasets, PLANS["twelve"].dominating))
    return subfamilies(view, view.rows(models.ids)), chosen, datasets, authors


def score_evidence(dbs: Sequence[Path], *, fit: bool) -> str:
    """Markdown: the table over the families of some catalogs, or the coefficients that fit them."""
    lines, rows = list(HEADER), []
    total = {hide: Tally() for hide in (False, True)}
    for db in dbs:
        with Catalog.open(db) as catalog:
            for view in family_views(catalog, "sketch", catalog.bases()[0]):
                make, chosen, datasets, authors = families_of(view)
                by_name: dict[tuple[str, bool], Tally] = {}
                for selection in chosen:
                    for hide in (False, True):
                        asked = ask_family(
                            make, selection.rows, datasets, authors, hide_labels=hide
                        )
                        counts = tally(asked, hide_labels=hide)
                        by_name.setdefault((selection.name, hide), Tally()).add(counts)
                        if not selection.name.startswith("8 "):
                            total[hide].add(counts)
                        rows += [(query, 1 / len(asked), hide) for query in asked]
                for (name, hide), counts in by_name.items():
                    shown = f"{db.stem}: {name}{', no labels' if hide else ''}"
                    lines.append(counts.line(shown))
                    print(lines[-1], flush=True)
    for hide, counts in total.items():
        lines.append(counts.line(f"all but those of 8{', no labels' if hide else ''}"))
    return fitted(rows) if fit else "\n".join(lines)


def fitted(rows: Sequence[tuple[Asked, float, bool]]) -> str:
    """`LABELLED` and `UNLABELLED` of `deltadex.search.evidence`, every family alike."""
    features, known, own, weights, free, right, free_weights = [], [], [], [], [], [], []
    for query, share, hide in rows:
        nearest = query.known.nearest
        if query.known.source == "the null alone":
            continue
        if hide:
            counts = np.ones(len(query.z), dtype=bool)
            free.append(unlabelled_features(query.z, nearest, counts)[:1])
            right.append(0 if query.labels[0] == query.dataset else -1)
            free_weights.append(CASES_OF_A_FAMILY * share)
            continue
        codes = codes_of_labels([query.dataset, *query.labels])
        n = len(codes)
        z, may = np.zeros((n, n)), np.zeros((n, n), dtype=bool)
        z[0, 1:], may[0, 1:] = query.z, True
        cases = find_cases(z, codes, may)
        first = cases.take((cases.queries == 0) & (cases.lone == query.lone))
        if not len(first.own):
            continue
        is_known = np.isfinite(first.supports[0])
        m = np.where(is_known, np.minimum(first.supports[0], LARGEST_LOGIT), 0.0)
        features.append(np.stack([is_known, nearest * is_known, m], axis=1))
        known.append(is_known)
        own.append(int(first.own[0]))
        weights.append(CASES_OF_A_FAMILY * share)
    labelled = fit_choices(
        np.array(features), np.array(known), np.array(own), np.array(weights),
        [0.0] * 3, [RIDGE] * 3,
    )  # fmt: skip
    unlabelled = fit_choices(
        np.array(free), np.ones((len(free), 1), dtype=bool), np.array(right),
        np.array(free_weights), [0.0] * 4, [RIDGE] * 4,
    )  # fmt: skip
    return f"LABELLED = {labelled.round(2).tolist()}\nUNLABELLED = {unlabelled.round(2).tolist()}"
