"""The scores of a family's pairs: cosines of sketches, normalised against its strangers (s-norm).

The cosines of each block are whitened by the cohort (`whitening`). With μ(i, κ) and σ(i, κ) the
centre and spread of model i's with the cohort's models of kind κ, a block's normalised score is
z(i, j) = ½[(c − μ(i, κj)) / σ(i, κj) + (c − μ(j, κi)) / σ(j, κi)] (Auckenthaler et al. 2000;
Matějka et al., Interspeech 2017, by the candidate's kind). Blocks are summed with the weights of
the pair's kinds. Added to that: the correlation of the two models' scores with the cohort, and a
part of the whitened cosine. Of two models whose footprints name tokens, the normalised cosine of
those is added last, and of two that have none, that of what they answer to. docs/scores.md has
the measured figures.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Generic, TypeVar

import numpy as np
import xxhash

from ..arrays import Bool, Float64, Int64, Shaped, UInt8, UInt64
from ..records import Footprint, Recipe
from ..store import FamilyView, SketchMatrix, TraitFile, block_dims, true_cosines
from .evidence import COPY_COSINE, LabelledCohort, Numbers, quantiles
from .whitening import Columns, Seen, Whitening
from .word_rows import KINDS, SHRINKAGE, AnsweredWords, Tokens, WordRows

Rows = Int64[np.ndarray, " rows"]
Codes = Int64[np.ndarray, " models"]
Pairs = Float64[np.ndarray, "models others"]
BlockPairs = Float64[np.ndarray, "blocks models others"]
WithCohort = Float64[np.ndarray, "models cohort"]
CohortCounts = Bool[np.ndarray, "models cohort"]
HasBlocks = Float64[np.ndarray, "models blocks"]
Weights = Float64[np.ndarray, "kinds kinds blocks"]
Vectors = Shaped[np.ndarray, "models dim"]
"""Arrays that many functions of searches take and give, by dtype and shape."""

COHORT = 256
"""Models of a kind that stand for strangers: a mean and a spread are known to a few percent."""

ADAPTERS = {"update": 1.0, "output": 2.0, "input": 0.5}
"""Weights among adapters, whose input side still holds the random start of their A matrices."""

OTHERS = {"update": 1.0, "output": 1.0, "input": 3.0}
"""Weights where one of two models is a full fine-tune."""

CORRELATION, FEW_CORRELATED = 2.0, 30.0
"""What the correlation with a large cohort counts, and the models of one with which it is half."""

FEW_WHOLE = 20.0
"""Models of a cohort with which the whitened cosine itself counts as much as the normalised one."""

FEWEST_PAIRS = 10
"""Pairs of strangers from which two kinds have a scale of their own; else all pairs together."""

FEWEST_STRANGERS = 3
"""Scores from which a kind has a centre and a spread of its own; else all kinds together."""

LEAST_SPREAD = 1e-4
"""Of a block's cosines; smaller ones are the rounding of codes."""

NORMAL_LOWER = 0.158655
"""Share of a normal distribution below one standard deviation under its centre."""

HALF_SCORE = 4.0
"""z that has the score 0.71; strangers are at 0, copies near 1."""

Thing = TypeVar("Thing")

HELD_MODELS = 4_000
"""Models of which is held what later searches need: 25 KB each of comparison with the cohort."""

TRAIT_FILE_MIN_MODELS = 1_000
"""Models of a family whose traits are in a file for other processes."""

TRAITS_AT_ONCE = 256
"""Models that are compared with the cohort at a time, where all are."""

TRAITS_VERSION = "5"
"""Raised whenever the traits of the same sketches would change."""

Z_DECIMALS = 9
"""Of z: what is beyond depends on the order of the models in the catalog."""

TIE_DECIMALS = 9
"""Scores equal to this many decimals are ties, and the smaller model id comes first."""

FEWEST_FOOTPRINTS = 8
"""Models of a cohort whose footprints name tokens, from which these count in scores."""

COPY_MARGIN = 0.05
"""Below `COPY_COSINE`: where a model turns from a stranger into a copy."""

EQUAL_COSINE = 0.99
"""From which two models are one: its files again, or its adapter in another form."""


