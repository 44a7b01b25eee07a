"""Whether a model lies nearer to a data set than to a control: alike texts that it did not see.

Both are gradients over disjoint groups of examples. A model's score with a group is the sum of its
cosines, in standard deviations of the family's strangers; the effect is the mean score with the
groups of the data less that with those of the control. Two nulls are tested, and the larger p
counts: the groups of both files are exchangeable (a permutation test: Fisher 1935; Phipson, Smyth
2010); and the two files differ for *every* model, as files from two sources do (the model's
difference over its standard error among those of the family's strangers, whose centre is taken out
of the effect).

The idea of a control that no model saw: dataset inference (Maini et al. 2021, arXiv 2104.10706;
2024, arXiv 2406.06443).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np

from ..arrays import Bool, Float64
from ..errors import RequestError
from ..records import GROUP, LABELLED_LOSSES, DataSet
from ..store import FamilyView, SketchMatrix
from .family_scores import LEAST_SPREAD, NORMAL_LOWER, FamilyScores
from .shapes import Numbers, Rows

MOST_SPLITS = 20_000
"""Splits that are enumerated; 8 and 8 values have 12,870. Of more, `DRAWN_SPLITS` are drawn."""

DRAWN_SPLITS = 9_999

ROUNDING = 1e-9
"""Of the largest value: sums that are equal but for rounding count as equal."""


def permutation_p(
    first: Float64[np.ndarray, "first columns"],
    second: Float64[np.ndarray, "second columns"],
    *,
    seed: int = 0,
) -> Float64[np.ndarray, " columns"]:
    """Two-sided p of the difference of means in each column, of all splits of the rows or of a
    sample in which the one that was found counts (Phipson, Smyth 2010)."""
    # scipy.stats.permutation_test draws other splits, and knows no tolerance for equal sums
    values = np.concatenate([first, second])
    chosen = _splits(len(values), len(first), seed)
    scores = values - values.mean(axis=0)
    # sums of the first part alone order splits as differences of the means do
    sums = np.abs(chosen @ scores)
    found = np.abs(scores[: len(first)].sum(axis=0))
    tolerance = ROUNDING * np.abs(scores).max(axis=0) * len(values)
    extreme = (sums >= found - tolerance).sum(axis=0)
    is_drawn = comb(len(values), len(first)) > MOST_SPLITS
    return np.asarray((extreme + is_drawn) / (len(chosen) + is_drawn))


@lru_cache(maxsize=4)
def _splits(n: int, n_chosen: int, seed: int) -> Float64[np.ndarray, "splits n"]:
    if comb(n, n_chosen) <= MOST_SPLITS:
        places = np.array(list(combinations(range(n), n_chosen)))
    else:
        rng = np.random.default_rng(seed)
        places = rng.permuted(np.tile(np.arange(n), (DRAWN_SPLITS, 1)), axis=1)[:, :n_chosen]
    chosen = np.zeros((len(places), n))
    np.put_along_axis(chosen, places, 1.0, axis=1)
    chosen.flags.writeable = False
    return chosen


Nearer = Literal["nearer to the data", "nearer to the control", "cannot tell"]

WEIGHTS = {"update": 1.0, "output": 1.0, "input": 0.0}
"""Of the blocks; the input side says what kind of data it is, not which half."""

FEWEST_GROUPS = 4
"""Of each file; of 3 and 3 groups no permutation has a two-sided p below .1."""

FEWEST_OTHERS = 10
LEVEL = 0.05

SIGMA_SHARES = (NORMAL_LOWER, 1 - NORMAL_LOWER)
EQUAL_SETTINGS = ("loss", "max_tokens", "parts", "seed")
LEAST_NULL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEffect:
    """How much nearer one model is to the data, in standard deviations of the family's strangers,
    with a 95 % interval and the two-sided p of a model that saw neither."""

    model: str
    effect: float
    low: float
    high: float
    p: float
    verdict: Nearer


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlComparison:
    """A data set and its control, of as many examples, as some models see them; `others` models are
    the second null, 0 where there are too few."""

    control: str
    examples: int
    groups: int
    others: int
    models: tuple[ControlEffect, ...]

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "models": [asdict(model) for model in self.models]}


def check_control(data: DataSet, control: DataSet) -> None:
    """Raise `RequestError` where the two cannot be compared: they are one file, too small, or
    differ in what decides the numbers."""
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
    head = data.settings.get("head")
    # with a head for each file groups of the two are not exchangeable
    if data.loss in LABELLED_LOSSES and (head is None or head != control.settings.get("head")):
        raise RequestError(
            f"{data.name} and {control.name} have a head each: name the files of both, so that one "
            "head is fitted on the two"
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
    groups = len(data.parts(GROUP))
    if groups < FEWEST_GROUPS:
        raise RequestError(
            f"{data.examples} examples make {groups} groups; a comparison with a control needs "
            f"{FEWEST_GROUPS} groups of 8"
        )


def compare_data(
    view: FamilyView, family: FamilyScores, data: DataSet, control: DataSet, rows: Rows
) -> ControlComparison:
    """How the models in some rows lie between a data set and its control, as `check_control`
    allows."""
    check_control(data, control)
    groups, control_groups = (
        SketchMatrix.of_rows(one.parts(GROUP), view.recipe) for one in (data, control)
    )
    others = len(family.cohort) - int(np.isin(family.cohort, rows).any())
    return ControlComparison(
        control=control.name,
        examples=data.examples,
        groups=len(groups),
        others=others if others >= FEWEST_OTHERS else 0,
        models=tuple(
            compare_groups(
                family,
                groups,
                control_groups,
                models=view.sketches(view.keys[rows]),
                ids=[view.ids[row] for row in rows.tolist()],
                rows=rows,
            )
        ),
    )


def compare_groups(
    family: FamilyScores,
    data: SketchMatrix,
    control: SketchMatrix,
    *,
    models: SketchMatrix,
    ids: Sequence[str],
    rows: Rows,
) -> list[ControlEffect]:
    """The effect on the models in `rows`, from the gradients of groups of examples."""
    strangers = family.strangers.features
    among = [groups.cosines(strangers) for groups in (data, control)]
    scale = _scales(list(strangers.dims), block_spreads(np.concatenate(among, axis=1)))
    own, own_control, others, others_control = (
        np.tensordot(scale, cosines, axes=1)
        for cosines in (data.cosines(models), control.cosines(models), *among)
    )
    return compare_with_control(
        own,
        own_control,
        ids,
        Differences.of(others, others_control),
        rows[:, None] == family.cohort[None, :],
    )


def block_spreads(
    cosines: Float64[np.ndarray, "blocks groups cohort"],
) -> Float64[np.ndarray, " blocks"]:
    """The strangers' spread in each block: one for the groups of both files, so that these stay
    exchangeable."""
    low, high = np.quantile(cosines, SIGMA_SHARES, axis=2)
    spreads: Float64[np.ndarray, " blocks"] = np.median((high - low) / 2, axis=1)
    np.maximum(spreads, LEAST_SPREAD, out=spreads)
    return spreads


def _scales(
    blocks: Sequence[str], spreads: Float64[np.ndarray, " blocks"]
) -> Float64[np.ndarray, " blocks"]:
    """What cosines of each block are multiplied by before they are summed."""
    shares = np.array([WEIGHTS.get(block, 1.0) for block in blocks])
    return np.asarray(shares / shares.sum() / spreads, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Mean scores with the data less those with the control, model by model, with Welch's standard
    errors."""

    means: Numbers
    errors: Numbers
    freedom: int

    @classmethod
    def of(
        cls,
        data: Float64[np.ndarray, "groups models"],
        control: Float64[np.ndarray, "others models"],
    ) -> Differences:
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
    """The effect on each model, from its scores with the groups; `others` are of the family's
    strangers."""
    from scipy import stats

    own = Differences.of(data, control)
    p_groups = permutation_p(data, control, seed=seed)
    effects = []
    for row, model in enumerate(ids):
        mean, error = float(own.means[row]), float(own.errors[row])
        half = float(stats.t.ppf(1 - LEVEL / 2, own.freedom)) * error
        low, high, effect, p = mean - half, mean + half, mean, float(p_groups[row])
        null = (others.means / others.errors)[~is_itself[row]]
        if len(null) >= FEWEST_OTHERS:
            effect, half, p_models = _among_others(mean, error, null)
            low, high = min(low, effect - half), max(high, effect + half)
            p = max(p, p_models) if effect * mean > 0 else 1.0
        effects.append(
            ControlEffect(
                model=model, effect=effect, low=low, high=high, p=p, verdict=_verdict(low, high, p)
            )
        )
    return effects


def _among_others(
    mean: float, error: float, null: Float64[np.ndarray, " others"]
) -> tuple[float, float, float]:
    """The effect less what all models have, half of its interval, and p: a prediction interval of
    one more value from `null`.

    Its spread is half of the middle 68 %, so that models that did see one of the files do not widen
    it; it is known as well as the standard deviation of half as many.
    """
    from scipy import stats

    low, centre, high = np.quantile(null, (SIGMA_SHARES[0], 0.5, SIGMA_SHARES[1]))
    n = len(null) / 2
    spread = max(float(high - low) / 2, LEAST_NULL) * np.sqrt(1 + 1 / n)
    effect = mean - float(centre) * error
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * spread * error
    p = float(2 * stats.t.sf(abs(effect) / (error * spread), n - 1))
    return effect, half, p


def _verdict(low: float, high: float, p: float) -> Nearer:
    if p > LEVEL or low <= 0 <= high:
        return "cannot tell"
    return "nearer to the data" if low > 0 else "nearer to the control"
