"""One language in two scripts, compared layer by layer and sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binomtest

from ...arrays import Float64
from ..report_json import JsonRecord
from .fertility import Fertility
from .geometry_options import GeometryOptions

if TYPE_CHECKING:
    from .group_geometry import GroupGeometry, LayerGeometry

FEWEST_SENTENCES = 10
"""With fewer, a bootstrap over sentences says little about other sentences."""

SentenceValues = Mapping[tuple[str, int], Mapping[str, float]]
"""By (group, layer): KL to the reference of each sentence, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDifference(JsonRecord):
    """First script − second in one layer.

    Attributes:
        low, high: 95 % of the bootstrap over parallel sentences; None for measures of whole
            clouds, or of fewer than ten sentences.
    """

    layer: int
    difference: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedMeasure(JsonRecord):
    """One measure of two scripts.

    Attributes:
        estimator: Of the measure, as elsewhere in the report.
        layers: The layers in which both scripts have a number.
        mean_difference: Over these layers.
        sign_test_p: Two-sided, over layers without ties. Layers of one network are not
            independent, so the p value is too small.
        sentences: Parallel sentences, where the measure has a number for each.
    """

    measure: str
    estimator: str
    layers: tuple[LayerDifference, ...]
    mean_difference: float | None
    positive: int
    negative: int
    sign_test_p: float | None
    sentences: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPair(JsonRecord):
    """One language in two scripts; every difference is first − second.

    Attributes:
        shared_ids: Texts that both have.
        first_fertility, second_fertility: Read them first: a script that is cut into more
            tokens, or into unknown tokens, differs for that reason already.
    """

    language: str
    first: str
    second: str
    shared_ids: int
    first_fertility: Fertility | None
    second_fertility: Fertility | None
    measures: tuple[PairedMeasure, ...]


def compare_scripts(
    groups: Sequence[GroupGeometry],
    ids: Mapping[str, Mapping[str, int]],
    sentences: SentenceValues,
    options: GeometryOptions,
) -> tuple[ScriptPair, ...]:
    """Every two groups named `language_ScriptA` and `language_ScriptB`, Latin script first."""
    by_language: dict[str, list[GroupGeometry]] = {}
    for group in groups:
        language, _, script = group.group.rpartition("_")
        if language and script:
            by_language.setdefault(language, []).append(group)
    return tuple(
        ScriptPair(
            language=language,
            first=first.group,
            second=second.group,
            shared_ids=len(ids[first.group].keys() & ids[second.group].keys()),
            first_fertility=first.fertility,
            second_fertility=second.fertility,
            measures=tuple(m for m in _measures(first, second, sentences, options) if m.layers),
        )
        for language, scripts in by_language.items()
        for first, second in combinations(
            sorted(scripts, key=lambda script: (not script.group.endswith("_Latn"), script.group)),
            2,
        )
    )


def paired_measure(
    measure: str, estimator: str, layers: Sequence[LayerDifference], sentences: int | None = None
) -> PairedMeasure:
    """The differences by layer, their mean and their sign test."""
    differences = [layer.difference for layer in layers]
    positive = sum(difference > 0 for difference in differences)
    negative = sum(difference < 0 for difference in differences)
    untied = positive + negative
    return PairedMeasure(
        measure=measure,
        estimator=estimator,
        layers=tuple(layers),
        mean_difference=float(np.mean(differences)) if differences else None,
        positive=positive,
        negative=negative,
        sign_test_p=float(binomtest(positive, untied).pvalue) if untied else None,
        sentences=sentences,
    )


def bootstrap_interval(
    differences: Float64[np.ndarray, " sentences"], resamples: int, seed: int
) -> tuple[float, float] | None:
    """2.5 and 97.5 % points of the mean over resampled sentences; None for fewer than ten."""
    n = len(differences)
    if n < FEWEST_SENTENCES:
        return None
    rng = np.random.default_rng(seed)
    means = [float(differences[rng.integers(0, n, n)].mean()) for _ in range(resamples)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _measures(
    first: GroupGeometry, second: GroupGeometry, sentences: SentenceValues, options: GeometryOptions
) -> Iterator[PairedMeasure]:
    """Every measure of whole clouds, then KL to the reference of sentences that all three have."""

    def over_layers(
        measure: str, estimator: str, value: Callable[[LayerGeometry], float | None]
    ) -> PairedMeasure:
        pairs = zip(first.layers, second.layers, strict=True)
        values = [(a.layer, value(a), value(b)) for a, b in pairs]
        layers = [
            LayerDifference(layer=layer, difference=ours - theirs, low=None, high=None)
            for layer, ours, theirs in values
            if ours is not None and theirs is not None
        ]
        return paired_measure(measure, estimator, layers)

    def dimension(place: int, layer: LayerGeometry) -> float | None:
        return layer.intrinsic_dimension[place].dimension

    def gauss(layer: LayerGeometry) -> float | None:
        divergence = layer.divergence_by("gauss")
        return None if divergence is None else divergence.to_reference

    for place, estimator in enumerate(options.estimators):
        yield over_layers("intrinsic dimension", estimator, partial(dimension, place))
    for name in ("centred", "uncentred"):
        value = attrgetter(f"anisotropy.{name}")
        yield over_layers(f"anisotropy, {name}", options.method, value)
    yield over_layers("mean cosine", "exact", attrgetter("anisotropy.mean_cosine"))
    if any(layer.divergence for layer in (*first.layers, *second.layers)):
        yield over_layers("KL to reference", "gauss", gauss)
    layers, shared = [], []
    for layer in range(len(first.layers)):
        ours, theirs = (sentences.get((script.group, layer), {}) for script in (first, second))
        shared = [i for i in ours if i in theirs]
        if not shared:
            return
        gaps = np.array([ours[i] - theirs[i] for i in shared], dtype=np.float64)
        low, high = bootstrap_interval(gaps, options.resamples, options.seed) or (None, None)
        layers.append(
            LayerDifference(layer=layer, difference=float(gaps.mean()), low=low, high=high)
        )
    yield paired_measure("KL to reference", "softmax-mean", layers, len(shared))