def id_digest(id: str) -> bytes:
    """What a sample of models is sorted by: it depends neither on names nor on order."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """The kinds of a family's models, and for each kind, in order of id, the rows of those that
    stand for its strangers; `of_models` are places in `kinds`."""

    kinds: tuple[str, ...]
    of_models: Codes
    by_kind: Mapping[str, Int64[np.ndarray, " _"]]

    @classmethod
    def of(cls, view: FamilyView) -> Cohort:
        return view.derived(cls, lambda view: cls.sample(view.ids, view.kinds))

    @classmethod
    def sample(cls, ids: Sequence[str], kinds: Sequence[str]) -> Cohort:
        """All models of each kind, or `COHORT` of them picked by their ids: the same for every
        process and order of the models; a family that grows keeps most of it."""
        names = tuple(sorted(set(kinds)))
        of_models = codes_of(kinds, names)
        by_kind = {}
        for code, kind in enumerate(names):
            rows = np.flatnonzero(of_models == code).tolist()
            if len(rows) > COHORT:
                rows = heapq.nsmallest(COHORT, rows, key=lambda row: id_digest(ids[row]))
            by_kind[kind] = np.array(sorted(rows, key=ids.__getitem__), dtype=np.int64)
        return cls(names, of_models, by_kind)

    @property
    def rows(self) -> Int64[np.ndarray, " cohort"]:
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.by_kind.values()])


def codes_of(kinds: Sequence[str], known: Sequence[str]) -> Codes:
    """Kinds as places in `known`; a kind that no stored model has counts as the first."""
    place = {kind: code for code, kind in enumerate(known)}
    return np.array([place.get(kind, 0) for kind in kinds], dtype=np.int64)


def weights_by_kinds(blocks: Sequence[str], kinds: Sequence[str]) -> Weights:
    """What each block counts between models of two kinds; the weights of a pair sum to 1."""
    weights = np.zeros((len(kinds), len(kinds), len(blocks)))
    for row, one in enumerate(kinds):
        for column, other in enumerate(kinds):
            of_pair = ADAPTERS if one == other == "adapter" else OTHERS
            weights[row, column] = [of_pair.get(block, 1.0) for block in blocks]
    weights /= weights.sum(axis=2, keepdims=True)
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class Traits(Columns):
    """What normalisation knows of some models: the kind, as a place among the family's; which
    blocks it has, 0 or 1, as a budget does not show every side; the centres and standard deviations
    of its cosines with strangers; its normalised scores with the cohort, less their mean, NaN where
    a model of the cohort does not count."""

    kinds: Codes
    blocks: HasBlocks
    centres: Float64[np.ndarray, "models blocks kinds"]
    spreads: Float64[np.ndarray, "models blocks kinds"]
    scores: WithCohort

    @property
    def profile(self) -> WithCohort:
        """0 where a model of the cohort does not count."""
        return np.asarray(np.nan_to_num(self.scores))

    @property
    def counts(self) -> CohortCounts:
        """Whether a model of the cohort counts: neither the model itself nor its copies."""
        return np.asarray(~np.isnan(self.scores))

    def with_profile(self, scores: WithCohort) -> Traits:
        """The same models with their normalised scores with the cohort."""
        counts = self.counts
        n = np.maximum(counts.sum(axis=1, keepdims=True), 1)
        mean = np.where(counts, scores, 0.0).sum(axis=1, keepdims=True) / n
        return replace(self, scores=np.where(counts, scores - mean, np.nan))


def measure_traits(
    cosines: Float64[np.ndarray, "blocks models cohort"],
    kinds: Codes,
    blocks: HasBlocks,
    cohort_kinds: Int64[np.ndarray, " cohort"],
    weights: WithCohort,
    counts: Bool[np.ndarray, "models profiled"],
    n_kinds: int,
) -> Traits:
    """Centres and spreads of some models' cosines with the cohort; no profile yet.

    `weights` say how much of a stranger each model of the cohort is, 0…1; `counts` whether it
    counts in the profile, if there is to be one.
    """
    centres = np.zeros((len(kinds), len(cosines), n_kinds))
    spreads = np.zeros_like(centres)
    for kind in range(n_kinds):
        of_kind = weights * (cohort_kinds == kind)[None, :]
        is_few = of_kind.sum(axis=1) < FEWEST_STRANGERS
        of_kind[is_few] = weights[is_few]
        for block, values in enumerate(cosines):
            centres[:, block, kind], spreads[:, block, kind] = _centre_and_spread(values, of_kind)
    np.maximum(spreads, LEAST_SPREAD, out=spreads)
    return Traits(kinds, blocks, centres, spreads, np.where(counts, 0.0, np.nan))


def _centre_and_spread(values: WithCohort, weights: WithCohort) -> tuple[Numbers, Numbers]:
    """Weighted median of every row, and root mean square around the weighted mean."""
    order = np.argsort(values, axis=1)
    sorted_values = np.take_along_axis(values, order, axis=1)
    sorted_weights = np.take_along_axis(weights, order, axis=1)
    total = weights.sum(axis=1)
    safe = np.where(total > 0, total, 1.0)
    # the middle of the steps of the weighted distribution, so that two values have their mean
    middles = sorted_weights.cumsum(axis=1) - sorted_weights / 2
    means = (values * weights).sum(axis=1) / safe
    squares = (weights * np.square(values - means[:, None])).sum(axis=1) / safe
    return _medians(sorted_values, middles, sorted_weights > 0, total / 2), np.sqrt(squares)


def _medians(
    values: WithCohort, middles: WithCohort, is_held: CohortCounts, half: Numbers
) -> Numbers:
    """Where rising `middles` reach `half`, by linear interpolation between values that are held: of
    each row as np.interp; 0 of a row that holds none."""
    n = values.shape[1]
    if not n:
        return np.zeros(len(values))
    is_below = middles <= half[:, None]
    below = np.where(is_held & is_below, np.arange(n), -1).max(axis=1)
    above = np.where(is_held & ~is_below, np.arange(n), n).min(axis=1)
    rows, start = np.arange(len(values)), np.where(below < 0, above, below) % n
    stop = np.where(above == n, start, above)
    steps = np.where(stop > start, middles[rows, stop] - middles[rows, start], 1.0)
    slopes = (values[rows, stop] - values[rows, start]) / steps
    medians = slopes * (half - middles[rows, start]) + values[rows, start]
    return np.where(is_held.any(axis=1), medians, 0.0)


def _pairs_of_kinds(
    left: Codes, right: Int64[np.ndarray, " others"]
) -> Iterator[tuple[int, int, Rows, Int64[np.ndarray, " columns"]]]:
    """Each two kinds, with the rows of the one and the columns of the other."""
    # not np.unique, which imports numpy.ma
    for one in sorted(set(left.tolist())):
        rows = np.flatnonzero(left == one)
        for other in sorted(set(right.tolist())):
            yield one, other, rows, np.flatnonzero(right == other)


def normalised(cosines: BlockPairs, left: Traits, right: Traits, weights: Weights) -> Pairs:
    """Σ over blocks of weight × z."""
    scores = np.zeros(cosines.shape[1:])
    for one, other, rows, columns in _pairs_of_kinds(left.kinds, right.kinds):
        shares = _shares(weights[one, other], left.blocks[rows], right.blocks[columns])
        part = np.zeros((len(rows), len(columns)))
        for block, share in enumerate(shares):
            values = cosines[block][np.ix_(rows, columns)]
            own = values - left.centres[rows, block, other][:, None]
            own /= left.spreads[rows, block, other][:, None]
            theirs = values - right.centres[columns, block, one][None, :]
            theirs /= right.spreads[columns, block, one][None, :]
            part += share / 2 * (own + theirs)
        scores[np.ix_(rows, columns)] = part
    return scores


def plain(
    cosines: BlockPairs,
    left: tuple[Codes, HasBlocks],
    right: tuple[Int64[np.ndarray, " others"], Float64[np.ndarray, "others blocks"]],
    weights: Weights,
) -> Pairs:
    """Σ over blocks of weight × cosine: −1…1, and 1 for copies. Sides: kinds of models, blocks they
    have."""
    scores = np.zeros(cosines.shape[1:])
    for one, other, rows, columns in _pairs_of_kinds(left[0], right[0]):
        part = np.ix_(rows, columns)
        shares = _shares(weights[one, other], left[1][rows], right[1][columns])
        for values, share in zip(cosines, shares, strict=True):
            scores[part] += share * values[part]
    return scores


def _shares(
    weights: Float64[np.ndarray, " blocks"],
    left: HasBlocks,
    right: Float64[np.ndarray, "others blocks"],
) -> BlockPairs:
    """What each block counts in each pair: its share of those that both models have."""
    shares: BlockPairs = weights[:, None, None] * left.T[:, :, None] * right.T[:, None, :]
    total = shares.sum(axis=0)
    shares /= np.where(total > 0, total, 1.0)
    return shares


def profile_correlations(left: Traits, right: Traits) -> Pairs:
    """Correlation of two models' scores with the cohort, without the two themselves; −1…1."""
    mine, counts = left.profile, left.counts
    theirs = mine if right is left else right.profile
    products = mine @ theirs.T
    left_squares = np.square(mine) @ right.counts.T.astype(np.float64)
    right_squares = counts.astype(np.float64) @ np.square(theirs).T
    lengths = np.sqrt(left_squares * right_squares)
    return np.asarray(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))


