"""Symmetric score normalisation (s-norm) of block cosines, and what is added to it.

With μ(i, κ) and σ(i, κ) the centre and spread of model i's cosines with the cohort's models of kind
κ, a block's normalised score is z(i, j) = ½[(c − μ(i, κj)) / σ(i, κj) + (c − μ(j, κi)) / σ(j, κi)]
(Auckenthaler et al. 2000; Matějka et al., Interspeech 2017, by the candidate's kind). Blocks are
summed with the weights of the pair's kinds. Added to that: the correlation of the two models'
scores with the cohort (models of one data set have the same strangers), and a part of the plain
cosine, which in a family that one data set dominates holds what normalisation takes out.
docs/scores.md has what was tried, and on which families.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...arrays import Bool, Float64, Int64

ADAPTERS = {"update": 1.0, "output": 2.0, "input": 0.5}
"""Weights among adapters, whose input side still holds the random start of their A matrices."""

OTHERS = {"update": 1.0, "output": 1.0, "input": 3.0}
"""Weights where one of two models is a full fine-tune."""

PART_WEIGHTS = (1.0, 0.5, 0.25)
"""Of the normalised cosine, the correlation with the cohort, and the plain cosine."""

FEWEST_PAIRS = 10
"""Pairs of strangers from which two kinds have a scale of their own; else all pairs together."""

FEWEST_STRANGERS = 3
"""Scores from which a kind has a centre and a spread of its own; else all kinds together."""

LEAST_SPREAD = 1e-4
"""Of a block's cosines; smaller ones are the rounding of codes."""


def weights_by_kinds(
    blocks: Sequence[str], kinds: Sequence[str]
) -> Float64[np.ndarray, "kinds kinds blocks"]:
    """What each block counts between models of two kinds; the weights of a pair sum to 1."""
    weights = np.zeros((len(kinds), len(kinds), len(blocks)))
    for row, one in enumerate(kinds):
        for column, other in enumerate(kinds):
            of_pair = ADAPTERS if one == other == "adapter" else OTHERS
            weights[row, column] = [of_pair.get(block, 1.0) for block in blocks]
    weights /= weights.sum(axis=2, keepdims=True)
    return weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traits:
    """What normalisation knows of some models, row by row.

    Attributes:
        kinds: Of each, as a place among the family's kinds.
        blocks: Whether a model has a block at all, 0 or 1; a budget does not show every side.
        centres: Of the cosines with strangers of each kind, by block.
        spreads: Their standard deviations.
        profile: Normalised scores with the cohort, less their mean; 0 where they do not count.
        counts: Whether a model of the cohort counts: neither the model itself nor its copies.
    """

    kinds: Int64[np.ndarray, " models"]
    blocks: Float64[np.ndarray, "models blocks"] = field(compare=False)
    centres: Float64[np.ndarray, "blocks models kinds"] = field(compare=False)
    spreads: Float64[np.ndarray, "blocks models kinds"] = field(compare=False)
    profile: Float64[np.ndarray, "models cohort"] = field(compare=False)
    counts: Bool[np.ndarray, "models cohort"] = field(compare=False)

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, rows: Int64[np.ndarray, " rows"]) -> Traits:
        """Some of the rows, in that order."""
        return Traits(
            kinds=self.kinds[rows],
            blocks=self.blocks[rows],
            centres=self.centres[:, rows],
            spreads=self.spreads[:, rows],
            profile=self.profile[rows],
            counts=self.counts[rows],
        )

    def singles(self) -> list[Traits]:
        """The traits of each model."""
        return [self.take(np.array([row])) for row in range(len(self))]

    @classmethod
    def joined(cls, parts: Sequence[Traits]) -> Traits:
        """The models of some traits, one after the other."""
        return cls(
            kinds=np.concatenate([part.kinds for part in parts]),
            blocks=np.concatenate([part.blocks for part in parts]),
            centres=np.concatenate([part.centres for part in parts], axis=1),
            spreads=np.concatenate([part.spreads for part in parts], axis=1),
            profile=np.concatenate([part.profile for part in parts]),
            counts=np.concatenate([part.counts for part in parts]),
        )

    @staticmethod
    def n_numbers(n_blocks: int, n_kinds: int, n_cohort: int) -> int:
        """Of a row of `numbers`."""
        return 1 + n_blocks + 2 * n_blocks * n_kinds + n_cohort

    @property
    def numbers(self) -> Float64[np.ndarray, "models numbers"]:
        """Model by model; a profile's NaN is a model of the cohort that does not count."""
        n = len(self)
        parts = (
            self.kinds[:, None].astype(np.float64),
            self.blocks,
            self.centres.transpose(1, 0, 2).reshape(n, -1),
            self.spreads.transpose(1, 0, 2).reshape(n, -1),
            np.where(self.counts, self.profile, np.nan),
        )
        return np.concatenate(parts, axis=1)

    @classmethod
    def of_numbers(
        cls,
        numbers: Float64[np.ndarray, "models numbers"],
        n_blocks: int,
        n_cohort: int,
    ) -> Traits:
        """The traits that have these numbers."""
        first, last = 1 + n_blocks, numbers.shape[1] - n_cohort
        rest, profile = numbers[:, first:last], numbers[:, last:]
        centres, spreads = rest.reshape(len(numbers), 2, n_blocks, -1).transpose(1, 2, 0, 3)
        return cls(
            kinds=numbers[:, 0].astype(np.int64),
            blocks=numbers[:, 1 : 1 + n_blocks],
            centres=centres,
            spreads=spreads,
            profile=np.nan_to_num(profile),
            counts=~np.isnan(profile),
        )

    def with_profile(self, scores: Float64[np.ndarray, "models cohort"]) -> Traits:
        """The same models with their normalised scores with the cohort."""
        n = np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        mean = np.where(self.counts, scores, 0.0).sum(axis=1, keepdims=True) / n
        return replace(self, profile=np.where(self.counts, scores - mean, 0.0))


