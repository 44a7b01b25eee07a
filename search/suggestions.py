"""A dataset for unlabelled models, and the share of such suggestions that is expected to be wrong.

A model is suggested the dataset of its nearest labelled model, with a p-value: how often a model
whose data no labelled one shares would be as near. Over the unlabelled models these give a false
discovery rate (Benjamini, Hochberg 1995); labelled models, held out one by one, say how often the
nearest is of the wrong one of two known datasets, and how heavy the tail of strangers is.

Kept data sets name models as well, where one stands out among them, in a list of its own. A model
takes the answer of the list with the smaller rate, and twice that rate: of the union of two lists
that are each wrong at most α/2 of the time, at most α is wrong (Bonferroni).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..arrays import Bool, Float64, Int64
from .evaluation import Exclude, label_codes
from .evidence import (
    COPY_COSINE,
    PERHAPS,
    SMALL_FAMILY,
    Calibration,
    Numbers,
    Square,
    Verdict,
    tail,
    verdict,
)
from .family_scores import id_digest
from .labelled import LabelledModels
from .trained_on import KeptData

Queries = Int64[np.ndarray, " queries"]
Evidence = Float64[np.ndarray, " queries"]
Labelled = Int64[np.ndarray, " labelled"]
WithLabelled = Float64[np.ndarray, "queries labelled"]
MayAnswer = Bool[np.ndarray, "queries labelled"]

UNCALIBRATED = 1.0
LEAST_RATE = 0.75
"""Rate that no labels lower: models without a sibling, which labelled ones are not, have a smaller
spread and a larger z. At 0.5 up to 32 % of them stood out in made families, at 0.75 up to 2 %."""

FEWEST_DATASETS = 5
"""Data sets with siblings from which labelled pairs decide."""

FEWEST_QUERIES = 20
"""Labelled models, likewise."""

CONTROLLED = 0.05
"""Share of queries whose nearest stranger may stand out; the rate is measured there."""


def measure_tail(
    z: Square, labels: Sequence[str], may_answer: Bool[np.ndarray, "models models"], n_family: int
) -> Calibration:
    """The tail at which `CONTROLLED` of the labelled models' nearest strangers would stand out,
    every data set alike; `may_answer` are the pairs that count, and few of a family's models widen
    the rate."""
    widening = 1.0 + SMALL_FAMILY / max(1, n_family)
    sizes, names = Counter(labels), np.array(labels)
    datasets = sum(size > 1 for size in sizes.values())
    rates, weights = [], []
    for row, name in enumerate(labels):
        strangers = may_answer[row] & (names != name)
        if strangers.any():
            nearest = float(z[row, strangers].max())
            rates.append(nearest / math.log(strangers.sum() / (2 * CONTROLLED)))
            weights.append(1.0 / sizes[name])
    if datasets < FEWEST_DATASETS or len(rates) < FEWEST_QUERIES:
        return Calibration(UNCALIBRATED * widening, "the null alone", datasets, len(rates))
    order, shares = np.argsort(rates, kind="stable"), np.array(weights)
    # the weighted quantile, between two by interpolation
    middles = (shares[order].cumsum() - shares[order] / 2) / shares.sum()
    rate = float(np.interp(1 - CONTROLLED, middles, np.array(rates)[order]))
    return Calibration(max(rate, LEAST_RATE) * widening, "labelled pairs", datasets, len(rates))


Source = Literal["labelled models", "kept data"]

LISTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """A name for each unlabelled model, and its rate of false discoveries; `of_labels` are the
    rates of labelled models' answers alone, `from_data` whether a kept data set gave the name."""

    names: tuple[str, ...]
    rates: Numbers = field(compare=False)
    of_labels: Numbers = field(compare=False)
    from_data: Bool[np.ndarray, " models"] = field(compare=False)


def combine_answers(names: Sequence[str], rates: Numbers, kept: KeptData | None) -> Offers:
    """The better of two answers for each model, labelled models' (names, rates) and the kept data
    sets'; of equal ones, that of labelled models."""
    if kept is None:
        nothing = np.zeros(len(names), dtype=np.bool_)
        return Offers(names=tuple(names), rates=rates, of_labels=rates, from_data=nothing)
    of_data = kept_rates(kept)
    nearest = [kept.sets[place].name for place in kept.z.argmax(axis=0).tolist()]
    is_data = of_data < rates
    return Offers(
        names=tuple(np.where(is_data, np.array(nearest, object), np.array(names, object))),
        rates=np.minimum(LISTS * np.minimum(rates, of_data), 1.0),
        of_labels=np.minimum(LISTS * rates, 1.0),
        from_data=is_data,
    )


