"""What a score proves: the probability that a model was trained on the query's data, the false
discovery rate of a list, and verdicts.

A logistic regression takes z and what surrounds it to the probability. With labels: the gap to the
best model of another data set, and the support (mean z of the three nearest of the model's data set
less that of the three nearest of others); without: the gap to the three models that follow. Both
take the median z of the family's nearest pairs. Its coefficients come from families like it
(`LABELLED`, `UNLABELLED`: `python -m benchmarks.families evidence`); the labelled models of the
family itself, each asked with its siblings and again without them, move them by as much as they
know (a Gaussian prior around the coefficients of other families: MAP, by Newton's method).

A bound keeps lone queries silent (conformal prediction: Vovk et al. 2005): the probability that at
most `LONE_SHARE` of the models asked without their siblings reach, each by the regression of the
other data sets.

The false discovery rate of a list is the mean of 1 − probability from its top down to a row, made
monotone. Families too small for any of this keep the null alone: strangers' tail as exponential,
P(z or more) = ½ exp(−z / `RATE`), and rates by Benjamini, Hochberg 1995.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..store import FamilyView

Numbers = Float64[np.ndarray, " models"]
Square = Float64[np.ndarray, "models models"]
Columns = Float64[np.ndarray, "rows features"]
Groups = Int64[np.ndarray, " models"]

Verdict = Literal["copy", "likely the same data", "perhaps", "no model stands out"]
Source = Literal["labelled models of the family", "families like it", "the null alone"]

COPY_COSINE = 0.95
"""Plain cosine from which a model is a copy: rounded, mirrored, or trained a few steps on."""

LIKELY, PERHAPS = 0.95, 0.85
"""Probabilities from which a model is likely of the same data, or perhaps."""

LONE_SHARE = 0.05
"""Share of lone queries, whose siblings are not in the family, that may get an answer."""

FEWEST_MODELS = 12
"""Models of a family from which a probability is known; in smaller ones z has no scale."""

FEWEST_QUERIES = 8
"""Labelled models with a labelled stranger from which labels are used."""

FEWEST_DATASETS = 3
"""Data sets with siblings from which the family's own labels move the coefficients."""

LABELLED = (-1.82, 0.32, -0.12, -0.24, 0.49)
"""Of 1, z, the family's nearest z, gap and support, fitted over several families."""

UNLABELLED = (-1.74, 0.40, -0.14, 0.10)
"""Of 1, z, the family's nearest z and the gap to the models that follow."""

PRECISION = (0.1, 1.0, 1.0, 1.0, 1.0)
"""Of the prior: how little families differ in a coefficient."""

CASES = 3.0
"""Queries as which a data set counts at most: its models are alike."""

TYPICAL_NEAREST = 5.0
"""z of a model's nearest, where a family does not say."""

FOLDS = 16
"""Of data sets: those of one are held out together."""

TOP = 3
RATE = 1.1
"""Of the exponential tail of strangers, in z."""

SMALL_FAMILY = 2.0
"""Models by which the rate is widened: few models know the scale of strangers badly."""