def measure_traits(
    cosines: Float64[np.ndarray, "blocks models cohort"],
    kinds: Int64[np.ndarray, " models"],
    blocks: Float64[np.ndarray, "models blocks"],
    cohort_kinds: Int64[np.ndarray, " cohort"],
    weights: Float64[np.ndarray, "models cohort"],
    counts: Bool[np.ndarray, "models cohort"],
    n_kinds: int,
) -> Traits:
    """Centres and spreads of some models' cosines with the cohort; no profile yet.

    Args:
        blocks: Whether a model has a block.
        weights: How much of a stranger each model of the cohort is, 0…1.
        counts: Whether it counts in the profile: neither the model itself nor its copies.
    """
    centres = np.zeros((*cosines.shape[:2], n_kinds))
    spreads = np.zeros_like(centres)
    for kind in range(n_kinds):
        of_kind = weights * (cohort_kinds == kind)[None, :]
        is_few = of_kind.sum(axis=1) < FEWEST_STRANGERS
        of_kind[is_few] = weights[is_few]
        for block, values in enumerate(cosines):
            centres[block, :, kind], spreads[block, :, kind] = _centre_and_spread(values, of_kind)
    return Traits(
        kinds=kinds,
        blocks=blocks,
        centres=centres,
        spreads=np.maximum(spreads, LEAST_SPREAD),
        profile=np.zeros(counts.shape),
        counts=counts,
    )


