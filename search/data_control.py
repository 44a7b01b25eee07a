"""Whether a model lies nearer to a data set than to a control: alike texts that it did not see.

Both data sets are gradients over disjoint groups of examples. A model's score with a group is the
sum of its cosines, in standard deviations of the family's strangers. The effect is the mean score
with the groups of the data less that with the groups of the control. Two nulls are tested, and the
larger p counts:

* The groups of both files are exchangeable: a permutation test of the difference (Fisher 1935;
  Phipson, Smyth 2010 for p of a sample of permutations).
* The two files differ for *every* model, as files from two sources do: the model's difference over
  its standard error among those of the family's strangers, of which most saw neither file. Their
  centre is taken out of the effect: a difference of differences.

The idea of a control that no model saw: dataset inference (Maini, Yaghini, Papernot 2021,
arXiv 2104.10706; Maini et al. 2024, arXiv 2406.06443).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np

from ..arrays import Bool, Float64
from ..errors import RequestError
from ..records import DataSet
from .scoring.normalisation import LEAST_SPREAD

Nearer = Literal["nearer to the data", "nearer to the control", "cannot tell"]

WEIGHTS = {"update": 1.0, "output": 1.0, "input": 0.0}
"""Of the blocks. Strong directions of the input side say what kind of data it is, not which half
(docs/find-trained-on.md)."""

FEWEST_GROUPS = 4
"""Of each file; of 3 and 3 groups no permutation has a two-sided p below .1."""

FEWEST_OTHERS = 10
"""Models from which the other models are a null."""

LEVEL = 0.05

MOST_SPLITS = 20_000
"""Splits that are enumerated; 8 and 8 groups have 12,870. Of more, `DRAWN_SPLITS` are drawn."""

DRAWN_SPLITS = 9_999

SIGMA_SHARES = (0.158655, 0.841345)
"""Quantiles of a normal distribution one deviation below and above its centre."""

EQUAL_SETTINGS = ("loss", "max_tokens", "parts", "seed")
"""Settings in which two fingerprints must agree."""

ROUNDING = 1e-9
"""Of the largest score: differences that are equal but for rounding count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEffect:
    """One model between the data and the control.

    Attributes:
        effect: How much nearer to the data, in standard deviations of the family's strangers.
        low, high: 95 % interval.
        p: Two-sided, of a model that saw neither.
    """

    model: str
    effect: float
    low: float
    high: float
    p: float
    verdict: Nearer


@dataclass(frozen=True, slots=True, kw_only=True)
class DataComparison:
    """A data set and its control, as some models see them.

    Attributes:
        examples: Of each of the two.
        groups: That the examples of each are in.
        others: Models that are the second null; 0 where there are too few.
    """

    control: str
    examples: int
    groups: int
    others: int
    models: tuple[ControlEffect, ...]

    def to_json(self) -> dict[str, object]:
        """The documented keys, ready for json.dumps."""
        return {**asdict(self), "models": [asdict(model) for model in self.models]}


def check_control(data: DataSet, control: DataSet) -> None:
    """Whether the two can be compared.

    Raises:
        RequestError: they are one file, or differ in what decides the numbers, or are too small.
    """
    if data.sha256 == control.sha256:
        raise RequestError(
            f"{control.name} is the same file as {data.name}: a control has other texts"
        )
    if data.loss != control.loss:
        raise RequestError(
            f"{data.name} has the loss {data.loss}, {control.name} {control.loss}: name one with "
            "--loss"
        )
    if data.counts.get("classes") != control.counts.get("classes"):
        raise RequestError(
            f"{data.name} has {data.counts.get('classes')} classes, {control.name} "
            f"{control.counts.get('classes')}: a control has the same classes"
        )
    if data.settings.get("head") != control.settings.get("head"):
        raise RequestError(
            f"{data.name} and {control.name} were made with heads of their own, one for each: give "
            "the files of both, so that one head is fitted on them"
        )
    for setting in EQUAL_SETTINGS:
        one, other = data.settings.get(setting), control.settings.get(setting)
        if one != other:
            raise RequestError(
                f"{data.name} was made with {setting} {one}, {control.name} with {other}: make "
                "both with the same settings"
            )
    if data.examples != control.examples:
        raise RequestError(
            f"{data.name} has {data.examples} examples, {control.name} {control.examples}: make "
            f"both with --max-examples {min(data.examples, control.examples)}"
        )
    groups = sum(part.startswith("group ") for part in data.sketches)
    if groups < FEWEST_GROUPS:
        raise RequestError(
            f"{data.examples} examples make {groups} groups; a comparison with a control needs "
            f"{FEWEST_GROUPS} groups of 8"
        )