def kept_rates(kept: KeptData) -> Numbers:
    """The false discovery rate of each model's nearest kept data set, in the list of all models."""
    n_sets, n_models = kept.z.shape
    falling = -np.sort(-kept.z, axis=0)
    ranks = np.arange(1, n_sets + 1)[:, None]
    expected = n_sets * tail(falling, kept.calibration.rate) / ranks
    p = np.minimum(expected.min(axis=0), 1.0)
    measured = kept.calibration.measured(falling[0])
    found = np.flatnonzero(np.maximum(p, measured) <= PERHAPS)
    order = found[np.argsort(p[found], kind="stable")]
    wrong = n_models * p[order] / np.arange(1, len(order) + 1)
    rates = np.ones(n_models)
    rates[order] = np.minimum(np.minimum.accumulate(wrong[::-1])[::-1], 1.0)
    return np.asarray(np.maximum(rates, measured))


SUGGESTED = 0.2
"""False discovery rate up to which a dataset is suggested."""

HINTED = 0.5
"""Rate up to which it is at least a hint."""

UNKNOWN_SHARE = 1.0
"""Share of the unlabelled models whose dataset no labelled model may have, unless it is given."""

BLOCK = 1_000
SHOWN = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
PRIOR_ANSWERS, PRIOR_WRONG = 5.0, 0.5
"""What is known of confusions before any labelled model was held out: one in ten."""

COPY = 0.9
"""Plain cosine from which two models count as one: rounded, copied, or trained a few steps on."""

