"""Every measure of two groups of texts, compared layer by layer and text by text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from ...arrays import Float64
from ..report_json import JsonRecord
from .geometry_options import GeometryOptions
from .group_geometry import GroupGeometry, LayerGeometry
from .group_states import CollectedStates
from .intrinsic_dimension import IntrinsicDimension
from .text_blocks import BLOCKS, CONFIDENCE, interval
from .text_influence import text_influence

FEWEST_SENTENCES = 10
"""With fewer, a bootstrap over sentences says little about other sentences."""

SentenceValues = Mapping[tuple[str, int], Mapping[str, float]]
"""By (group, layer): KL to the reference of each sentence, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDifference(JsonRecord):
    """First group − second in one layer.

    Attributes:
        low, high: 95 %: by blocks of texts for intrinsic dimension, by a bootstrap over texts for
            the other measures; the same texts are taken together where both groups have them.
            None for fewer than ten texts, and for linearity.
    """

    layer: int
    difference: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedMeasure(JsonRecord):
    """One measure of two groups.

    Attributes:
        estimator: Of the measure, as elsewhere in the report.
        layers: The layers in which both groups have a number.
        mean_difference: Over these layers.
        sign_test_p: Two-sided, over layers without ties. Layers of one network are not
            independent, so the p value is too small.
        sentences: Texts that both have, where the interval is a bootstrap over them.
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
class ComparedGroup:
    """One group of one network.

    Attributes:
        sentences: KL of its network's groups to the reference.
    """

    geometry: GroupGeometry
    states: CollectedStates
    sentences: SentenceValues

    @property
    def ids(self) -> Mapping[str, int]:
        return self.states.index[self.geometry.group]

    def influence(self, layer: int) -> Mapping[str, Mapping[str, float]]:
        """What its texts contribute to anisotropy and mean cosine."""
        sample = self.states.by_group[self.geometry.group].sample
        return text_influence(sample.rows(layer), sample.texts(), self.ids)


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
    counts = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(counts @ differences / n, (tail, 1 - tail))
    return float(low), float(high)


def compare_groups(
    first: ComparedGroup, second: ComparedGroup, options: GeometryOptions
) -> tuple[PairedMeasure, ...]:
    """Every measure that both have in some layer."""
    return tuple(m for m in _measures(first, second, options) if m.layers)


def _measures(
    first: ComparedGroup, second: ComparedGroup, options: GeometryOptions
) -> Iterator[PairedMeasure]:
    """Dimension, anisotropy and cosine, linearity, then KL to the reference."""
    for place, estimator in enumerate(options.estimators):
        yield _dimension(first, second, place, estimator)
    yield from _directions(first, second, options)
    for name in ("stream", "contribution"):
        title = f"linearity, {name}"
        yield _over_layers(first, second, title, "least squares", partial(_linearity, name))
    if first.sentences or second.sentences:
        yield _over_layers(first, second, "KL to reference", "gauss", _gauss)
    yield from _softmax(first, second, options)


def _dimension(
    first: ComparedGroup, second: ComparedGroup, place: int, estimator: str
) -> PairedMeasure:
    """With the same texts the blocks are paired, else the variances are added."""
    same = first.ids.keys() == second.ids.keys()
    layers = []
    for a, b in zip(first.geometry.layers, second.geometry.layers, strict=True):
        ours, theirs = a.intrinsic_dimension[place], b.intrinsic_dimension[place]
        if ours.dimension is None or theirs.dimension is None:
            continue
        difference = ours.dimension - theirs.dimension
        low, high = _dimension_interval(difference, ours, theirs, paired=same) or (None, None)
        layers.append(LayerDifference(layer=a.layer, difference=difference, low=low, high=high))
    return paired_measure("intrinsic dimension", estimator, layers)


def _dimension_interval(
    difference: float, ours: IntrinsicDimension, theirs: IntrinsicDimension, *, paired: bool
) -> tuple[float, float] | None:
    if not (ours.blocks and theirs.blocks):
        return None
    if paired:
        gaps = [a - b for a, b in zip(ours.blocks, theirs.blocks, strict=True)]
        return interval(difference, gaps)
    errors = (ours.standard_error or 0.0, theirs.standard_error or 0.0)
    reach = float(student.ppf(0.5 + CONFIDENCE / 2, BLOCKS - 1) * np.hypot(*errors))
    return difference - reach, difference + reach


def _directions(
    first: ComparedGroup, second: ComparedGroup, options: GeometryOptions
) -> Iterator[PairedMeasure]:
    """Anisotropy and mean cosine, with a bootstrap over the texts that both have."""
    shared = [i for i in first.ids if i in second.ids]
    layers = range(len(first.geometry.layers))
    influences = [(first.influence(layer), second.influence(layer)) for layer in layers]
    for name, measure, estimator in (
        ("centred", "anisotropy, centred", options.method),
        ("uncentred", "anisotropy, uncentred", options.method),
        ("mean_cosine", "mean cosine", "exact"),
    ):
        plain = _over_layers(first, second, measure, estimator, attrgetter(f"anisotropy.{name}"))
        with_intervals = []
        for layer in plain.layers:
            ours, theirs = (influence.get(name, {}) for influence in influences[layer.layer])
            gaps = np.array(
                [ours.get(i, 0.0) - theirs.get(i, 0.0) for i in shared], dtype=np.float64
            )
            around = gaps - gaps.mean() + layer.difference if len(gaps) else gaps
            low, high = bootstrap_interval(around, options.resamples, options.seed) or (None, None)
            with_intervals.append(
                LayerDifference(layer=layer.layer, difference=layer.difference, low=low, high=high)
            )
        yield paired_measure(measure, estimator, with_intervals, len(shared))


def _softmax(
    first: ComparedGroup, second: ComparedGroup, options: GeometryOptions
) -> Iterator[PairedMeasure]:
    """KL to the reference of the sentences that all three have."""
    layers, shared = [], []
    for layer in range(len(first.geometry.layers)):
        ours, theirs = (
            group.sentences.get((group.geometry.group, layer), {}) for group in (first, second)
        )
        shared = [i for i in ours if i in theirs]
        if not shared:
            return
        gaps = np.array([ours[i] - theirs[i] for i in shared], dtype=np.float64)
        low, high = bootstrap_interval(gaps, options.resamples, options.seed) or (None, None)
        layers.append(
            LayerDifference(layer=layer, difference=float(gaps.mean()), low=low, high=high)
        )
    yield paired_measure("KL to reference", "softmax-mean", layers, len(shared))


def _over_layers(
    first: ComparedGroup,
    second: ComparedGroup,
    measure: str,
    estimator: str,
    value: Callable[[LayerGeometry], float | None],
) -> PairedMeasure:
    """A measure of whole clouds, without intervals."""
    pairs = zip(first.geometry.layers, second.geometry.layers, strict=True)
    values = [(a.layer, value(a), value(b)) for a, b in pairs]
    return paired_measure(
        measure,
        estimator,
        [
            LayerDifference(layer=layer, difference=ours - theirs, low=None, high=None)
            for layer, ours, theirs in values
            if ours is not None and theirs is not None
        ],
    )


def _linearity(name: str, layer: LayerGeometry) -> float | None:
    """Held out, where there is such a score for it."""
    if layer.linearity is None:
        return None
    held_out: float | None = getattr(layer.linearity, f"held_out_{name}")
    return held_out


def _gauss(layer: LayerGeometry) -> float | None:
    divergence = layer.divergence_by("gauss")
    return None if divergence is None else divergence.to_reference
