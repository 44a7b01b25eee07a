"""A dataset for unlabelled models, and how often such a suggestion is right.

Every labelled model is classified twice as if it had no label, each time without its own run,
copies and (where there are enough) author: once as it is, and once without the models of its
dataset, when every suggestion is wrong. How often the second case will occur cannot be measured:
it is a setting.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...arrays import Bool, Float64, Int64
from ..labelled import LabelledModels
from ..precision import Exclude, label_codes
from ..scoring.cohort import id_digest

TARGET = 0.95
"""Precision that suggestions are to have."""

UNKNOWN_SHARE = 0.5
"""Share of the unlabelled models whose dataset no labelled model has, unless it is given."""

DOUBT = 0.2
"""Chance that the share of right answers is below its bound: 32 of 32 bound it by 0.95."""

FEWEST_DATASETS = 3
"""With fewer datasets no margin remains once a dataset is left out."""

BLOCK = 1_000
"""Unlabelled models at once."""

SHOWN = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
"""Confidences at which the curve is shown."""

VOTERS = 3
"""Nearest models of a dataset that vote for it."""

COPY = 0.9
"""Plain cosine from which two models count as one: rounded, copied, or trained a few steps on."""

MOST_REFERENCES = 4_000
"""Labelled models that vote; their scores take 128 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutAnswers:
    """Suggestions for the labelled models, whose labels are held out.

    Attributes:
        margins: Of the models that have a sibling in another group.
        right: Whether their suggestion is their dataset.
        weights: 1 shared among a group's models of one dataset: together they are one answer.
        unknown: Margins of all models, without the models of their dataset.
        datasets: Dataset of each of these.
    """

    margins: Float64[np.ndarray, " queries"] = field(compare=False)
    right: Bool[np.ndarray, " queries"] = field(compare=False)
    weights: Float64[np.ndarray, " queries"] = field(compare=False)
    unknown: Float64[np.ndarray, " labelled"] = field(compare=False)
    datasets: Int64[np.ndarray, " labelled"] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What is known of the suggestions with at least some margin.

    Attributes:
        confidence: Of a suggestion: what precision they will have, on the safe side.
        precision: As it was measured.
        coverage: Share of the models of known datasets that get one.
    """

    margin: float
    confidence: float
    precision: float
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Of suggestions at least as sure as this one, at least `confidence` are expected right."""

    model: str
    dataset: str
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The quality of suggestions in a family, measured on its labelled models.

    Attributes:
        precision: Of suggestions at the threshold; None where no margin reaches the target.
        coverage: Share of models of known datasets that get a suggestion, 0…1.
        threshold: Margin, in scores, from which suggestions are made.
        models: Labelled models that have a sibling in another group.
        answers: The same, a run's (or author's) models of one dataset counted once.
        datasets: That could be suggested.
        held_out: What was left out with a model, copies always.
        unknown_share: Assumed share of models of unknown datasets.
        levels: By rising margin.
    """

    precision: float | None
    coverage: float
    threshold: float | None
    models: int
    answers: int
    datasets: int
    held_out: Exclude
    unknown_share: float
    levels: tuple[Level, ...]

    def confidence(self, margin: float) -> float:
        """The confidence of the highest level that this margin reaches."""
        reached = bisect_right(self.levels, margin, key=lambda level: level.margin)
        return self.levels[reached - 1].confidence if reached else 0.0

    def to_json(self) -> dict[str, object]:
        return {
            "precision": self.precision,
            "coverage": self.coverage,
            "threshold": self.threshold,
            "target": TARGET,
            "models": self.models,
            "answers": self.answers,
            "datasets": self.datasets,
            "held_out": self.held_out,
            "unknown_share": self.unknown_share,
            "curve": [
                {name: getattr(level, name) for name in ("confidence", "precision", "coverage")}
                for level in self._curve()
            ],
        }

    def _curve(self) -> list[Level]:
        """The first level of each shown confidence, and the last of all."""
        first_levels = [
            next((level for level in self.levels if level.confidence >= shown), None)
            for shown in SHOWN
        ]
        levels = [level for level in (*first_levels, *self.levels[-1:]) if level is not None]
        by_margin = {level.margin: level for level in levels}
        return [by_margin[margin] for margin in sorted(by_margin)]


def suggest_datasets(
    family: LabelledModels, unknown_share: float = UNKNOWN_SHARE
) -> tuple[list[Suggestion], Calibration]:
    """Datasets for the unlabelled models that reach the target, by id; and why these.

    Each dataset speaks through its nearest models; the margin of the first dataset over the
    second decides. Peak: `BLOCK` models' scores with the references, and those' own.

    Args:
        unknown_share: Share of the unlabelled models, 0 to under 1, whose dataset no labelled
            model has.
    """
    references = pick_references(family)
    calibration = _calibrate(references, unknown_share)
    if calibration.threshold is None:
        return [], calibration
    unlabelled = [row for row, label in enumerate(family.labels) if label is None]
    suggestions: list[Suggestion] = []
    for start in range(0, len(unlabelled), BLOCK):
        suggestions += _suggest(family, unlabelled[start : start + BLOCK], references, calibration)
    return sorted(suggestions, key=lambda suggestion: suggestion.model), calibration


def _suggest(
    family: LabelledModels,
    unlabelled: Sequence[int],
    references: References,
    calibration: Calibration,
) -> list[Suggestion]:
    rows = np.array(unlabelled, dtype=np.int64)
    scores = family.scores_between(rows, references.rows)
    cosines = family.cosines_between(rows, references.rows)
    allowed = may_answer(family, rows, cosines, references)
    first, margins = elect(tally(scores, allowed, references))
    assert calibration.threshold is not None
    return [
        Suggestion(
            model=family.ids[row],
            dataset=references.names[code],
            confidence=calibration.confidence(margin),
        )
        for row, code, margin in zip(rows.tolist(), first.tolist(), margins.tolist(), strict=True)
        if margin >= calibration.threshold
    ]


def _calibrate(references: References, unknown_share: float) -> Calibration:
    answers = held_out_answers(references)
    levels = measure_levels(answers, unknown_share)
    reached = next((level for level in levels if level.confidence >= TARGET), None)
    return Calibration(
        precision=reached.precision if reached else None,
        coverage=reached.coverage if reached else 0.0,
        threshold=reached.margin if reached else None,
        models=len(answers.margins),
        answers=round(float(answers.weights.sum())),
        datasets=len(references.names),
        held_out=references.held_out,
        unknown_share=unknown_share,
        levels=tuple(levels),
    )


def held_out_answers(references: References) -> HeldOutAnswers:
    """Suggestions for all references, each without its own group's models."""
    groups, codes = references.groups, references.codes
    apart = groups[:, None] != groups[None, :]
    votes = tally(references.scores, apart, references)
    places = np.arange(len(codes))
    has_sibling = np.isfinite(votes[places, codes])
    first, margins = elect(votes)
    votes[places, codes] = -np.inf
    _, unknown = elect(votes)
    pairs = list(zip(codes[has_sibling].tolist(), groups[has_sibling].tolist(), strict=True))
    sizes = Counter(pairs)
    return HeldOutAnswers(
        margins=margins[has_sibling],
        right=(first == codes)[has_sibling],
        weights=np.array([1.0 / sizes[pair] for pair in pairs], dtype=np.float64),
        unknown=unknown,
        datasets=codes,
    )


