"""A dataset for unlabelled models, with the probability that it is the right one.

A model is suggested the dataset of its nearest labelled model; its confidence is the calibrated
probability that both were trained on the same data, as `find-similar` has it, and the false
discovery rate of the list the mean of 1 − confidence down to a row (search/evidence.py). Labelled
models, each asked without its own run or author, say how often such answers were right.

Kept data sets name models as well, where one stands out among them, in a list of its own. A model
takes the answer of the list with the smaller rate, and twice that rate: of the union of two lists
that are each wrong at most α/2 of the time, at most α is wrong (Bonferroni).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import Bool, Float64, Int64
from .evaluation import Exclude
from .evidence import (
    COPY_COSINE,
    Calibration,
    Numbers,
    calibrate,
    codes_of_labels,
    find_cases,
    marked_groups,
    verdict,
)
from .family_scores import PairScores, id_digest
from .labelled import LabelledModels
from .neighbours import JUDGED
from .trained_on import KeptEvidence

Queries = Int64[np.ndarray, " queries"]
Evidence = Float64[np.ndarray, " queries"]
Labelled = Int64[np.ndarray, " labelled"]
WithLabelled = Float64[np.ndarray, "queries labelled"]
MayAnswer = Bool[np.ndarray, "queries labelled"]

LISTS = 2


def combine_answers(
    names: Sequence[str], rates: Numbers, kept: KeptEvidence | None
) -> tuple[list[str], Numbers, Bool[np.ndarray, " models"]]:
    """A name for each unlabelled model, its rate of false discoveries, and whether a kept data set
    gave the name: the better of two answers, labelled models' (names, rates) and the kept data
    sets'; of equal ones, that of labelled models."""
    if kept is None:
        return list(names), rates, np.zeros(len(names), dtype=np.bool_)
    nearest = kept.z.argmax(axis=0)
    known = np.take_along_axis(kept.probabilities, nearest[None, :], axis=0)[0]
    of_data = 1.0 - np.nan_to_num(known)
    of_sets = [kept.sets[place].name for place in nearest.tolist()]
    is_data = of_data < rates
    better = zip(names, of_sets, is_data.tolist(), strict=True)
    chosen = [theirs if from_data else own for own, theirs, from_data in better]
    return chosen, np.minimum(LISTS * np.minimum(rates, of_data), 1.0), is_data


SUGGESTED = 0.2
"""False discovery rate up to which a dataset is suggested."""

HINTED = 0.5
"""Rate up to which it is at least a hint."""

UNKNOWN_SHARE = 0.5
"""Share of the unlabelled models whose dataset no labelled model may have, unless it is given: that
of the cases that calibrate."""

MOST_SURE = 0.1
"""Unknown share below and above which, to 1 − it, a stated one is not believed."""

BLOCK = 1_000
SHOWN = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
COPY = 0.9
"""Plain cosine from which two models count as one: rounded, copied, or trained a few steps on."""

MOST_SAMPLED = 1_500
"""Models of a family's sample, of which the labelled ones answer; their scores take 36 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The labelled models as queries, by what is known without their dataset: the probability of
    each answer, whether it was right, and whether the query's siblings were taken away; weighted so
    that a group's models of one dataset are one answer together."""

    p: Evidence = field(compare=False)
    right: Bool[np.ndarray, " queries"] = field(compare=False)
    lone: Bool[np.ndarray, " queries"] = field(compare=False)
    weights: Evidence = field(compare=False)

    def share(self, of: Bool[np.ndarray, " queries"], among: Bool[np.ndarray, " queries"]) -> float:
        total = float(self.weights[among].sum())
        return float(self.weights[among & of].sum()) / total if total else 0.0

    def level(self, confidence: float) -> dict[str, float | None]:
        """Of the answers with this confidence: their precision, and the share of models of known
        and of other datasets that have it."""
        taken = self.p >= confidence
        answers = taken & ~self.lone
        return {
            "confidence": confidence,
            "precision": self.share(self.right, answers) if answers.any() else None,
            "coverage": self.share(taken, ~self.lone),
            "false_answers": self.share(taken, self.lone),
        }