def block_scores(
    data: Float64[np.ndarray, "blocks groups models"],
    control: Float64[np.ndarray, "blocks others models"],
    strangers: Float64[np.ndarray, "blocks all_groups cohort"],
    blocks: Sequence[str],
    weights: Mapping[str, float] = WEIGHTS,
) -> tuple[Float64[np.ndarray, "groups models"], Float64[np.ndarray, "others models"]]:
    """Scores of the groups of both files: cosines over the strangers' spread, summed over blocks.

    A block has one spread for all groups, of whichever file, so that the two stay exchangeable.

    Args:
        strangers: The cosines of the groups of both with the family's strangers.
    """
    share = np.array([weights.get(block, 1.0) for block in blocks])
    if not share.any():
        share = np.ones(len(share))
    low, high = np.quantile(strangers, SIGMA_SHARES, axis=2)
    spread = np.maximum(np.median((high - low) / 2, axis=1), LEAST_SPREAD)
    scale = share / share.sum() / spread
    return np.tensordot(scale, data, axes=1), np.tensordot(scale, control, axes=1)


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Mean scores with the data less those with the control, model by model.

    Attributes:
        errors: Their standard errors (Welch).
        freedom: Degrees of freedom of the errors.
    """

    means: Float64[np.ndarray, " models"]
    errors: Float64[np.ndarray, " models"]
    freedom: int

    @classmethod
    def of(
        cls,
        data: Float64[np.ndarray, "groups models"],
        control: Float64[np.ndarray, "others models"],
    ) -> Differences:
        """Of the scores of two files' groups."""
        variance = data.var(axis=0, ddof=1) / len(data)
        variance += control.var(axis=0, ddof=1) / len(control)
        errors = np.maximum(np.sqrt(variance), LEAST_SPREAD)
        freedom = len(data) + len(control) - 2
        return cls(data.mean(axis=0) - control.mean(axis=0), errors, freedom)


def compare_with_control(
    data: Float64[np.ndarray, "groups models"],
    control: Float64[np.ndarray, "control_groups models"],
    ids: Sequence[str],
    others: Differences,
    is_itself: Bool[np.ndarray, "models others"],
    *,
    seed: int = 0,
) -> list[ControlEffect]:
    """The effect on each model, from the scores of the groups.

    Args:
        others: Of the family's strangers with the same groups.
        is_itself: Whether one of those is the model.
    """
    own = Differences.of(data, control)
    p_groups = permutation_p(data, control, seed=seed)
    effects = []
    for row, model in enumerate(ids):
        mean, error = float(own.means[row]), float(own.errors[row])
        half = _t_quantile(own.freedom) * error
        low, high, effect, p = mean - half, mean + half, mean, float(p_groups[row])
        null = (others.means / others.errors)[~is_itself[row]]
        if len(null) >= FEWEST_OTHERS:
            effect, half, p_models = _among_others(mean, error, null)
            low, high = min(low, effect - half), max(high, effect + half)
            p = max(p, p_models) if effect * mean > 0 else 1.0
        effects.append(
            ControlEffect(
                model=model,
                effect=effect,
                low=low,
                high=high,
                p=p,
                verdict=_verdict(low, high, p),
            )
        )
    return effects


def _among_others(
    mean: float, error: float, null: Float64[np.ndarray, " others"]
) -> tuple[float, float, float]:
    """The effect less what all models have, half of its interval, and p.

    A prediction interval of one more value from `null`. Its spread is half of the middle 68 %, so
    that models that did see one of the files do not widen it; it is known as well as the standard
    deviation of half as many.
    """
    from scipy import stats

    low, centre, high = np.quantile(null, (SIGMA_SHARES[0], 0.5, SIGMA_SHARES[1]))
    n = len(null) / 2
    spread = max(float(high - low) / 2, ROUNDING) * np.sqrt(1 + 1 / n)
    effect = mean - float(centre) * error
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * spread * error
    p = float(2 * stats.t.sf(abs(effect) / (error * spread), n - 1))
    return effect, half, p


def permutation_p(
    data: Float64[np.ndarray, "groups models"],
    control: Float64[np.ndarray, "others models"],
    *,
    seed: int = 0,
) -> Float64[np.ndarray, " models"]:
    """Two-sided p of the difference of means, groups of both files exchanged; for each model."""
    values = np.concatenate([data, control])
    chosen = _splits(len(values), len(data), seed)
    scores = values - values.mean(axis=0)
    # sums of the data's part alone order splits as differences of the means do
    sums = np.abs(chosen @ scores)
    found = np.abs(scores[: len(data)].sum(axis=0))
    tolerance = ROUNDING * np.abs(scores).max(axis=0) * len(values)
    extreme = (sums >= found - tolerance).sum(axis=0)
    is_drawn = comb(len(values), len(data)) > MOST_SPLITS
    p: Float64[np.ndarray, " models"] = (extreme + is_drawn) / (len(chosen) + is_drawn)
    return p


@lru_cache(maxsize=4)
def _splits(n: int, n_chosen: int, seed: int) -> Float64[np.ndarray, "splits n"]:
    """Which groups are the data's, a row a split: all of them, or a sample."""
    if comb(n, n_chosen) <= MOST_SPLITS:
        places = np.array(list(combinations(range(n), n_chosen)))
    else:
        rng = np.random.default_rng(seed)
        places = rng.permuted(np.tile(np.arange(n), (DRAWN_SPLITS, 1)), axis=1)[:, :n_chosen]
    chosen = np.zeros((len(places), n))
    np.put_along_axis(chosen, places, 1.0, axis=1)
    chosen.flags.writeable = False
    return chosen


def _t_quantile(freedom: float) -> float:
    from scipy import stats

    return float(stats.t.ppf(1 - LEVEL / 2, freedom))


def _verdict(low: float, high: float, p: float) -> Nearer:
    if p > LEVEL or low <= 0 <= high:
        return "cannot tell"
    return "nearer to the data" if low > 0 else "nearer to the control"