MOST_REFERENCES = 4_000
"""Labelled models that answer; their scores take 128 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """For each of some models, the dataset of its nearest labelled model, as a place among those of
    the references; the probability that a model of no known dataset is as near; and their
    cosine."""

    codes: Queries = field(compare=False)
    p: Evidence = field(compare=False)
    cosines: Evidence = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Answers for the labelled models, whose labels are held out: those with a sibling in another
    group, weighted so that a group's models of one dataset are one answer together; and, of all, p
    without the models of their dataset."""

    p: Evidence = field(compare=False)
    right: Bool[np.ndarray, " queries"] = field(compare=False)
    weights: Evidence = field(compare=False)
    strangers: Float64[np.ndarray, " labelled"] = field(compare=False)
    datasets: Labelled = field(compare=False)

    def confused(self, p: float) -> float:
        """Share of the answers with at least this evidence that name another known dataset."""
        taken = self.p <= p
        wrong = float(self.weights[taken & ~self.right].sum()) + PRIOR_WRONG
        return wrong / (float(self.weights[taken].sum()) + PRIOR_ANSWERS)

    def precision(self, p: float) -> float | None:
        """Share of the answers with at least this evidence that are right."""
        taken = self.p <= p
        n_answers = float(self.weights[taken].sum())
        return float(self.weights[taken & self.right].sum()) / n_answers if n_answers else None

    def coverage(self, p: float) -> float:
        """Share of the models of known datasets that get such an answer."""
        total = float(self.weights.sum())
        return float(self.weights[self.p <= p].sum()) / total if total else 0.0

    def false_answers(self, p: float) -> float:
        """Share of the models that get such an answer once their dataset is taken away, every
        dataset alike."""
        if not len(self.datasets):
            return 0.0
        counts = np.bincount(self.datasets)
        shares = 1.0 / counts[self.datasets] / np.count_nonzero(counts)
        return float(shares[self.strangers <= p].sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A dataset for a model; fdr is the share expected to be wrong of the suggestions with at least
    this evidence, confidence 1 − fdr, and a hint one whose evidence is too weak for a
    suggestion."""

    model: str
    dataset: str
    confidence: float
    fdr: float
    verdict: Verdict
    hint: bool
    source: Source


def suggest_datasets(
    family: LabelledModels, unknown_share: float = UNKNOWN_SHARE, kept: KeptData | None = None
) -> tuple[list[Suggestion], dict[str, Any]]:
    """Datasets for the unlabelled models with some evidence, by id, and the document of what they
    are known from; `unknown_share` of these models at most have a dataset of no labelled one, 0 to
    1. Peak: `BLOCK` models' scores with the references, and those' own.

    The document: what held-out models say of all that is suggested (None if nothing is) and, as
    `curve`, by rising confidence; `models` are labelled ones with a sibling in another group, of
    `answers` a run's (or author's) models of one dataset are one.
    """
    references = pick_references(family)
    labels = [references.names[code] for code in references.codes.tolist()]
    null = measure_tail(references.z, labels, references.apart, len(family.ids))
    held_out = hold_out(references, null.rate)
    rows = family.unlabelled_rows
    answers = _answer_all(family, rows, references, null.rate)
    rates = false_discovery_rates(answers.p, unknown_share, held_out)
    names = [*references.names, ""]
    offers = combine_answers([names[code] for code in answers.codes.tolist()], rates, kept)
    suggestions = []
    for place, (name, rate) in enumerate(zip(offers.names, offers.rates.tolist(), strict=True)):
        if rate > HINTED:
            continue
        from_data = bool(offers.from_data[place])
        words = verdict(0.0 if from_data else float(answers.cosines[place]), rate)
        suggestions.append(
            Suggestion(
                model=family.ids[rows[place]],
                dataset=name,
                confidence=1 - rate,
                fdr=rate,
                verdict="perhaps" if words == "no model stands out" else words,
                hint=rate > SUGGESTED,
                source="kept data" if from_data else "labelled models",
            )
        )
    levels = (_level(answers.p, offers.of_labels, held_out, confidence) for confidence in SHOWN)
    reached = _level(answers.p, offers.of_labels, held_out, 1 - SUGGESTED)
    calibration = {
        "precision": reached.get("precision"),
        "coverage": reached.get("coverage", 0.0),
        "false_answers": reached.get("false_answers"),
        "threshold": reached.get("confidence"),
        "target": 1 - SUGGESTED,
        "models": len(held_out.p),
        "answers": round(float(held_out.weights.sum())),
        "datasets": len(references.names),
        "held_out": references.held_out,
        "unknown_share": unknown_share,
        "tail": null.to_json(),
        "kept_data": 0 if kept is None else len(kept.sets),
        "curve": list(filter(None, levels)),
    }
    return sorted(suggestions, key=lambda suggestion: suggestion.model), calibration


def _answer_all(
    family: LabelledModels, rows: Queries, references: References, rate: float
) -> Answers:
    """Answers for unlabelled models, `BLOCK` at a time."""
    parts = []
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        pairs = family.pairs_between(block, references.rows)
        allowed = may_answer(family, block, pairs.cosines, references)
        parts.append(answer(pairs.z, pairs.cosines, allowed, references.codes, rate))
    return Answers(
        codes=np.concatenate([np.zeros(0, np.int64), *(part.codes for part in parts)]),
        p=np.concatenate([np.zeros(0), *(part.p for part in parts)]),
        cosines=np.concatenate([np.zeros(0), *(part.cosines for part in parts)]),
    )


def answer(
    z: WithLabelled, cosines: WithLabelled, allowed: MayAnswer, codes: Labelled, rate: float
) -> Answers:
    """The dataset of each model's nearest reference, and p, by the `rate` of the strangers' tail.

    p combines the dataset's references (Simes 1986): with the r-th nearest of them at z and n
    references in all, the least n × tail(z) / r; 0 for copies.
    """
    first = np.zeros(len(z), dtype=np.int64)
    p, nearest_cosines = np.ones(len(z)), np.zeros(len(z))
    answered = np.flatnonzero(allowed.any(axis=1))
    if not len(answered):
        return Answers(codes=first, p=p, cosines=nearest_cosines)
    shown = np.where(allowed, z, -np.inf)
    nearest = shown[answered].argmax(axis=1)
    first[answered] = codes[nearest]
    nearest_cosines[answered] = cosines[answered, nearest]
    for code in np.unique(first[answered]).tolist():
        queries = answered[first[answered] == code]
        falling = -np.sort(-shown[queries][:, codes == code], axis=1)
        n_candidates = allowed[queries].sum(axis=1, keepdims=True)
        expected = n_candidates * tail(falling, rate) / np.arange(1, falling.shape[1] + 1)
        p[queries] = np.minimum(expected.min(axis=1), 1.0)
    p[nearest_cosines >= COPY_COSINE] = 0.0
    return Answers(codes=first, p=p, cosines=nearest_cosines)


def hold_out(references: References, rate: float) -> HeldOut:
    """Answers for all references, each without its own group's models."""
    codes, apart = references.codes, references.apart
    same = codes[:, None] == codes[None, :]
    own = answer(references.z, references.cosines, apart, codes, rate)
    strangers = answer(references.z, references.cosines, apart & ~same, codes, rate)
    has_sibling = (apart & same).any(axis=1)
    pairs = list(
        zip(codes[has_sibling].tolist(), references.groups[has_sibling].tolist(), strict=True)
    )
    sizes = Counter(pairs)
    return HeldOut(
        p=own.p[has_sibling],
        right=(own.codes == codes)[has_sibling],
        weights=np.array([1.0 / sizes[pair] for pair in pairs], dtype=np.float64),
        strangers=strangers.p,
        datasets=codes,
    )