def _centre_and_spread(
    values: Float64[np.ndarray, "models cohort"], weights: Float64[np.ndarray, "models cohort"]
) -> tuple[Float64[np.ndarray, " models"], Float64[np.ndarray, " models"]]:
    """Weighted median of every row, and root mean square around the weighted mean."""
    order = np.argsort(values, axis=1)
    sorted_values = np.take_along_axis(values, order, axis=1)
    sorted_weights = np.take_along_axis(weights, order, axis=1)
    total = weights.sum(axis=1)
    safe = np.where(total > 0, total, 1.0)
    # the middle of the steps of the weighted distribution, so that two values have their mean
    middles = sorted_weights.cumsum(axis=1) - sorted_weights / 2
    medians = np.array(
        [
            np.interp(half, row[held > 0], sorted_row[held > 0]) if (held > 0).any() else 0.0
            for half, row, held, sorted_row in zip(
                total / 2, middles, sorted_weights, sorted_values, strict=True
            )
        ]
    )
    means = (values * weights).sum(axis=1) / safe
    squares = (weights * np.square(values - means[:, None])).sum(axis=1) / safe
    return medians, np.sqrt(squares)


def normalised(
    cosines: Float64[np.ndarray, "blocks models others"],
    left: Traits,
    right: Traits,
    weights: Float64[np.ndarray, "kinds kinds blocks"],
) -> Float64[np.ndarray, "models others"]:
    """Σ over blocks of weight × z."""
    scores = np.zeros(cosines.shape[1:])
    for one in np.unique(left.kinds).tolist():
        rows = np.flatnonzero(left.kinds == one)
        for other in np.unique(right.kinds).tolist():
            columns = np.flatnonzero(right.kinds == other)
            shares = _shares(weights[one, other], left.blocks[rows], right.blocks[columns])
            part = np.zeros((len(rows), len(columns)))
            for block, share in enumerate(shares):
                values = cosines[block][np.ix_(rows, columns)]
                own = values - left.centres[block, rows, other][:, None]
                own /= left.spreads[block, rows, other][:, None]
                theirs = values - right.centres[block, columns, one][None, :]
                theirs /= right.spreads[block, columns, one][None, :]
                part += share / 2 * (own + theirs)
            scores[np.ix_(rows, columns)] = part
    return scores


def plain(
    cosines: Float64[np.ndarray, "blocks models others"],
    left: tuple[Int64[np.ndarray, " models"], Float64[np.ndarray, "models blocks"]],
    right: tuple[Int64[np.ndarray, " others"], Float64[np.ndarray, "others blocks"]],
    weights: Float64[np.ndarray, "kinds kinds blocks"],
) -> Float64[np.ndarray, "models others"]:
    """Σ over blocks of weight × cosine: −1…1, and 1 for copies.

    Args:
        left: Kinds of the models, and which blocks they have.
        right: Of the others.
    """
    scores = np.zeros(cosines.shape[1:])
    for one in np.unique(left[0]).tolist():
        rows = np.flatnonzero(left[0] == one)
        for other in np.unique(right[0]).tolist():
            columns = np.flatnonzero(right[0] == other)
            part = np.ix_(rows, columns)
            shares = _shares(weights[one, other], left[1][rows], right[1][columns])
            for values, share in zip(cosines, shares, strict=True):
                scores[part] += share * values[part]
    return scores


def _shares(
    weights: Float64[np.ndarray, " blocks"],
    left: Float64[np.ndarray, "models blocks"],
    right: Float64[np.ndarray, "others blocks"],
) -> Float64[np.ndarray, "blocks models others"]:
    """What each block counts in each pair: its share of those that both models have."""
    shares: Float64[np.ndarray, "blocks models others"] = (
        weights[:, None, None] * left.T[:, :, None] * right.T[:, None, :]
    )
    total = shares.sum(axis=0)
    shares /= np.where(total > 0, total, 1.0)
    return shares


def profile_correlations(left: Traits, right: Traits) -> Float64[np.ndarray, "models others"]:
    """Correlation of two models' scores with the cohort, without the two themselves; −1…1."""
    products = left.profile @ right.profile.T
    left_squares = np.square(left.profile) @ right.counts.T.astype(np.float64)
    right_squares = left.counts.astype(np.float64) @ np.square(right.profile).T
    lengths = np.sqrt(left_squares * right_squares)
    correlations: Float64[np.ndarray, "models others"] = np.divide(
        products, lengths, out=np.zeros_like(products), where=lengths > 0
    )
    return correlations