def measure_levels(answers: HeldOutAnswers, unknown_share: float) -> list[Level]:
    """Levels by rising margin, confidence always rising; empty without enough datasets."""
    if len(set(answers.datasets[np.isfinite(answers.unknown)].tolist())) < FEWEST_DATASETS:
        return []
    levels: list[Level] = []
    for margin in np.unique(answers.margins[np.isfinite(answers.margins)]).tolist():
        level = _level(answers, margin, unknown_share)
        if not levels or level.confidence > levels[-1].confidence:
            levels.append(level)
    return levels


def _level(answers: HeldOutAnswers, margin: float, unknown_share: float) -> Level:
    """What the answers with at least this margin say.

    Of n datasets taken away, each with its share of models that get an answer, Σ is the sum:
    a new dataset's model gets one with probability (Σ + 1)/(n + 1) at most, whatever margins
    are like (conformal prediction, Vovk et al. 2005): none of six does not mean never.
    """
    from scipy.special import betaincinv

    taken = answers.margins >= margin
    n_answers = float(answers.weights[taken].sum())
    right = float(answers.weights[taken & answers.right].sum())
    known = (1 - unknown_share) * n_answers / float(answers.weights.sum())
    n_datasets = len(set(answers.datasets.tolist()))
    counts = np.bincount(answers.datasets)
    shares = 1.0 / counts[answers.datasets] / np.count_nonzero(counts)
    wrongly = float(shares[answers.unknown >= margin].sum())
    # one-sided Clopper-Pearson bound of a share (1934); the counts may be fractions
    bound = float(betaincinv(right, n_answers - right + 1, DOUBT)) if right > 0 else 0.0
    expected = (wrongly * n_datasets + 1) / (n_datasets + 1)
    return Level(
        margin=margin,
        confidence=known * bound / (known + unknown_share * expected),
        precision=known * (right / n_answers) / (known + unknown_share * wrongly),
        coverage=n_answers / float(answers.weights.sum()),
    )


