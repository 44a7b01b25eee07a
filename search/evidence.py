"""What a score proves: the probability that a model was trained on the query's data, the false
discovery rate of a list, and verdicts.

The data sets of a ranking compete (conditional logit: McFadden 1974): data set d has the support m,
the mean z of its three nearest models, weighted 1 : 0.2 : 0.1, and the probability
eˢ⁽ᵈ⁾ / (1 + Σ eˢ), s = a + b m; the 1 stands for a data set that the family does not have. So the
gap to the next data set counts. Models without a label are judged one by one, by z and the gap to
those that follow.

The coefficients come from families like it (`LABELLED`, `UNLABELLED`:
`python -m benchmarks.families evidence DB... --fit`). The labelled models of the family itself,
each asked with its siblings and again in the family without them, move them by as much as they
know: a Gaussian prior around those of other families, by Newton's method. A bound keeps lone
queries silent (conformal prediction: Vovk et al. 2005): the probability that at most `LONE_SHARE`
of the models asked without their siblings reach, each by the coefficients of other data sets.

The false discovery rate of a list is the mean of 1 − probability from its top down to a row, made
monotone. Families too small for any of this keep the null alone: strangers' tail as exponential,
P(z or more) = ½ exp(−z / `RATE`), and rates by Benjamini, Hochberg 1995.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..store import FamilyView, ModelLabel

Numbers = Float64[np.ndarray, " models"]
Square = Float64[np.ndarray, "models models"]
Columns = Float64[np.ndarray, "rows features"]
Supports = Float64[np.ndarray, "rows labels"]
Groups = Int64[np.ndarray, " models"]

Verdict = Literal["copy", "likely the same data", "perhaps", "no model stands out"]
Source = Literal["labelled models of the family", "families like it", "the null alone"]

COPY_COSINE = 0.95
"""Plain cosine from which a model is a copy: rounded, mirrored, or trained a few steps on."""

LIKELY, PERHAPS = 0.95, 0.6
"""Probabilities from which a model is likely of the same data, or perhaps."""

LONE_SHARE = 0.05
"""Share of lone queries, whose siblings are not in the family, that may get an answer."""

LONE_BOUND = 0.72
"""The probability that `LONE_SHARE` of lone queries reach in families like it."""

FEWEST_MODELS = 12
"""Models of a family from which a probability is known; in smaller ones z has no scale."""

FEWEST_QUERIES = 8
"""Labelled models with a labelled stranger from which labels are used."""

FEWEST_DATASETS = 3
"""Data sets with siblings from which the family's own labels move the coefficients."""

LABELLED = (0.07, -0.71, 0.84)
"""Of 1, the family's nearest z, and the support of a data set, fitted over several families."""

UNLABELLED = (0.53, 0.43, -0.42, -0.12)
"""Of 1, z, the family's nearest z and the gap to the models that follow."""

PRECISION = (0.1, 1.0)
"""Of the prior: how little families differ in a and b."""

LEAST_SLOPE = 0.2
"""Of the probability with a support: labels under which it rises by less do not follow the data."""

ANSWERED = 0.5
"""Share of the clearest pairs of one label with a verdict, unless families like it give less."""

CASES = 3.0
"""Queries as which a data set counts at most: its models are alike."""

DOUBT, LEAST_DOUBT, NAMED_DOUBT = 3.0, 1.5, 2.5
"""A label is in doubt, and does not count, where another data set's support is so much larger than
its own one's: in log odds, and in z. It is named from a larger difference in z on."""

MOST_SUSPECTS = 1 / 4
"""Share of labels beyond which they follow something else than the data, and none is in doubt."""

SHUFFLES, BY_CHANCE = 499, 0.02
"""Of labels; and the share of them that may agree with the nearest models as often as the labels
do, which follow no distance otherwise, so that none is in doubt."""

TYPICAL_NEAREST, LARGEST_NEAREST = 5.0, 15.0
"""z of a model's nearest, where a family does not say; and the largest that coefficients of other
families are used with, none of which reached it."""

FOLDS = 16
"""Of data sets: those of one are held out together."""

OTHERS_WEIGH = (0.2, 0.1)
"""The two best other models of a data set, beside a model's own z in its support."""

FOLLOWING = 3
COMPETING = 8
"""Data sets of a ranking, by support: the others together count less than the rounding of p."""