@dataclass(frozen=True, slots=True)
class Scale:
    """Centre and spread of a number over pairs of strangers, by their two kinds."""

    centre: Mapping[tuple[int, int], float]
    spread: Mapping[tuple[int, int], float]

    def of(
        self,
        values: Float64[np.ndarray, "models others"],
        left: Int64[np.ndarray, " models"],
        right: Int64[np.ndarray, " others"],
    ) -> Float64[np.ndarray, "models others"]:
        """The values in spreads above the centre."""
        scaled = np.empty_like(values)
        for one in np.unique(left).tolist():
            for other in np.unique(right).tolist():
                pair = min(one, other), max(one, other)
                part = np.ix_(left == one, right == other)
                scaled[part] = (values[part] - self.centre[pair]) / self.spread[pair]
        return scaled


def codes_of(kinds: Sequence[str], known: Sequence[str]) -> Int64[np.ndarray, " models"]:
    """Kinds as places in `known`; a kind that no stored model has counts as the first."""
    place = {kind: code for code, kind in enumerate(known)}
    return np.array([place.get(kind, 0) for kind in kinds], dtype=np.int64)


def measure_scale(
    values: Float64[np.ndarray, "cohort cohort"],
    is_pair: Bool[np.ndarray, "cohort cohort"],
    kinds: Int64[np.ndarray, " cohort"],
    measure: Callable[[Float64[np.ndarray, " pairs"]], tuple[float, float]],
) -> Scale:
    """Centre and spread of the strangers' values by pair of kinds."""
    everything = measure(values[is_pair])
    centre, spread = {}, {}
    codes = np.unique(kinds).tolist()
    for one in codes:
        for other in (code for code in codes if code >= one):
            chosen = is_pair & (kinds == one)[:, None] & (kinds == other)[None, :]
            enough = chosen.sum() >= FEWEST_PAIRS * (2 if one == other else 1)
            pair = measure(values[chosen]) if enough else everything
            centre[one, other], spread[one, other] = pair
    return Scale(centre, spread)


def deviation(values: Float64[np.ndarray, " pairs"]) -> tuple[float, float]:
    """Median and standard deviation; 0 and 1 where there is nothing to measure."""
    if len(values) < 2:
        return 0.0, 1.0
    return float(np.median(values)), float(values.std()) or 1.0


def lower_spread(values: Float64[np.ndarray, " pairs"]) -> tuple[float, float]:
    """Median, and its distance from the 16 % quantile: what is below it are strangers.

    Models of one data set are a right tail, so that the lower half alone tells of strangers
    (an empirical null by central matching: Efron 2004).
    """
    if len(values) < 2 * FEWEST_PAIRS:
        # the lower half of a few pairs is one of them: they have no tail to leave out
        return deviation(values)
    low, middle = np.quantile(values, [NORMAL_LOWER, 0.5])
    return float(middle), float(middle - low) or 1.0


NORMAL_LOWER = 0.158655
"""Share of a normal distribution below one standard deviation under its centre."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairScores:
    """Scores of some models with some others.

    Attributes:
        cosines: Plain, over blocks and slots, −1…1.
        z: Normalised, in standard deviations above the family's strangers of these kinds.
    """

    cosines: Float64[np.ndarray, "models others"] = field(compare=False)
    z: Float64[np.ndarray, "models others"] = field(compare=False)


HALF_SCORE = 4.0
"""z that has the score 0.71; strangers are at 0, copies near 1."""

LARGEST_SCORE = 1 - 1e-9
"""Scores are compared to as many decimals."""


def bounded(z: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Scores from −1 to 1 in the order of z, so that 1 − score is a distance."""
    scores: Float64[np.ndarray, "*shape"] = z / np.sqrt(HALF_SCORE**2 + np.square(z))
    return scores


def unbounded(scores: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """z of scores; large where a score is 1."""
    inside = np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE)
    z: Float64[np.ndarray, "*shape"] = HALF_SCORE * inside / np.sqrt(1 - np.square(inside))
    return z