LARGEST_LOGIT = 30.0
NEWTON_STEPS, NEWTON_TOLERANCE = 50, 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What the rows of a ranking, by falling z, prove: `probabilities` are None where nothing is
    known to calibrate on; `fdr` is the share of all answers down to a row expected to be wrong."""

    probabilities: Numbers | None
    fdr: Numbers
    verdicts: tuple[Verdict, ...]

    def probability(self, place: int) -> float | None:
        return None if self.probabilities is None else float(self.probabilities[place])


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What probabilities and rates are computed from, in plain numbers.

    models: of the family. queries, datasets: labelled ones, and data sets with siblings among them.
    nearest: median z of the cohort's nearest pairs. weights: of the features of a labelled row.
    bound: probability that at most `LONE_SHARE` of lone queries reach.
    """

    models: int
    source: Source = "the null alone"
    datasets: int = 0
    queries: int = 0
    nearest: float = TYPICAL_NEAREST
    weights: tuple[float, ...] = LABELLED
    bound: float = 0.0

    @property
    def rate(self) -> float:
        """Of the tail of strangers; few models widen it."""
        return RATE * (1.0 + SMALL_FAMILY / max(1, self.models))

    @property
    def missing(self) -> int:
        """Models that the family lacks for a probability."""
        return max(0, FEWEST_MODELS - self.models)

    def judge(
        self,
        z: Numbers,
        labels: Sequence[str | None],
        cosines: Numbers | None = None,
        n_candidates: int | None = None,
    ) -> Judgement:
        """Of a ranking by falling z, with the labels of its rows; of `n_candidates` that were
        compared, which only the null asks for.

        Copies of the query, of which their cosines tell, are no discoveries and count in no other's
        evidence: a stored query has the answer of the same model that is read from its files.
        """
        is_copy = np.zeros(len(z), np.bool_) if cosines is None else cosines >= COPY_COSINE
        if self.source == "the null alone":
            n = len(z) if n_candidates is None else n_candidates
            rates = null_rates(z, self.rate, n - int(is_copy.sum()), is_copy)
            verdicts = tuple[Verdict, ...](verdict(bool(copy), None, 1.0) for copy in is_copy)
            return Judgement(None, rates, verdicts)
        known = self.probabilities(z, labels, is_copy)
        wrong = np.cumsum(np.where(is_copy, 0.0, 1.0 - known))
        mean = wrong / np.maximum(np.cumsum(~is_copy), 1)
        return Judgement(
            probabilities=known,
            fdr=np.asarray(np.maximum.accumulate(mean) if len(mean) else mean),
            verdicts=tuple(
                verdict(copy, p, self.bound)
                for copy, p in zip(is_copy.tolist(), known.tolist(), strict=True)
            ),
        )

    def probabilities(
        self, z: Numbers, labels: Sequence[str | None], is_copy: Bool[np.ndarray, " models"]
    ) -> Numbers:
        """Of the rows of a ranking by falling z, 0…1."""
        logits = unlabelled_features(z, self.nearest, ~is_copy) @ np.array(UNLABELLED)
        if self.queries >= FEWEST_QUERIES:
            codes = codes_of_labels(labels)
            features = labelled_features(z, codes, self.nearest, ~is_copy)
            logits = np.where(codes >= 0, features @ np.array(self.weights), logits)
        return sigmoid(logits)

    def to_json(self) -> dict[str, Any]:
        """All that `from_json` needs, and the rate of the null."""
        return asdict(self) | {"weights": list(self.weights), "rate": self.rate}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Calibration:
        """Of what `to_json` gave; ValueError or KeyError where a number is missing or not one."""
        source, weights = document["source"], tuple(float(x) for x in document["weights"])
        numbers = [float(document[name]) for name in ("nearest", "bound")]
        counts = [int(document[name]) for name in ("models", "datasets", "queries")]
        if source not in get_args(Source) or len(weights) != len(LABELLED) or min(counts) < 0:
            raise ValueError("calibration")
        if not np.isfinite([*weights, *numbers]).all():
            raise ValueError("calibration")
        return cls(
            models=counts[0],
            datasets=counts[1],
            queries=counts[2],
            source=source,
            nearest=numbers[0],
            bound=numbers[1],
            weights=weights,
        )


def verdict(is_copy: bool, probability: float | None, bound: float) -> Verdict:
    """Of a row: by its probability, where lone queries seldom reach it."""
    if is_copy:
        return "copy"
    if probability is None or probability < max(PERHAPS, bound):
        return "no model stands out"
    return "likely the same data" if probability >= LIKELY else "perhaps"


def sigmoid(logits: Numbers) -> Numbers:
    inside = np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)
    return np.asarray(1.0 / (1.0 + np.exp(-inside)))


def codes_of_labels(labels: Sequence[str | None]) -> Groups:
    """Places among the sorted labels; −1 for none."""
    names = {name: code for code, name in enumerate(sorted({name for name in labels if name}))}
    return np.array([names.get(name or "", -1) for name in labels], dtype=np.int64)


def labelled_features(
    z: Numbers, codes: Groups, nearest: float, counts: Bool[np.ndarray, " models"]
) -> Columns:
    """1, z, `nearest`, gap and support of every row by its label, `codes`; rows that do not count
    are in no other's gap or support. Where other data sets have fewer than three models in all,
    `nearest` stands for the missing."""
    used = counts & (codes >= 0)
    places = np.flatnonzero(used)
    order = places[np.lexsort((-z[places], codes[places]))]
    own = codes[order]
    starts = np.searchsorted(own, own)
    best = order[np.arange(len(order)) - starts < TOP]
    n = int(codes.max(initial=-1)) + 1
    counted = np.bincount(codes[best], minlength=n)
    of_label = np.bincount(codes[best], z[best], minlength=n) / np.maximum(counted, 1)
    # three of the best six at most are of the row's own label
    best = best[np.lexsort((codes[best], -z[best]))][: 2 * TOP]
    if not len(best):
        return np.zeros((len(z), len(LABELLED)))
    is_other = codes[best][None, :] != np.arange(n)[:, None]
    first = np.argsort(~is_other, axis=1, kind="stable")[:, :TOP]
    others = np.full((n, TOP), nearest)
    there = np.take_along_axis(is_other, first, axis=1)
    others[:, : first.shape[1]] = np.where(there, z[best][first], nearest)
    known = np.maximum(codes, 0)
    support = np.where(counted[known] > 0, of_label[known], z) - others.mean(axis=1)[known]
    gap = z - others[:, 0][known]
    return np.column_stack([np.ones(len(z)), z, np.full(len(z), nearest), gap, support])