@dataclass(frozen=True, slots=True)
class Scale:
    """Centre and spread of a number over all pairs of strangers, and by their two kinds."""

    every: tuple[float, float]
    by_kinds: Mapping[tuple[int, int], tuple[float, float]]

    def of(self, values: Pairs, left: Codes, right: Int64[np.ndarray, " others"]) -> Pairs:
        scaled = np.empty_like(values)
        for one, other, rows, columns in _pairs_of_kinds(left, right):
            pair, part = (min(one, other), max(one, other)), np.ix_(rows, columns)
            centre, spread = self.by_kinds.get(pair, self.every)
            scaled[part] = (values[part] - centre) / spread
        return scaled


def measure_scale(
    values: Float64[np.ndarray, "cohort cohort"],
    is_pair: Bool[np.ndarray, "cohort cohort"],
    kinds: Int64[np.ndarray, " cohort"],
    measure: Callable[[Float64[np.ndarray, " pairs"]], tuple[float, float]],
) -> Scale:
    """Centre and spread of the strangers' values; of a pair of kinds where these are enough."""
    by_kinds, sizes = {}, sorted(Counter(kinds.tolist()).items())
    for (one, n_one), (other, n_other) in combinations_with_replacement(sizes, 2):
        chosen = is_pair & (kinds == one)[:, None] & (kinds == other)[None, :]
        enough = chosen.sum() >= FEWEST_PAIRS * (2 if one == other else 1)
        if enough and min(n_one, n_other) >= FEWEST_STRANGERS:
            by_kinds[one, other] = measure(values[chosen])
    return Scale(measure(values[is_pair]), by_kinds)


