"""How sure a margin makes a suggestion: measured on labelled models, asked as if they were not.

Every labelled model is asked twice, each time without its own run, copies and (where there are
enough) author: once as it is, and once with its whole dataset taken away, when anything
that is suggested is wrong. How often the second will be met nobody can measure: it is a setting.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ...arrays import Bool, Float64, Int64
from .votes import References, elect, tally

TARGET = 0.95
"""Precision that suggestions are to have."""

UNKNOWN_SHARE = 0.5
"""Share of the unlabelled models whose dataset no labelled model has, unless one knows better."""

DOUBT = 0.2
"""Chance that the share of right answers is below its bound: 32 of 32 bound it by 0.95."""

FEWEST_DATASETS = 3
"""Below this no dataset can be taken away and a margin be left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Answers of labelled models.

    Attributes:
        margins: Of those that have a sibling to find.
        right: Whether they found their dataset.
        weights: 1 shared among a group's models of one dataset: they are one answer.
        unknown: Margins of all, their dataset taken away.
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


def ask_labelled(references: References) -> Asked:
    """The answers of all references, each group's own models left out."""
    groups, codes = references.groups, references.codes
    apart = groups[:, None] != groups[None, :]
    votes = tally(references.scores, apart, references)
    places = np.arange(len(codes))
    asked = np.isfinite(votes[places, codes])
    first, margins = elect(votes)
    votes[places, codes] = -np.inf
    _, unknown = elect(votes)
    pairs = list(zip(codes[asked].tolist(), groups[asked].tolist(), strict=True))
    sizes = Counter(pairs)
    return Asked(
        margins=margins[asked],
        right=(first == codes)[asked],
        weights=np.array([1.0 / sizes[pair] for pair in pairs], dtype=np.float64),
        unknown=unknown,
        datasets=codes,
    )


def measure_levels(asked: Asked, unknown_share: float) -> list[Level]:
    """Levels by rising margin, confidence always rising; empty without enough datasets."""
    if len(set(asked.datasets[np.isfinite(asked.unknown)].tolist())) < FEWEST_DATASETS:
        return []
    levels: list[Level] = []
    for margin in np.unique(asked.margins[np.isfinite(asked.margins)]).tolist():
        level = _level(asked, margin, unknown_share)
        if not levels or level.confidence > levels[-1].confidence:
            levels.append(level)
    return levels


def _level(asked: Asked, margin: float, unknown_share: float) -> Level:
    """What the answers with at least this margin say.

    Of n datasets taken away, each with its share of models that get an answer, Σ is the sum:
    a new dataset's model gets one with probability (Σ + 1)/(n + 1) at most, whatever margins
    are like (conformal prediction, Vovk et al. 2005): none of six does not mean never.
    """
    taken = asked.margins >= margin
    n_answers = float(asked.weights[taken].sum())
    right = float(asked.weights[taken & asked.right].sum())
    known = (1 - unknown_share) * n_answers / float(asked.weights.sum())
    n_datasets = len(set(asked.datasets.tolist()))
    wrongly = float(_by_dataset(asked.datasets)[asked.unknown >= margin].sum())
    expected = (wrongly * n_datasets + 1) / (n_datasets + 1)
    return Level(
        margin=margin,
        confidence=known * _lower_bound(right, n_answers) / (known + unknown_share * expected),
        precision=known * (right / n_answers) / (known + unknown_share * wrongly),
        coverage=n_answers / float(asked.weights.sum()),
    )


def _lower_bound(right: float, n: float) -> float:
    """One-sided Clopper-Pearson bound of a share (1934); the counts may be fractions."""
    from scipy.special import betaincinv

    return float(betaincinv(right, n - right + 1, DOUBT)) if right > 0 else 0.0


def _by_dataset(datasets: Int64[np.ndarray, " labelled"]) -> Float64[np.ndarray, " labelled"]:
    """A weight for each answer, 1 in all: every dataset weighs the same."""
    counts = np.bincount(datasets)
    return np.asarray(1.0 / counts[datasets] / np.count_nonzero(counts), dtype=np.float64)