def unlabelled_features(z: Numbers, nearest: float, counts: Bool[np.ndarray, " models"]) -> Columns:
    """1, z, `nearest` and z less the mean of the next three rows that count."""
    following = np.append(z[counts], np.zeros(TOP))
    sums = np.append(0.0, following.cumsum())
    start = np.minimum(np.cumsum(counts), len(following) - TOP)
    gap = z - (sums[start + TOP] - sums[start]) / TOP
    return np.column_stack([np.ones(len(z)), z, np.full(len(z), nearest), gap])


def null_rates(
    z: Numbers, rate: float, n_candidates: int, is_copy: Bool[np.ndarray, " models"]
) -> Numbers:
    """False discovery rates by the tail of strangers alone (Benjamini, Hochberg 1995)."""
    ranks = np.maximum(np.cumsum(~is_copy), 1)
    expected = n_candidates * tail(z, rate) / ranks
    rates = np.minimum.accumulate(expected[::-1])[::-1]
    return np.asarray(np.minimum(rates, 1.0))


def tail(z: Float64[np.ndarray, "*shape"], rate: float) -> Float64[np.ndarray, "*shape"]:
    """Probability that a stranger has at least this z."""
    above = 0.5 * np.exp(-np.abs(z) / rate)
    return np.asarray(np.where(z >= 0, above, 1.0 - above))


@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """Labelled models as queries, each with its siblings and again without: the features of the
    nearest model, whether it is a sibling, the query and its data set, whether it was asked
    without."""

    features: Columns
    right: Bool[np.ndarray, " rows"]
    queries: Int64[np.ndarray, " rows"]
    datasets: Int64[np.ndarray, " rows"]
    lone: Bool[np.ndarray, " rows"]

    @property
    def weights(self) -> Float64[np.ndarray, " rows"]:
        """`CASES` for each data set's queries with siblings, and as much without; 1 at most."""
        groups = 2 * self.datasets + self.lone
        return np.asarray(np.minimum(CASES / np.bincount(groups)[groups], 1.0))

    def fit(
        self, chosen: Bool[np.ndarray, " rows"], prior: Sequence[float] = LABELLED
    ) -> Float64[np.ndarray, " features"]:
        """Coefficients from some of the cases, around a prior."""
        return fit_logistic(
            self.features[chosen], self.right[chosen], self.weights[chosen], prior, PRECISION
        )

    def held_out(self) -> Numbers:
        """The probability of every case, by the coefficients of the data sets of other folds."""
        p, folds = np.empty(len(self.right)), self.datasets % FOLDS
        for fold in np.unique(folds).tolist():
            p[folds == fold] = sigmoid(self.features[folds == fold] @ self.fit(folds != fold))
        return p

    def bound(self) -> float:
        """The held-out probability that `LONE_SHARE` of the lone queries reach, every data set
        alike; one data set more, unseen, reaches a probability p in 1 − p of its queries, as p
        itself says."""
        p, codes = self.held_out()[self.lone], self.datasets[self.lone]
        weights = 1.0 / np.bincount(codes)[codes]
        order = np.argsort(-p, kind="stable")
        reached = weights[order].cumsum() + 1.0 - p[order]
        allowed = LONE_SHARE * (len(np.unique(codes)) + 1.0)
        above = max(float(p.max()), 1.0 - allowed)
        return float(np.interp(allowed, reached, p[order], left=above))

    def take(self, chosen: Bool[np.ndarray, " rows"]) -> Cases:
        return Cases(*(getattr(self, column.name)[chosen] for column in fields(self)))