# votes of labelled models


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The labelled models that vote for their datasets.

    Attributes:
        rows: Their rows in the family, by id.
        names: The datasets.
        codes: Each one's dataset, as its place in `names`.
        scores: Among themselves.
        groups: Equal for models that must not vote for each other, the cause being `held_out`:
            of the same run, copies and, where enough models remain, of the same author.
    """

    rows: Int64[np.ndarray, " labelled"] = field(compare=False)
    names: tuple[str, ...]
    codes: Int64[np.ndarray, " labelled"] = field(compare=False)
    scores: Float64[np.ndarray, "labelled labelled"] = field(compare=False)
    groups: Int64[np.ndarray, " labelled"] = field(compare=False)
    held_out: Exclude


def pick_references(family: LabelledModels) -> References:
    """All labelled models, or of each dataset in turn one after the other, by hash of their ids.

    Authors are held out where that leaves half of the models that have a sibling in another
    run a sibling by another author; else a family of one author would have no votes at all.
    """
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
    scores, cosines = family.scores_between(rows, rows), family.cosines_between(rows, rows)
    runs = [family.runs[row] for row in rows.tolist()]
    authors = [family.authors[row] for row in rows.tolist()]
    by_run = _bound_together(cosines, runs)
    by_author = _bound_together(cosines, runs, authors)
    enough = 2 * _count_with_sibling(codes, by_author) >= max(1, _count_with_sibling(codes, by_run))
    return References(
        rows=rows,
        names=names,
        codes=codes,
        scores=scores,
        groups=by_author if enough else by_run,
        held_out="author" if enough else "run",
    )


def may_answer(
    family: LabelledModels,
    rows: Int64[np.ndarray, " queries"],
    cosines: Float64[np.ndarray, "queries labelled"],
    references: References,
) -> Bool[np.ndarray, "queries labelled"]:
    """Which references may answer for unlabelled models: not the own author's, but for copies."""
    allowed = np.ones(cosines.shape, dtype=np.bool_)
    if references.held_out == "author":
        theirs = np.array([family.authors[row] or "" for row in references.rows.tolist()])
        for place, row in enumerate(rows.tolist()):
            if family.authors[row] is not None:
                allowed[place] = theirs != family.authors[row]
    return allowed | (cosines >= COPY)


def tally(
    scores: Float64[np.ndarray, "queries labelled"],
    allowed: Bool[np.ndarray, "queries labelled"],
    references: References,
) -> Float64[np.ndarray, "queries classes"]:
    """Each dataset's mean score over its `VOTERS` nearest that may answer; −∞ without any."""
    shown = np.where(allowed, scores, -np.inf)
    votes = np.full((len(scores), len(references.names)), -np.inf)
    for code in range(len(references.names)):
        mine = shown[:, references.codes == code]
        nearest = -np.sort(-mine, axis=1)[:, :VOTERS]
        counted = np.isfinite(nearest)
        n_voters = counted.sum(axis=1)
        has_vote = n_voters > 0
        sums = np.where(counted, nearest, 0.0).sum(axis=1)
        votes[has_vote, code] = sums[has_vote] / n_voters[has_vote]
    return votes


def elect(
    votes: Float64[np.ndarray, "queries classes"],
) -> tuple[Int64[np.ndarray, " queries"], Float64[np.ndarray, " queries"]]:
    """The first dataset of each row and its margin over the second; −∞ without a second."""
    places = np.arange(len(votes))
    if not votes.size:
        return np.zeros(len(votes), dtype=np.int64), np.full(len(votes), -np.inf)
    first = votes.argmax(axis=1)
    best = votes[places, first]
    others = votes.copy()
    others[places, first] = -np.inf
    second = others.max(axis=1, initial=-np.inf)
    two = np.isfinite(second)
    margins = np.full(len(votes), -np.inf)
    margins[two] = best[two] - second[two]
    return first.astype(np.int64), margins


def _bound_together(
    cosines: Float64[np.ndarray, "labelled labelled"], *marks: Sequence[str | None]
) -> Int64[np.ndarray, " labelled"]:
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


def _count_with_sibling(
    codes: Int64[np.ndarray, " labelled"], groups: Int64[np.ndarray, " labelled"]
) -> int:
    """Models with one of their dataset in another group."""
    pairs = list(zip(codes.tolist(), groups.tolist(), strict=True))
    n_groups = Counter(code for code, _ in set(pairs))
    return sum(n_groups[code] > 1 for code, _ in pairs)