def false_discovery_rates(p: Evidence, unknown_share: float, held_out: HeldOut) -> Evidence:
    """For each model: the share expected to be wrong of the answers with at least its evidence.

    The larger of two: answers for models of unknown datasets, of which p × models × share are
    expected (Benjamini, Hochberg 1995), and the confusions that held-out models show.
    """
    order = np.argsort(p, kind="stable")
    expected = unknown_share * len(p) * p[order] / np.arange(1, len(p) + 1)
    rates = np.empty(len(p))
    rates[order] = np.minimum.accumulate(expected[::-1])[::-1]
    confused = np.array([held_out.confused(value) for value in p.tolist()])
    return np.where(p < 1, np.minimum(np.maximum(rates, confused), 1.0), 1.0)


def _level(
    p: Evidence, rates: Evidence, held_out: HeldOut, confidence: float
) -> dict[str, float | None]:
    """What held-out models say of the answers with this confidence: the weakest evidence p, their
    precision with it, and the share of models of known and other datasets that have it; empty if
    there are none."""
    taken = rates <= 1 - confidence
    if not taken.any():
        return {}
    weakest = float(p[taken].max())
    return {
        "confidence": confidence,
        "p": weakest,
        "precision": held_out.precision(weakest),
        "coverage": held_out.coverage(weakest),
        "false_answers": held_out.false_answers(weakest),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The labelled models that answer for their datasets: rows by id, codes as places in `names`, z
    and plain cosines among themselves.

    Groups are equal for models that must not answer for each other, by `held_out`: of the same run,
    copies and, where enough models remain, of the same author.
    """

    rows: Labelled = field(compare=False)
    names: tuple[str, ...]
    codes: Labelled = field(compare=False)
    z: Float64[np.ndarray, "labelled labelled"] = field(compare=False)
    cosines: Float64[np.ndarray, "labelled labelled"] = field(compare=False)
    groups: Labelled = field(compare=False)
    held_out: Exclude

    @property
    def apart(self) -> Bool[np.ndarray, "labelled labelled"]:
        """Which pairs are of different groups."""
        return np.asarray(self.groups[:, None] != self.groups[None, :])


def pick_references(family: LabelledModels) -> References:
    """All labelled models, or of each dataset in turn one after the other, by hash of their ids;
    authors are held out where that leaves half of the models a sibling that have one in another
    run."""
    by_label: dict[str, list[int]] = {}
    for row, label in enumerate(family.labels):
        if label is not None:
            by_label.setdefault(label, []).append(row)
    turns = []
    for label, members in by_label.items():
        members.sort(key=lambda row: id_digest(family.ids[row]))
        turns += [(turn, label, row) for turn, row in enumerate(members)]
    picked = [row for _, _, row in sorted(turns)[:MOST_REFERENCES]]
    rows = np.array(sorted(picked, key=family.ids.__getitem__), dtype=np.int64)
    names = tuple(sorted({family.labels[row] or "" for row in picked}))
    codes = label_codes([family.labels[row] for row in rows.tolist()], names)
    pairs = family.pairs_between(rows, rows)
    z, cosines = pairs.z, pairs.cosines
    runs = [family.runs[row] for row in rows.tolist()]
    authors = [family.authors[row] for row in rows.tolist()]
    by_run = _bound_together(cosines, runs)
    by_author = _bound_together(cosines, runs, authors)
    enough = 2 * _count_with_sibling(codes, by_author) >= max(1, _count_with_sibling(codes, by_run))
    return References(
        rows=rows,
        names=names,
        codes=codes,
        z=z,
        cosines=cosines,
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
        first: dict[str, int] = {}
        known = [(row, mark) for row, mark in enumerate(column) if mark is not None]
        pairs += [(row, first.setdefault(mark, row)) for row, mark in known]
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(left)), (left, right)), shape=cosines.shape)
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _count_with_sibling(codes: Labelled, groups: Labelled) -> int:
    """Models with one of their dataset in another group."""
    pairs = list(zip(codes.tolist(), groups.tolist(), strict=True))
    n_groups = Counter(code for code, _ in set(pairs))
    return sum(n_groups[code] > 1 for code, _ in pairs)