def find_cases(
    z: Square, codes: Groups, may_answer: Bool[np.ndarray, "models models"], nearest: float
) -> Cases:
    """The cases of a family's labelled models, `codes` ≥ 0."""
    found: list[tuple[Float64[np.ndarray, " features"], bool, int, int, bool]] = []
    among = may_answer & (codes >= 0)[None, :]
    for query in np.flatnonzero(codes >= 0).tolist():
        siblings = among[query] & (codes == codes[query])
        for lone in (False, True) if siblings.any() else (True,):
            places = np.flatnonzero(among[query] & ~siblings if lone else among[query])
            if not among[query, codes != codes[query]].any():
                continue
            values, theirs = z[query, places], codes[places]
            features = labelled_features(values, theirs, nearest, np.ones(len(places), np.bool_))
            best = int(values.argmax())
            right = bool(theirs[best] == codes[query])
            found.append((features[best], right, query, int(codes[query]), lone))
    columns = zip(*found, strict=True) if found else ([], [], [], [], [])
    kinds = np.float64, np.bool_, np.int64, np.int64, np.bool_
    rows, *rest = (np.array(list(c), dtype=kind) for c, kind in zip(columns, kinds, strict=True))
    return Cases(rows.reshape(-1, len(LABELLED)), *rest)


def fit_logistic(
    features: Columns,
    right: Bool[np.ndarray, " rows"],
    weights: Float64[np.ndarray, " rows"],
    prior: Sequence[float],
    precision: Sequence[float],
) -> Float64[np.ndarray, " features"]:
    """Coefficients of a weighted logistic regression, with a Gaussian prior around `prior`."""
    centre, inverse = np.array(prior), np.diag(precision)
    found = centre.copy()
    for _ in range(NEWTON_STEPS):
        p = sigmoid(features @ found)
        gradient = features.T @ (weights * (p - right)) + inverse @ (found - centre)
        curvature = (features.T * (weights * p * (1 - p))) @ features + inverse
        step = np.linalg.solve(curvature, gradient)
        # a full step from far away may overshoot
        found = found - step * min(1.0, 2.0 / max(np.abs(step).max(), NEWTON_TOLERANCE))
        if np.abs(step).max() < NEWTON_TOLERANCE:
            break
    return np.asarray(found)


def calibrate(
    z: Square,
    labels: Sequence[str | None],
    may_answer: Bool[np.ndarray, "models models"],
    n_family: int,
) -> Calibration:
    """What is known of a family of `n_family` models, from the scores of its cohort and the labels
    of some; `may_answer` are the pairs that count: not a model with itself or its copies."""
    codes = codes_of_labels(labels)
    asking = np.flatnonzero(may_answer.any(axis=1))
    if n_family < FEWEST_MODELS or not len(asking):
        return Calibration(models=n_family)
    nearest = float(np.median(np.where(may_answer, z, -np.inf)[asking].max(axis=1)))
    cases = find_cases(z, codes, may_answer, nearest)
    known = Calibration(
        models=n_family,
        source="families like it",
        datasets=len(np.unique(cases.datasets[~cases.lone])),
        queries=int(cases.lone.sum()),
        nearest=nearest,
    )
    if known.queries < FEWEST_QUERIES or known.datasets < FEWEST_DATASETS:
        return known
    weights = cases.fit(np.ones(len(cases.right), np.bool_))
    return replace(
        known,
        source="labelled models of the family",
        weights=tuple(weights.tolist()),
        bound=cases.bound(),
    )


class LabelledCohort:
    """The scores of a family's cohort, and what its labels say of them."""

    def __init__(
        self,
        rows: Int64[np.ndarray, " cohort"],
        z: Float64[np.ndarray, "cohort cohort"],
        are_strangers: Bool[np.ndarray, "cohort cohort"],
    ) -> None:
        self.rows, self.z, self.are_strangers = rows, z, are_strangers
        self._last: tuple[str, tuple[str | None, ...], Calibration] | None = None

    def calibration(self, view: FamilyView) -> Calibration:
        """By the labels as of now, without those that names of models gave; computed again where
        one of them changed."""
        last = self._last
        if last is not None and last[0] == view.changes and view.is_current:
            return last[2]
        listed = self.rows.tolist()
        labels = view.labels_at(listed)
        names = tuple(labels[row].stated if row in labels else None for row in listed)
        if last is not None and last[1] == names and last[2].models == len(view):
            calibration = last[2]
        else:
            calibration = calibrate(self.z, names, self.are_strangers, len(view))
        if view.is_current:
            self._last = view.changes, names, calibration
        return calibration