def deviation(values: Float64[np.ndarray, " pairs"]) -> tuple[float, float]:
    if len(values) < 2:
        return 0.0, 1.0
    # not np.median, which imports numpy.ma
    places = [(len(values) - 1) // 2, len(values) // 2]
    middle = np.partition(values, places)[places].mean()
    return float(middle), _or_one(float(values.std()))


def lower_spread(values: Float64[np.ndarray, " pairs"]) -> tuple[float, float]:
    """Median, and its distance from the 16 % quantile: models of one data set are a right tail, the
    lower half alone tells of strangers (empirical null by central matching: Efron 2004)."""
    if len(values) < 2 * FEWEST_PAIRS:
        # the lower half of a few pairs is one of them: they have no tail to leave out
        return deviation(values)
    low, middle = quantiles(values, NORMAL_LOWER, 0.5)
    return middle, _or_one(middle - low)


def _or_one(spread: float) -> float:
    """The spread; 1 where it is that of the rounding of equal numbers."""
    return spread if spread > LEAST_SPREAD else 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairScores:
    """Plain cosines of some models with some others, over blocks and slots, −1…1, and z: standard
    deviations above the family's strangers of these kinds."""

    cosines: Pairs = field(compare=False)
    z: Pairs = field(compare=False)


def bounded(z: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Scores from −1 to 1 in the order of z, so that 1 − score is a distance."""
    scores: Float64[np.ndarray, "*shape"] = z / np.sqrt(HALF_SCORE**2 + np.square(z))
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Some models, ready to be compared."""

    features: SketchMatrix
    traits: Traits
    seen: Seen
    words: Sequence[ScoredWords] = ()

    def take(self, rows: Rows) -> Scored:
        words = [some.take(rows) for some in self.words]
        features, traits = self.features.take(rows), self.traits.take(rows)
        return Scored(features, traits, self.seen.take(rows), words)

    @property
    def numbers(self) -> Float64[np.ndarray, "models numbers"]:
        """Of traits and what the cohort sees."""
        return np.concatenate([self.traits.numbers, self.seen.numbers], axis=1)


class Held(Generic[Thing]):
    """What was made of the latest models, by row; threads share it."""

    def __init__(self) -> None:
        self._by_row: dict[int, Thing] = {}

    def each(self, rows: Rows, make: Callable[[Rows], Iterable[Thing]]) -> list[Thing]:
        """That of every row; `make` gives it of those at some places which are not held."""
        listed, held = rows.tolist(), self._by_row
        found = {row: one for row in listed if (one := held.get(row)) is not None}
        new = np.array([place for place, row in enumerate(listed) if row not in found], np.int64)
        if len(new):
            made = dict(zip(rows[new].tolist(), make(new), strict=True))
            found |= made
            held.update(made)
            if len(held) > HELD_MODELS:
                for row in list(held)[: -HELD_MODELS // 2]:
                    held.pop(row, None)
        return [found[row] for row in listed]


class FamilyScores:
    """What the scores of a family's pairs are normalised with: its `cohort` of strangers, by
    rows."""

    def __init__(
        self,
        cohort: Cohort,
        recipe: Recipe,
        read: Callable[[Rows], SketchMatrix],
        words: Sequence[WordRows] = (),
    ) -> None:
        """Of a cohort, whose sketches `read` gives by rows, and its words of each sort; of equal
        models it has the first. Peak: these sketches and their cosines."""
        self.kinds = cohort.kinds
        self._weights = weights_by_kinds(list(block_dims(recipe)), self.kinds)
        features, of_rows = read(cohort.rows), cohort.of_models[cohort.rows]
        cosines, own = features.cosines(features), (of_rows, _blocks_of(features))
        distinct = _distinct(true_cosines(plain(cosines, own, own, self._weights)))
        self.cohort = cohort.rows[distinct]
        self._cohort_kinds, self._cohort_blocks = (of_each[distinct] for of_each in own)
        self._place = {row: place for place, row in enumerate(self.cohort.tolist())}
        self._held: Held[Float64[np.ndarray, " numbers"]] = Held()
        self._words_held: Held[Sequence[ScoredWords]] = Held()
        self._file: TraitFile | None = None
        self._are_read = np.zeros(0, np.bool_)
        self._recipe = recipe
        self._features = features.take(distinct)
        self.has_sketches = bool(self._features.has_sketches.any())
        enough = (some for some in words if some.are_here.sum() >= FEWEST_FOOTPRINTS)
        self._words = [WordScores(some.take(distinct)) for some in enough]
        self._measure(cosines[:, distinct][:, :, distinct])

    @classmethod
    def of(cls, view: FamilyView) -> FamilyScores | None:
        """Computed once for as long as a family's models stay the same; None where they have no
        sketches."""
        if not block_dims(view.recipe):
            return None
        family = view.derived(cls, cls._of)
        return family if family.has_sketches else None

    @property
    def strangers(self) -> Scored:
        words = [scores.strangers for scores in self._words]
        return Scored(self._features, self._traits, self._seen, words)

    @classmethod
    def _of(cls, view: FamilyView) -> FamilyScores:
        cohort = Cohort.of(view)
        footprints = view.footprints(view.keys[cohort.rows])
        # the surest sort first
        sorts = (Tokens.usual(footprints), AnsweredWords.usual(footprints))
        words = [WordRows.of(sort, footprints) for sort in sorts if sort is not None]
        family = cls(cohort, view.recipe, lambda rows: view.sketches(view.keys[rows]), words)
        if family.has_sketches and len(view) >= TRAIT_FILE_MIN_MODELS:
            family._file = view.trait_file(family._digest(view), family.strangers.numbers.shape[1])
            family._are_read = np.zeros(len(view), np.bool_)
        return family

    def _digest(self, view: FamilyView) -> bytes:
        """Of everything that decides a model's traits but its own sketches."""
        ids = [view.ids[row] for row in self.cohort.tolist()]
        known = TRAITS_VERSION, self._recipe.id, self.kinds, ids, self._cohort_kinds.tolist()
        digest = hashlib.sha256(repr(known).encode("utf-8", "surrogatepass"))
        digest.update(view.keys[self.cohort].tobytes())
        digest.update(_checksums(self._features).tobytes())
        return digest.digest()

    def prepare(
        self,
        features: SketchMatrix,
        kinds: Sequence[str],
        rows: Sequence[int],
        words: Sequence[WordRows] = (),
    ) -> Scored:
        """Some models, compared with the cohort; the row of one that is not stored is −1."""
        cosines, codes = features.cosines(self._features), codes_of(kinds, self.kinds)
        own = codes, _blocks_of(features)
        places = self._places(rows)
        counts, weights, seen = self._seen_by_cohort(cosines, own, places)
        whitened = self._whitened(cosines, seen, self._seen)
        traits = measure_traits(
            whitened, *own, self._cohort_kinds, weights, counts, len(self.kinds)
        )
        first = normalised(whitened, traits, self._traits, self._weights)
        known = [s.prepare(w, places) for s in self._words for w in words if w.sort is s.sort]
        return Scored(features, traits.with_profile(first), seen, known)

    def fresh_words(self, view: FamilyView, footprint: Footprint | None) -> Sequence[WordRows]:
        """Those of a model that is not stored, for `prepare`."""
        if footprint is None:
            return ()
        return [WordRows.of(s.sort, [view.comparable(footprint)]) for s in self._words]

    def stored(self, view: FamilyView, rows: Rows) -> Scored:
        """Some stored models; what is known of the latest of them is held, and the cosines of the
        cohort's."""
        places = self._places(rows.tolist())
        if (places >= 0).all():
            return replace(
                self.strangers.take(places),
                features=KnownCosines(self._features, self._cosines, places),
            )
        sketches = view.sketches(view.keys[rows])
        numbers, n_traits = self._numbers(view, rows, sketches), self._traits.numbers.shape[1]
        words: Sequence[ScoredWords] = ()
        if self._words:
            each = self._words_held.each(rows, lambda new: self._words_of(view, rows[new]))
            words = [ScoredWords.joined(some) for some in zip(*each, strict=True)]
        return Scored(
            sketches,
            self._traits.of_numbers(numbers[:, :n_traits]),
            self._seen.of_numbers(numbers[:, n_traits:]),
            words,
        )

    def _words_of(self, view: FamilyView, rows: Rows) -> Iterator[Sequence[ScoredWords]]:
        """Of every sort, model by model."""
        footprints, places = view.footprints(view.keys[rows]), self._places(rows.tolist())
        words = [s.prepare(WordRows.of(s.sort, footprints), places) for s in self._words]
        for place in range(len(rows)):
            yield [some.take(np.array([place])) for some in words]

    def write_traits(self, view: FamilyView, goes_on: Callable[[], bool]) -> None:
        """Bring the family's file of traits up to date, so that no search computes them."""
        if self._file is None:
            return
        lacking = self._file.lacking(view.keys)
        for start in range(0, len(lacking), TRAITS_AT_ONCE):
            if not goes_on():
                return
            rows = lacking[start : start + TRAITS_AT_ONCE]
            self._numbers(view, rows, view.sketches(view.keys[rows]))

    def _numbers(
        self, view: FamilyView, rows: Rows, sketches: SketchMatrix
    ) -> Float64[np.ndarray, "rows numbers"]:
        """Those of some stored models: of a small family they are held; of another they are read,
        or computed and written. Rows of the file are compared with the sketches that they are of
        when they are first read."""
        file, keys = self._file, view.keys[rows]

        def compute(places: Rows) -> Float64[np.ndarray, "rows numbers"]:
            listed, some = rows[places].tolist(), sketches.take(places)
            made = self.prepare(some, [view.kinds[row] for row in listed], listed).numbers
            if file is not None:
                file.append(keys[places], _checksums(some), made)
            return made

        if file is None:
            return np.stack(self._held.each(rows, compute))
        if self._are_read[rows].all():
            is_known, numbers = file.read(keys)
            if is_known.all():
                return numbers
        is_known, numbers = file.read(keys, _checksums(sketches))
        self._are_read[rows[is_known]] = True
        if is_known.all():
            return numbers
        new = np.flatnonzero(~is_known)
        # held too, as the file may be full, or another's
        computed = np.stack(self._held.each(rows[new], lambda places: compute(new[places])))
        every = np.empty((len(rows), computed.shape[1]))
        every[is_known], every[new] = numbers, computed
        return every

    def compare(self, left: Scored, right: Scored) -> PairScores:
        """The scores of every pair. Peak: as of their cosines."""
        cosines = left.features.cosines(right.features)
        mine, theirs = left.traits, right.traits
        kinds = mine.kinds, theirs.kinds
        sides = (kinds[0], mine.blocks), (kinds[1], theirs.blocks)
        plain_cosines = plain(cosines, *sides, self._weights)
        whitened = self._whitened(cosines, left.seen, right.seen)
        parts = self._parts(whitened, mine, theirs)
        z = self._null.of(self._sum(parts, *kinds), *kinds)
        for scores, own, others in zip(self._words, left.words, right.words, strict=False):
            z = scores.added(z, own, others)
        return PairScores(cosines=true_cosines(plain_cosines), z=np.round(z, Z_DECIMALS))

    def unwhitened(self, models: Scored) -> Scored:
        """The same models, with traits of their cosines as they are, and without a profile."""
        cosines, counts = models.seen.cosines.transpose(1, 0, 2), models.traits.counts
        own = models.traits.kinds, models.traits.blocks
        weights = counts * _strangeness(self._whole(cosines, own))
        traits = measure_traits(cosines, *own, self._cohort_kinds, weights, counts, len(self.kinds))
        return replace(models, traits=traits)

    @cached_property
    def unwhitened_strangers(self) -> Scored:
        return self.unwhitened(self.strangers)

    def _measure(self, cosines: Float64[np.ndarray, "blocks cohort cohort"]) -> None:
        """Traits of the cohort, and the scales of all that a score is a sum of."""
        kinds, n = self._cohort_kinds, len(self.cohort)
        own = kinds, self._cohort_blocks
        self._cosines = cosines
        self._whitened = Whitening(cosines)
        counts, weights, self._seen = self._seen_by_cohort(cosines, own, np.arange(n))
        whitened = self._whitened(cosines, self._seen, self._seen)
        traits = measure_traits(whitened, *own, kinds, weights, counts, len(self.kinds))
        first = normalised(whitened, traits, traits, self._weights)
        self._traits = traits.with_profile(first)
        parts = self._parts(whitened, self._traits, self._traits)
        # of the normalised cosine, the correlation with the cohort, the whitened cosine
        correlation = CORRELATION * n / (n + FEW_CORRELATED)
        self._part_weights = 1.0, correlation, FEW_WHOLE / max(n, 1)
        self._scales = [measure_scale(part, counts, kinds, deviation) for part in parts]
        total = self._sum(parts, kinds, kinds)
        self._null = measure_scale(total, counts, kinds, lower_spread)
        z = self._null.of(total, kinds, kinds)
        for scores in self._words:
            z = scores.measure(z, counts)
        self.evidence = LabelledCohort(self.cohort, z, counts, self._rescore)

    def _rescore(
        self, left_out: Int64[np.ndarray, " left_out"]
    ) -> Float64[np.ndarray, "left_out cohort"]:
        """z of some of the cohort, as new models of a family without them; NaN among them."""
        places = np.arange(len(self.cohort))
        known = KnownCosines(self._features, self._cosines, places)
        kept = np.delete(places, left_out)
        kinds = [self.kinds[code] for code in self._cohort_kinds.tolist()]
        # places order models as their ids do
        cohort = Cohort.sample([f"{place:06}" for place in kept], [kinds[place] for place in kept])
        words = [scores.strangers.rows for scores in self._words]
        family = FamilyScores(
            cohort,
            self._recipe,
            lambda rows: known.take(kept[rows]),
            [some.take(kept[cohort.rows]) for some in words],
        )
        asked = family.prepare(
            known.take(left_out),
            [kinds[place] for place in left_out],
            [-1] * len(left_out),
            [some.take(left_out) for some in words],
        )
        z = np.full((len(left_out), len(places)), np.nan)
        z[:, kept[family.cohort]] = family.compare(asked, family.strangers).z
        return z

    def _parts(self, whitened: BlockPairs, left: Traits, right: Traits) -> tuple[Pairs, ...]:
        """What a score is a sum of, not on one scale yet."""
        sides = (left.kinds, left.blocks), (right.kinds, right.blocks)
        return (
            normalised(whitened, left, right, self._weights),
            profile_correlations(left, right),
            plain(whitened, *sides, self._weights),
        )

    def _places(self, rows: Sequence[int]) -> Codes:
        return np.array([self._place.get(row, -1) for row in rows], dtype=np.int64)

    def _seen_by_cohort(
        self,
        cosines: Float64[np.ndarray, "blocks models cohort"],
        models: tuple[Codes, HasBlocks],
        places: Codes,
    ) -> tuple[CohortCounts, WithCohort, Seen]:
        """Which of the cohort counts as a stranger of models at some places of it (copies do not),
        how much of one it is, 0…1, and the models as the cohort sees them."""
        whole = self._whole(cosines, models)
        counts = (np.arange(len(self.cohort)) != places[:, None]) & (whole < COPY_COSINE)
        weights = counts * _strangeness(whole)
        return counts, weights, self._whitened.see(cosines, whole, weights, places)

    def _whole(
        self, cosines: Float64[np.ndarray, "blocks models cohort"], models: tuple[Codes, HasBlocks]
    ) -> WithCohort:
        cohort = self._cohort_kinds, self._cohort_blocks
        return true_cosines(plain(cosines, models, cohort, self._weights))

    def _sum(
        self, parts: Sequence[Pairs], left: Codes, right: Int64[np.ndarray, " others"]
    ) -> Pairs:
        total = np.zeros(parts[0].shape)
        for part, scale, weight in zip(parts, self._scales, self._part_weights, strict=True):
            total += weight * scale.of(part, left, right)
        return total


def _distinct(whole: WithCohort) -> Rows:
    """The places of a cohort; of equal models the first: each would look like what many share."""
    kept: list[int] = []
    for place, equals in enumerate(whole >= EQUAL_COSINE):
        if not equals[kept].any():
            kept.append(place)
    return np.array(kept, dtype=np.int64)


def _strangeness(whole: WithCohort) -> WithCohort:
    """How much of a stranger a model with this plain cosine is, 0…1."""
    return np.asarray(np.clip((COPY_COSINE - whole) / COPY_MARGIN, 0.0, 1.0))


class KnownCosines(SketchMatrix):
    """Models whose cosines with one another were computed before."""

    def __init__(
        self,
        whole: SketchMatrix,
        cosines: Float64[np.ndarray, "blocks all all"],
        rows: Int64[np.ndarray, " models"],
    ) -> None:
        self.dims, self.slots, self.weights = whole.dims, whole.slots, whole.weights[rows]
        self._known = None if whole._known is None else whole._known[rows]
        self._whole, self._cosines, self._rows = whole, cosines, rows

    @cached_property
    def codes(self) -> UInt8[np.ndarray, "models slots bytes"]:  # type: ignore[override]
        """Taken where some cosine is not known alone: they are most of a matrix."""
        return np.asarray(self._whole.codes[self._rows])

    def take(self, rows: Rows) -> KnownCosines:
        return KnownCosines(self._whole, self._cosines, self._rows[rows])

    def cosines(self, other: SketchMatrix) -> BlockPairs:
        if isinstance(other, KnownCosines) and other._cosines is self._cosines:
            return np.asarray(self._cosines[:, self._rows][:, :, other._rows])
        return super().cosines(other)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredWords:
    """The words of some models, ready to be compared: their products with the cohort's mean, their
    lengths without that mean, and traits of the cosines without it."""

    rows: WordRows
    toward: Numbers
    lengths: Numbers
    traits: Traits

    @classmethod
    def joined(cls, parts: Sequence[ScoredWords]) -> ScoredWords:
        return cls(
            WordRows.joined([part.rows for part in parts]),
            np.concatenate([part.toward for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            Traits.joined([part.traits for part in parts]),
        )

    def take(self, rows: Rows) -> ScoredWords:
        toward, lengths = self.toward[rows], self.lengths[rows]
        return ScoredWords(self.rows.take(rows), toward, lengths, self.traits.take(rows))


class WordScores:
    """What words of one sort add to the scores of pairs of models that both have some.

    Cosines of rows without the cohort's mean, normalised against the cohort's strangers as those of
    sketches are, but not whitened, count as much as z, but for what data that is only related has
    too (`related`); the sum is z again.
    """

    def __init__(self, cohort: WordRows) -> None:
        self.sort, self._cohort, self._here = cohort.sort, cohort.known(), cohort.are_here
        self._mean = self._here / (self._here.sum() + SHRINKAGE)
        products = self._cohort.products(self._cohort)
        toward = products @ self._mean
        self._square = float(self._mean @ toward)
        self._sides = toward, lengths_without(self._here, toward, self._square)
        self.strangers = self.prepare(self._cohort, np.arange(len(self._here)))

    def prepare(self, rows: WordRows, places: Codes) -> ScoredWords:
        """Some models, compared with the cohort; at some places of it, −1 for others."""
        products = rows.products(self._cohort)
        toward = products @ self._mean
        lengths = lengths_without(rows.are_here, toward, self._square)
        cosines = self._cosines(products, (toward, lengths), self._sides)
        is_other = (np.arange(len(self._here)) != places[:, None]) & (self._here > 0)
        traits = measure_traits(
            cosines[None],
            rows.kinds,
            rows.are_here[:, None],
            self._cohort.kinds,
            is_other * _strangeness(cosines),
            is_other[:, :0],
            len(KINDS),
        )
        return ScoredWords(rows, toward, lengths, traits)

    def measure(self, z: Pairs, counts: CohortCounts) -> Pairs:
        """z of the cohort's pairs with their words, whose scales are measured."""
        kinds, both = self._cohort.kinds, self._both(self.strangers, self.strangers)
        part = self._part(self.strangers, self.strangers)
        self._scale = measure_scale(part, counts & both, kinds, lower_spread)
        total = z + self._beyond_related(self._scale.of(part, kinds, kinds))
        self._null = measure_scale(total, counts & both, kinds, lower_spread)
        return self.added(z, self.strangers, self.strangers)

    def added(self, z: Pairs, left: ScoredWords, right: ScoredWords) -> Pairs:
        """z of some pairs with their words; as it is where a model has none."""
        kinds = left.rows.kinds, right.rows.kinds
        total = z + self._beyond_related(self._scale.of(self._part(left, right), *kinds))
        return np.where(self._both(left, right), self._null.of(total, *kinds), z)

    def _beyond_related(self, z: Pairs) -> Pairs:
        low, high = self.sort.related
        return np.asarray(np.minimum(z, low) + np.maximum(z - high, 0.0))

    def _part(self, left: ScoredWords, right: ScoredWords) -> Pairs:
        products = left.rows.products(right.rows)
        sides = ((side.toward, side.lengths) for side in (left, right))
        cosines = self._cosines(products, *sides)
        return normalised(cosines[None], left.traits, right.traits, _ALIKE)

    def _both(self, left: ScoredWords, right: ScoredWords) -> Bool[np.ndarray, "models others"]:
        return np.asarray(np.outer(left.rows.are_here, right.rows.are_here) > 0)

    def _cosines(self, products: Pairs, left: Sides, right: Sides) -> Pairs:
        """Without the mean, of products, and of each side's products with the mean and lengths."""
        covariances = products - left[0][:, None] - right[0][None, :] + self._square
        return np.asarray(covariances / (left[1][:, None] * right[1][None, :]))


Sides = Sequence[Float64[np.ndarray, " models"]]
_ALIKE = np.ones((len(KINDS), len(KINDS), 1))


def lengths_without(
    squares: Float64[np.ndarray, " models"], toward: Float64[np.ndarray, " models"], mean: float
) -> Float64[np.ndarray, " models"]:
    """Of models less a mean, by their squares, their products with the mean, and its square."""
    return np.asarray(np.sqrt(np.maximum(squares - 2 * toward + mean, np.finfo(np.float32).eps)))


def _checksums(sketches: SketchMatrix) -> UInt64[np.ndarray, " models"]:
    """Of each model's sketches: of the slots that it has, whatever others the matrix has."""
    sums, names = [], [str(slot) for slot in sketches.slots]
    there = np.asarray(sketches.weights.any(axis=2))
    whole = xxhash.xxh3_64_intdigest("".join(names).encode())
    for codes, weights, has in zip(sketches.codes, sketches.weights, there, strict=True):
        value = whole
        if not has.all():
            codes, weights = codes[has], weights[has]
            slots = "".join(name for name, is_there in zip(names, has, strict=True) if is_there)
            value = xxhash.xxh3_64_intdigest(slots.encode())
        value = xxhash.xxh3_64_intdigest(weights.data, value)
        sums.append(xxhash.xxh3_64_intdigest(codes.data, value))
    return np.array(sums, dtype=np.uint64)


def _blocks_of(sketches: SketchMatrix) -> HasBlocks:
    """Which blocks each model has in any slot: 0 or 1."""
    return np.asarray(sketches.weights.any(axis=1), dtype=np.float64)