RESCORED = 160
"""Models of a cohort up to which those asked without their siblings are scored again without
them: of a larger one, a data set is too small a part to move the strangers' scale."""

RATE = 1.1
"""Of the exponential tail of strangers, in z."""

SMALL_FAMILY = 2.0
"""Models by which the rate is widened: few models know the scale of strangers badly."""

CLEAR_RATE, CLEAR_RATIO = 0.01, 3.0
"""A gap is clear where the null explains at most this share of the rows above it, and the last of
them has so many times the z of the next, which counts as 1 at least."""

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
    nearest: median z of the cohort's nearest pairs. rival: the support of another data set that
    few queries meet. weights: a and b, of the support of a data set. bound: probability that at
    most `LONE_SHARE` of lone queries reach. doubted: rows of models whose labels contradict the
    distances; they count as none.
    """

    models: int
    source: Source = "the null alone"
    datasets: int = 0
    queries: int = 0
    nearest: float = TYPICAL_NEAREST
    rival: float = TYPICAL_NEAREST
    weights: tuple[float, float] | None = None
    bound: float = 0.0
    doubted: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        """Of the tail of strangers; few models widen it."""
        return RATE * (1.0 + SMALL_FAMILY / max(1, self.models))

    def judge(
        self,
        z: Numbers,
        labels: Sequence[str | None],
        cosines: Numbers | None = None,
        n_candidates: int | None = None,
    ) -> Judgement:
        """Of a ranking by falling z, with the labels of its rows; of `n_candidates` that were
        compared.

        Copies of the query, of which their cosines tell, are no discoveries and count in no other's
        evidence: a stored query has the answer of the same model that is read from its files.
        """
        is_copy = np.zeros(len(z), np.bool_) if cosines is None else cosines >= COPY_COSINE
        n = len(z) if n_candidates is None else n_candidates
        rates = null_rates(z, self.rate, n - int(is_copy.sum()), is_copy)
        if self.source == "the null alone":
            verdicts = tuple[Verdict, ...](verdict(bool(copy), None, 1.0) for copy in is_copy)
            return Judgement(None, rates, verdicts)
        known = self.probabilities(z, labels, is_copy)
        wrong = np.cumsum(np.where(is_copy, 0.0, 1.0 - known))
        mean = wrong / np.maximum(np.cumsum(~is_copy), 1)
        clear = self.stand_apart(z, rates, is_copy)
        return Judgement(
            probabilities=known,
            fdr=np.asarray(np.maximum.accumulate(mean) if len(mean) else mean),
            verdicts=tuple(
                verdict(copy, p, self.bound, is_clear=is_clear)
                for copy, p, is_clear in zip(
                    is_copy.tolist(), known.tolist(), clear.tolist(), strict=True
                )
            ),
        )

    def probabilities(
        self, z: Numbers, labels: Sequence[str | None], is_copy: Bool[np.ndarray, " models"]
    ) -> Numbers:
        """Of the rows of a ranking by falling z, 0…1."""
        nearest = min(self.nearest, LARGEST_NEAREST)
        p = sigmoid(unlabelled_features(z, nearest, ~is_copy) @ np.array(UNLABELLED))
        codes = codes_of_labels(labels)
        if self.weights is None or not (codes >= 0).any():
            return p
        own, best, places = supports(z, codes, ~is_copy)
        is_own = places[None, :] == codes[:, None]
        if is_own.all(axis=1).any():
            # all that is known of data sets that are not in the list
            best = np.append(best, self.rival)
            is_own = np.column_stack([is_own, np.zeros(len(z), np.bool_)])
        a, b = self.weights
        logits = np.column_stack([np.zeros(len(z)), a + b * own])
        others = np.where(is_own, -np.inf, a + b * best[None, :])
        total = np.logaddexp.reduce(np.column_stack([logits, others]), axis=1)
        return np.asarray(np.where(codes >= 0, np.exp(logits[:, 1] - total), p))

    def stand_apart(
        self, z: Numbers, rates: Numbers, is_copy: Bool[np.ndarray, " models"]
    ) -> Bool[np.ndarray, " models"]:
        """The rows of a ranking by falling z above its last clear gap, fewer than those below;
        `rates` are the null's."""
        places = np.flatnonzero(~is_copy)
        following = np.maximum(np.append(z[places], np.inf)[1:], 1.0)
        is_gap = (rates[places] <= CLEAR_RATE) & (z[places] >= CLEAR_RATIO * following)
        is_gap[len(places) // 2 :] = False
        last = int(np.flatnonzero(is_gap).max(initial=-1))
        above = np.zeros(len(z), np.bool_)
        above[places[: last + 1]] = True
        return above

    def trusted(self, rows: Sequence[int], labels: Sequence[str | None]) -> list[str | None]:
        """The labels of some of the family's rows without those that are in doubt."""
        return [
            None if row in self.doubted else label for row, label in zip(rows, labels, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """With the rate of the null, and where verdicts begin."""
        document = asdict(self) | {"weights": list(self.weights or ())}
        document["doubted"] = len(self.doubted)
        document |= {"rate": self.rate, "models_needed": FEWEST_MODELS}
        return document | {"verdict_from": max(PERHAPS, self.bound)}


def verdict(
    is_copy: bool, probability: float | None, bound: float, *, is_clear: bool = False
) -> Verdict:
    """Of a row: by its probability, where lone queries seldom reach it; `perhaps` at least above a
    clear gap, whatever labels say."""
    if is_copy:
        return "copy"
    if probability is None or probability < max(PERHAPS, bound):
        return "perhaps" if is_clear else "no model stands out"
    return "likely the same data" if probability >= LIKELY else "perhaps"


def quantiles(values: Numbers, *shares: float) -> list[float]:
    """As np.quantile, which imports numpy.ma."""
    places = np.multiply(shares, len(values) - 1)
    found: list[float] = np.interp(places, np.arange(len(values)), np.sort(values)).tolist()
    return found


def sigmoid(logits: Numbers) -> Numbers:
    inside = np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)
    return np.asarray(1.0 / (1.0 + np.exp(-inside)))


def codes_of_labels(labels: Sequence[str | None]) -> Groups:
    """Places among the sorted labels; −1 for none."""
    names = {name: code for code, name in enumerate(sorted({name for name in labels if name}))}
    return np.array([names.get(name or "", -1) for name in labels], dtype=np.int64)


def supports(
    z: Numbers, codes: Groups, counts: Bool[np.ndarray, " models"]
) -> tuple[Numbers, Float64[np.ndarray, " labels"], Int64[np.ndarray, " labels"]]:
    """Of every row, by falling z: the mean of its z and of those of the two best other rows of its
    label, by `OTHERS_WEIGH`. And of the `COMPETING` best labels: that of their best row, and their
    codes. Rows without a label, code −1, and those that do not count are in no other's support."""
    n = int(codes.max(initial=-1)) + 1
    if not n:
        return z, np.zeros(0), np.zeros(0, np.int64)
    places = np.flatnonzero(counts & (codes >= 0))
    own = codes[places]
    # how many rows of the same label stand above each
    order = np.argsort(own, kind="stable")
    above = np.full(len(z), len(z) + len(OTHERS_WEIGH) + 1)
    above[places[order]] = np.arange(len(own)) - np.searchsorted(own[order], own[order])
    best = np.full((n, len(OTHERS_WEIGH) + 1), np.nan)
    is_best = above < best.shape[1]
    best[codes[is_best], above[is_best]] = z[is_best]

    known, total, weight = np.maximum(codes, 0), z.copy(), np.ones(len(z))
    for place, counted in enumerate(OTHERS_WEIGH):
        # the row itself is none of the others
        other = best[known, place + (above <= place)]
        there = (codes >= 0) & ~np.isnan(other)
        total[there] += counted * other[there]
        weight[there] += counted
    support = total / weight
    first = np.flatnonzero(above == 0)
    first = first[np.argsort(-support[first], kind="stable")][:COMPETING]
    return support, support[first], codes[first]


def unlabelled_features(z: Numbers, nearest: float, counts: Bool[np.ndarray, " models"]) -> Columns:
    """1, z, `nearest` and z less the mean of the next three rows that count."""
    following = np.append(z[counts], np.zeros(FOLLOWING))
    sums = np.append(0.0, following.cumsum())
    start = np.minimum(np.cumsum(counts), len(following) - FOLLOWING)
    gap = z - (sums[start + FOLLOWING] - sums[start]) / FOLLOWING
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
    """Labelled models as queries, each with its siblings and again without: the supports of the
    nearest model's data set, first, and of others (−inf: none); the place of the query's own, −1
    where it is not there; the query and its data set; whether it was asked without."""

    supports: Supports
    own: Int64[np.ndarray, " rows"]
    queries: Int64[np.ndarray, " rows"]
    datasets: Int64[np.ndarray, " rows"]
    lone: Bool[np.ndarray, " rows"]

    @property
    def weights(self) -> Float64[np.ndarray, " rows"]:
        """`CASES` for each data set's queries with siblings, and as much without; 1 at most."""
        groups = 2 * self.datasets + self.lone
        return np.asarray(np.minimum(CASES / np.bincount(groups)[groups], 1.0))

    def take(self, chosen: Bool[np.ndarray, " rows"]) -> Cases:
        return Cases(*(getattr(self, column.name)[chosen] for column in fields(self)))

    def fit(self, prior: tuple[float, float]) -> tuple[float, float]:
        """a and b, around a prior."""
        known = np.isfinite(self.supports)
        features = np.stack([known, np.where(known, self.supports, 0.0)], axis=2)
        a, b = fit_choices(features, known, self.own, self.weights, prior, PRECISION).tolist()
        return a, b

    def nearest(self, weights: tuple[float, float]) -> Numbers:
        """The probability of the nearest model's data set."""
        logits = weights[0] + weights[1] * self.supports
        total = np.logaddexp(0.0, np.logaddexp.reduce(logits, axis=1))
        return np.asarray(np.exp(logits[:, 0] - total))

    def held_out(self, prior: tuple[float, float]) -> Numbers:
        """The same, by the coefficients of the data sets of other folds."""
        p, folds = np.empty(len(self.own)), self.datasets % FOLDS
        for fold in sorted(set(folds.tolist())):
            weights = self.take(folds != fold).fit(prior)
            p[folds == fold] = self.take(folds == fold).nearest(weights)
        return p

    def bound(self, prior: tuple[float, float]) -> float:
        """The held-out probability that `LONE_SHARE` of the lone queries reach, every data set
        alike; one data set more, unseen, reaches a probability p in 1 − p of its queries, as p
        itself says."""
        p, codes = self.held_out(prior)[self.lone], self.datasets[self.lone]
        weights = 1.0 / np.bincount(codes)[codes]
        order = np.argsort(-p, kind="stable")
        reached = weights[order].cumsum() + 1.0 - p[order]
        allowed = LONE_SHARE * (len(set(codes.tolist())) + 1.0)
        above = max(float(p.max()), 1.0 - allowed)
        return float(np.interp(allowed, reached, p[order], left=above))

    def answered(self, weights: tuple[float, float], bound: float) -> float:
        """The share with a verdict of the queries that are nearer to their own data set than nearly
        all lone queries are to any; 1 of too few."""
        (least,) = quantiles(self.supports[self.lone, 0], 1.0 - LONE_SHARE)
        clear = self.take(~self.lone & (self.own == 0) & (self.supports[:, 0] > least))
        if len(clear.own) < FEWEST_QUERIES:
            return 1.0
        has_verdict = clear.nearest(weights) >= max(PERHAPS, bound)
        return float(np.average(has_verdict, weights=clear.weights))


Rescore = Callable[[Int64[np.ndarray, " left_out"]], Float64[np.ndarray, "left_out cohort"]]
"""z of some of a cohort with all of it, as new models of a family without them; NaN among them."""


def find_cases(
    z: Square, codes: Groups, may_answer: MayAnswer, rescore: Rescore | None = None
) -> Cases:
    """The cases of a family's labelled models, `codes` ≥ 0; without their siblings they are scored
    by `rescore`, a fold of data sets at a time, else as they are."""
    is_known, is_sibling = codes >= 0, codes[:, None] == codes[None, :]
    lone_z = z.copy()
    if rescore is not None:
        # not np.unique, which imports numpy.ma
        for fold in sorted(set((codes[is_known] % FOLDS).tolist())):
            left_out = np.flatnonzero(is_known & (codes % FOLDS == fold))
            if len(left_out) < len(codes):
                lone_z[left_out] = rescore(left_out)
    among = may_answer & is_known[None, :]
    others = among & ~is_sibling & np.isfinite(lone_z)
    is_asked = is_known & others.any(axis=1)
    has_sibling = (among & is_sibling).any(axis=1)
    parts = []
    for lone, values, allowed in ((False, z, among), (True, lone_z, others)):
        rows = np.flatnonzero(is_asked & (lone | has_sibling))
        of = _supports(values, codes, allowed)[rows]
        nearest = np.where(allowed, values, -np.inf)[rows].argmax(axis=1) if len(rows) else rows
        order = np.argsort(-of, axis=1, kind="stable")[:, :COMPETING]
        # the nearest model's data set first, whatever its support
        first = np.argsort(order != codes[nearest, None], axis=1, kind="stable")
        order = np.take_along_axis(order, first, axis=1)
        best = np.take_along_axis(of, order, axis=1)
        is_own = (order == codes[rows, None]) & np.isfinite(best)
        own = np.where(is_own.any(axis=1), is_own.argmax(axis=1), -1)
        parts.append((best, own, rows, codes[rows], np.full(len(rows), lone)))
    return Cases(*map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A model that is far from the others of its data set and near those of another one: its place,
    and the support that both have."""

    place: int
    dataset: str
    own_z: float
    nearer: str
    z: float

    def to_json(self, ids: Sequence[str]) -> dict[str, Any]:
        named = {"model": ids[self.place], "dataset": self.dataset, "own_z": round(self.own_z, 2)}
        return named | {"nearer": self.nearer, "z": round(self.z, 2)}


MayAnswer = Bool[np.ndarray, "models models"]
Doubts = dict[int, tuple[int, float, float]]
"""By place: another data set's code, the support of its own one, and that of the other."""


def name_suspects(z: Square, labels: Sequence[str | None], may_answer: MayAnswer) -> list[Suspect]:
    """The models whose labels contradict the distances by `NAMED_DOUBT` or more. Labels of which
    one has all words of the other do not contradict."""
    names = sorted({label for label in labels if label})
    found = find_doubts(z, codes_of_labels(labels), may_answer)
    suspects = [
        Suspect(place=place, dataset=str(labels[place]), own_z=own, nearer=names[code], z=other)
        for place, (code, own, other) in sorted(found.items())
    ]
    return [
        one
        for one in suspects
        if one.z - max(one.own_z, 0.0) >= NAMED_DOUBT and not _agree(one.dataset, one.nearer)
    ]


def marked_groups(marks: Sequence[str | None]) -> Groups:
    """The place of the first model of the same mark, as an author or a run; of one without a mark
    its own."""
    first: dict[str, int] = {}
    places = (i if mark is None else first.setdefault(mark, i) for i, mark in enumerate(marks))
    return np.fromiter(places, np.int64, len(marks))


def other_runs(runs: Sequence[str | None]) -> MayAnswer:
    """Whether two models are of different runs; one without a run is of its own."""
    groups = marked_groups(runs)
    return np.asarray(groups[:, None] != groups[None, :])


def _agree(label: str, other: str) -> bool:
    words, others = (set(re.findall(r"[^\W_]+", text)) for text in (label, other))
    return words <= others or others <= words


def find_doubts(z: Square, codes: Groups, may_answer: MayAnswer) -> Doubts:
    """By the slope of other families, then by what the labels that are not in doubt say it is, if
    that is steeper: wrong labels make it flatter."""
    if len(codes) < FEWEST_MODELS or not (codes >= 0).any() or not may_answer.any():
        return {}
    prior = prior_weights(nearest_of(z, may_answer))
    found = _doubts(z, codes, may_answer, prior[1])
    cases = find_cases(z, without(codes, found), may_answer)
    slope = cases.fit(prior)[1] if len(cases.own) else prior[1]
    if slope > prior[1]:
        found = _doubts(z, codes, may_answer, slope)
    return found if found and _follow_distances(z, codes, may_answer) else {}


def _follow_distances(z: Square, codes: Groups, may_answer: MayAnswer) -> bool:
    """Whether labels are those of the three nearest models more often than by chance: a permutation
    test, exact for labels of any numbers. Of a run, whose models have one label, the first counts.
    """
    rows = np.flatnonzero(codes >= 0)
    is_first = may_answer[np.ix_(rows, rows)].argmin(axis=1) == np.arange(len(rows))
    rows, k = rows[is_first], len(OTHERS_WEIGH) + 1
    others = (np.where(rows == row, -np.inf, z[row, rows]) for row in rows)
    nearest = np.array([np.argsort(-values, kind="stable")[:k] for values in others])
    rng = np.random.default_rng(0)
    labels = [codes[rows], *(rng.permutation(codes[rows]) for _ in range(SHUFFLES))]
    agreeing = [np.count_nonzero(some[nearest] == some[:, None]) for some in labels]
    return bool(sum(n >= agreeing[0] for n in agreeing) <= BY_CHANCE * len(agreeing))


def without(codes: Groups, places: Iterable[int]) -> Groups:
    """The codes of labels, but for some places none."""
    kept = codes.copy()
    kept[list(places)] = -1
    return kept


def _doubts(z: Square, codes: Groups, may_answer: MayAnswer, slope: float) -> Doubts:
    """The clearest first, whose label then counts for no other model. A data set's only model is
    far from none of its own."""
    codes, found = codes.copy(), Doubts()
    of, most = _supports(z, codes, may_answer), MOST_SUSPECTS * int((codes >= 0).sum())
    while len(found) <= most:
        is_own = codes[:, None] == np.arange(of.shape[1])[None, :]
        own = np.where(is_own, of, -np.inf).max(axis=1)
        others = np.where(is_own, -np.inf, of)
        nearer, other = others.argmax(axis=1), others.max(axis=1)
        gaps = np.where(np.isfinite(own) & np.isfinite(other), other, -np.inf)
        # to be farther than strangers are is no more of a contradiction
        gaps -= np.maximum(own, 0.0)
        place = int(gaps.argmax())
        if gaps[place] < max(LEAST_DOUBT, DOUBT / slope):
            return found
        found[place] = int(nearer[place]), float(own[place]), float(other[place])
        code, codes[place] = codes[place], -1
        of[:, code] = _support_of(z, codes == code, may_answer)
    return {}


def _supports(z: Square, codes: Groups, may_answer: MayAnswer) -> Supports:
    """Every data set's support for every model, by code, of `COMPETING` codes at least."""
    n_labels = max(COMPETING, int(codes.max(initial=-1)) + 1)
    return np.column_stack([_support_of(z, codes == code, may_answer) for code in range(n_labels)])


def _support_of(
    z: Square, is_member: Bool[np.ndarray, " models"], may_answer: MayAnswer
) -> Numbers:
    """A data set's support for every model, which is none of its own; −inf without one."""
    values = np.where(may_answer[:, is_member], z[:, is_member], -np.inf)
    best = -np.sort(-values, axis=1)[:, : len(OTHERS_WEIGH) + 1]
    weights = np.array((1.0, *OTHERS_WEIGH))[: best.shape[1]] * np.isfinite(best)
    total = weights.sum(axis=1)
    sums = (weights * np.where(np.isfinite(best), best, 0.0)).sum(axis=1)
    return np.asarray(np.where(total > 0, sums / np.maximum(total, 1.0), -np.inf))


def nearest_of(z: Square, may_answer: MayAnswer) -> float:
    """The median z of models' nearest ones."""
    asking = may_answer.any(axis=1)
    (median,) = quantiles(np.where(may_answer, z, -np.inf)[asking].max(axis=1), 0.5)
    return median


def prior_weights(nearest: float) -> tuple[float, float]:
    """a and b of families like it."""
    a, of_nearest, b = LABELLED
    return a + of_nearest * min(nearest, LARGEST_NEAREST), b


def fit_choices(
    features: Float64[np.ndarray, "rows labels features"],
    known: Bool[np.ndarray, "rows labels"],
    chosen: Int64[np.ndarray, " rows"],
    weights: Float64[np.ndarray, " rows"],
    prior: Sequence[float],
    precision: Sequence[float],
) -> Float64[np.ndarray, " features"]:
    """Coefficients of a weighted conditional logit in which "none", place −1, has the score 0, with
    a Gaussian prior around `prior`."""
    centre, inverse = np.array(prior), np.diag(precision)
    found, right = centre.copy(), np.arange(known.shape[1])[None, :] == chosen[:, None]
    for _ in range(NEWTON_STEPS):
        logits = np.where(known, features @ found, -np.inf)
        total = np.logaddexp(0.0, np.logaddexp.reduce(logits, axis=1))
        p = np.exp(logits - total[:, None])
        mean = np.einsum("ql,qlf->qf", p, features)
        gradient = np.einsum("q,ql,qlf->f", weights, p - right, features)
        gradient += inverse @ (found - centre)
        curvature = np.einsum("q,ql,qlf,qlg->fg", weights, p, features, features) + inverse
        curvature -= np.einsum("q,qf,qg->fg", weights, mean, mean)
        step = np.linalg.solve(curvature, gradient)
        # a full step from far away may overshoot
        found = found - step * min(1.0, 2.0 / max(np.abs(step).max(), NEWTON_TOLERANCE))
        if np.abs(step).max() < NEWTON_TOLERANCE:
            break
    return np.asarray(found)


def calibrate(
    z: Square,
    labels: Sequence[str | None],
    may_answer: MayAnswer,
    n_family: int,
    rescore: Rescore | None = None,
) -> Calibration:
    """What is known of a family of `n_family` models, from the scores of its cohort and the labels
    of some; `may_answer` are the pairs that count: not a model with itself or its copies."""
    codes = codes_of_labels(labels)
    if n_family < FEWEST_MODELS or not may_answer.any():
        return Calibration(models=n_family)
    nearest = nearest_of(z, may_answer)
    prior = prior_weights(nearest)
    doubts = find_doubts(z, codes, may_answer)
    cases = find_cases(z, without(codes, doubts), may_answer, rescore)
    known = Calibration(
        models=n_family,
        source="families like it",
        bound=LONE_BOUND,
        datasets=len(set(cases.datasets[~cases.lone].tolist())),
        queries=int(cases.lone.sum()),
        nearest=nearest,
        rival=nearest,
        doubted=tuple(sorted(doubts)),
    )
    if known.queries < FEWEST_QUERIES:
        return known
    (of_others,) = quantiles(cases.supports[cases.lone, 0], 1.0 - LONE_SHARE)
    known = replace(known, weights=prior, rival=min(nearest, of_others))
    if known.datasets < FEWEST_DATASETS:
        return known
    weights, bound = cases.fit(prior), min(cases.bound(prior), LIKELY)
    # labels under which the clearest pairs of one label go unanswered do not follow the data
    expected = min(ANSWERED, cases.answered(prior, LONE_BOUND))
    if weights[1] < LEAST_SLOPE or cases.answered(weights, bound) < expected:
        return known
    return replace(known, source="labelled models of the family", weights=weights, bound=bound)


class LabelledCohort:
    """The scores of a family's cohort, and what its labels say of them."""

    def __init__(
        self,
        rows: Int64[np.ndarray, " cohort"],
        z: Float64[np.ndarray, "cohort cohort"],
        are_strangers: Bool[np.ndarray, "cohort cohort"],
        rescore: Rescore | None = None,
    ) -> None:
        self.rows, self.z, self.are_strangers = rows, z, are_strangers
        self.rescore = rescore if len(rows) <= RESCORED else None
        self._last: tuple[Sequence[str | None], Calibration] | None = None
        self._suspects: tuple[Sequence[ModelLabel | None], list[Suspect]] = ([], [])
        self._read: tuple[str, Sequence[ModelLabel | None]] = ("", [])

    def calibration(self, view: FamilyView) -> Calibration:
        """By the labels as of now, without those that names of models gave; computed again where
        one of them changed."""
        last, names = self._last, [one.stated if one else None for one in self._labels(view)]
        if last is None or last[0] != names or last[1].models != len(view):
            last = self._last = names, self.calibrate(names, len(view))
        return last[1]

    def _labels(self, view: FamilyView) -> Sequence[ModelLabel | None]:
        """Of the cohort's models, as of now; read again once the catalog has changed."""
        read = self._read
        if read[0] != view.changes or not view.is_current:
            rows = self.rows.tolist()
            # the scores are of the removed models too
            labels = view.labels_at(rows, and_removed=True)
            read = self._read = view.changes, [labels.get(row) for row in rows]
        return read[1]

    def calibrate(self, names: Sequence[str | None], n_family: int) -> Calibration:
        """By the labels of the cohort's models."""
        known = calibrate(self.z, names, self.are_strangers, n_family, self.rescore)
        return replace(known, doubted=tuple(self.rows[list(known.doubted)].tolist()))

    def suspects(self, view: FamilyView) -> list[Suspect]:
        """Of the cohort, by row: models whose labels contradict their distances to other runs."""
        known = self._labels(view)
        if self._suspects[0] == known:
            return self._suspects[1]
        may_answer = self.are_strangers & other_runs([one.run if one else None for one in known])
        found = name_suspects(self.z, [one.dataset if one else None for one in known], may_answer)
        suspects = [replace(one, place=int(self.rows[one.place])) for one in found]
        self._suspects = known, suspects
        return suspects