def suggest_datasets(
    family: LabelledModels,
    unknown_share: float = UNKNOWN_SHARE,
    kept: KeptEvidence | None = None,
    sample: ModelSample | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Datasets for the unlabelled models with some evidence, by id, and the document of what they
    are known from; `unknown_share` of these models at most have a dataset of no labelled one, 0 to
    1. Peak: `BLOCK` models' scores with the references, and those' own.

    confidence is the probability that a dataset is right, fdr the share expected to be wrong of the
    suggestions down to this one, and a hint one whose evidence is too weak for a suggestion.

    The document: what held-out models say of all that is suggested (None if nothing is) and, as
    `curve`, by rising confidence; `models` are labelled ones with a sibling in another group, of
    `answers` a run's (or author's) models of one dataset are one.
    """
    references = pick_references(family, sample)
    labels = [references.names[code] for code in references.codes.tolist()]
    known = calibrate(references.z, labels, references.apart, len(family.ids))
    odds = (1.0 - unknown_share + MOST_SURE) / (unknown_share + MOST_SURE)
    held_out = hold_out(references, known, odds)
    rows = family.unlabelled_rows
    names, likely, are_copies = _answers(family, rows, references, known, odds)
    names, rates, are_from_data = combine_answers(names, 1 - likely, kept)
    ids = [family.ids[row] for row in rows.tolist()]
    order = sorted(range(len(ids)), key=lambda place: (rates[place], ids[place]))
    n = np.arange(1, len(order) + 1)
    # a mean of rising rates rises
    fdr = (rates[order].cumsum() / n).tolist()
    suggestions: list[dict[str, Any]] = []
    for place, rate in zip(order, fdr, strict=True):
        p = 1.0 - float(rates[place])
        if 1 - p > HINTED:
            continue
        from_data = bool(are_from_data[place])
        is_copy = bool(are_copies[place]) and not from_data
        suggestions.append(
            {
                "model": ids[place],
                "dataset": names[place],
                "confidence": p,
                "fdr": rate,
                "verdict": verdict(is_copy, p, known.bound),
                "hint": 1 - p > SUGGESTED,
                "source": "kept data" if from_data else "labelled models",
            }
        )
    least = min((one["confidence"] for one in suggestions if not one["hint"]), default=None)
    reached = {} if least is None else held_out.level(least)
    answering = ~held_out.lone
    calibration = {
        "precision": reached.get("precision"),
        "coverage": reached.get("coverage", 0.0),
        "false_answers": reached.get("false_answers"),
        "threshold": least,
        "target": 1 - SUGGESTED,
        "models": int(answering.sum()),
        "answers": round(float(held_out.weights[answering].sum())),
        "datasets": len(references.names),
        "held_out": references.held_out,
        "unknown_share": unknown_share,
        "evidence": known.to_json(),
        "kept_data": 0 if kept is None else len(kept.sets),
        "curve": [held_out.level(confidence) for confidence in SHOWN],
    }
    return sorted(suggestions, key=lambda suggestion: suggestion["model"]), calibration


def _answers(
    family: LabelledModels, rows: Queries, references: References, known: Calibration, odds: float
) -> tuple[list[str], Evidence, Bool[np.ndarray, " queries"]]:
    """For each unlabelled model: the dataset of its nearest reference, "" without one; the
    probability that it is its own, under other `odds` of a known dataset than those of the cases, 1
    for copies, 0 where nothing is known; and whether the two are copies."""
    names, p, are_copies = [""] * len(rows), np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        pairs = family.pairs_between(block, references.rows)
        allowed = may_answer(family, block, pairs.cosines, references)
        for at, may in enumerate(allowed):
            places = np.setdiff1d(np.flatnonzero(may), known.doubted)
            if not len(places):
                continue
            z, cosines, row = pairs.z[at], pairs.cosines[at], start + at
            order = places[np.argsort(-z[places], kind="stable")[:JUDGED]]
            labels = [references.names[code] for code in references.codes[order].tolist()]
            judged = known.judge(z[order], labels, cosines[order])
            names[row], are_copies[row] = labels[0], cosines[order[0]] >= COPY_COSINE
            p[row] = 1.0 if are_copies[row] else judged.probability(0) or 0.0
    return names, with_odds(p, odds), are_copies


def with_odds(p: Evidence, odds: float) -> Evidence:
    """Probabilities where right answers are `odds` times as frequent."""
    return np.asarray(odds * p / (odds * p + 1.0 - p))


def hold_out(references: References, known: Calibration, odds: float) -> HeldOut:
    """Answers for all references, each without its own group's models, and without its siblings."""
    cases = find_cases(references.z, references.codes, references.apart)
    if known.weights is None:
        cases = cases.take(np.zeros(len(cases.own), np.bool_))
    prior = known.weights or (0.0, 0.0)
    keys = cases.datasets, references.groups[cases.queries], cases.lone
    keyed = list(zip(*(key.tolist() for key in keys), strict=True))
    sizes = Counter(keyed)
    return HeldOut(
        p=with_odds(cases.held_out(prior), odds),
        right=cases.own == 0,
        lone=cases.lone,
        weights=np.array([1.0 / sizes[key] for key in keyed], dtype=np.float64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The labelled models that answer for their datasets: rows by id, codes as places in `names`, z
    among themselves.

    Groups are equal for models that must not answer for each other, by `held_out`: of the same run,
    copies and, where enough models remain, of the same author.
    """

    rows: Labelled = field(compare=False)
    names: tuple[str, ...]
    codes: Labelled = field(compare=False)
    z: Float64[np.ndarray, "labelled labelled"] = field(compare=False)
    groups: Labelled = field(compare=False)
    held_out: Exclude

    @property
    def apart(self) -> Bool[np.ndarray, "labelled labelled"]:
        """Which pairs are of different groups."""
        return np.asarray(self.groups[:, None] != self.groups[None, :])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSample:
    """Some models of a family, by id, and the scores of their pairs."""

    rows: Queries = field(compare=False)
    pairs: PairScores

    @classmethod
    def of(cls, family: LabelledModels) -> ModelSample:
        """All labelled models, or of each dataset in turn one after the other, by hash of their
        ids; where not every pair's score is held, then unlabelled ones, up to `MOST_SAMPLED`."""
        turns, n_before = [], Counter[str]()
        for row in sorted(range(len(family.ids)), key=lambda row: id_digest(family.ids[row])):
            if (label := family.labels[row]) is not None:
                turns.append((n_before[label], label, row))
                n_before[label] += 1
            elif family.scores is None:
                turns.append((len(family.ids) + len(turns), "", row))
        picked = [row for _, _, row in sorted(turns)[:MOST_SAMPLED]]
        rows = np.array(sorted(picked), dtype=np.int64)
        return cls(rows=rows, pairs=family.pairs_between(rows, rows))


def pick_references(family: LabelledModels, sample: ModelSample | None = None) -> References:
    """The labelled models of a sample; authors are held out where that leaves half of the models a
    sibling that have one in another run."""
    sample = sample or ModelSample.of(family)
    places = [i for i, row in enumerate(sample.rows) if family.labels[row] is not None]
    rows, some = sample.rows[places], np.ix_(places, places)
    labels = [family.labels[row] or "" for row in rows.tolist()]
    names = tuple(sorted(set(labels)))
    codes = codes_of_labels(labels)
    cosines = sample.pairs.cosines[some]
    runs = [family.runs[row] for row in rows.tolist()]
    authors = [family.authors[row] for row in rows.tolist()]
    by_run = _bound_together(cosines, runs)
    by_author = _bound_together(cosines, runs, authors)
    enough = 2 * _count_with_sibling(codes, by_author) >= max(1, _count_with_sibling(codes, by_run))
    return References(
        rows=rows,
        names=names,
        codes=codes,
        z=sample.pairs.z[some],
        groups=by_author if enough else by_run,
        held_out="author" if enough else "run",
    )


def may_answer(
    family: LabelledModels, rows: Queries, cosines: WithLabelled, references: References
) -> MayAnswer:
    """Which references may answer for unlabelled models: not the own author's, but for copies."""
    allowed = np.ones(cosines.shape, dtype=np.bool_)
    if references.held_out == "author":
        theirs = np.array([family.authors[row] or "" for row in references.rows.tolist()])
        for place, row in enumerate(rows.tolist()):
            if family.authors[row] is not None:
                allowed[place] = theirs != family.authors[row]
    return allowed | (cosines >= COPY)


def _bound_together(
    cosines: Float64[np.ndarray, "labelled labelled"], *marks: Sequence[str | None]
) -> Labelled:
    """A number a model, equal where copies and equal marks chain models together."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    near, far = np.nonzero(cosines >= COPY)
    pairs = [*zip(near.tolist(), far.tolist(), strict=True)]
    for column in marks:
        pairs += enumerate(marked_groups(column).tolist())
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(left)), (left, right)), shape=cosines.shape)
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _count_with_sibling(codes: Labelled, groups: Labelled) -> int:
    """Models with one of their dataset in another group."""
    pairs = list(zip(codes.tolist(), groups.tolist(), strict=True))
    n_groups = Counter(code for code, _ in set(pairs))
    return sum(n_groups[code] > 1 for code, _ in pairs)
