"""One language in two scripts, compared layer by layer and sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from scipy.stats import binomtest

from ...arrays import Float64
from .options import GeometryOptions
from .report import GroupGeometry, LayerDifference, LayerGeometry, PairedMeasure, ScriptPair

FEWEST_SENTENCES = 10
"""Below which a bootstrap over sentences says little about other sentences."""

SentenceValues = Mapping[tuple[str, int], Mapping[str, float]]
"""By (group, layer): KL to the reference of each sentence, by its id."""


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
        for first, second in combinations(sorted(scripts, key=_latin_first), 2)
    )


def paired_measure(
    measure: str, estimator: str, layers: Sequence[LayerDifference], sentences: int | None = None
) -> PairedMeasure:
    """The differences by layer, and what they come to."""
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
    """2.5 and 97.5 % points of the mean over resampled sentences; None of fewer than ten."""
    n = len(differences)
    if n < FEWEST_SENTENCES:
        return None
    rng = np.random.default_rng(seed)
    means = [float(differences[rng.integers(0, n, n)].mean()) for _ in range(resamples)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _latin_first(group: GroupGeometry) -> tuple[bool, str]:
    return not group.group.endswith("_Latn"), group.group


def _measures(
    first: GroupGeometry,
    second: GroupGeometry,
    sentences: SentenceValues,
    options: GeometryOptions,
) -> Iterator[PairedMeasure]:
    for estimator in options.estimators:
        yield _over_layers(
            "intrinsic dimension", estimator, first, second, _dimension_by(estimator)
        )
    for name in ("centred", "uncentred", "mean_cosine"):
        measure = "mean cosine" if name == "mean_cosine" else f"anisotropy, {name}"
        method = "exact" if name == "mean_cosine" else options.method
        yield _over_layers(measure, method, first, second, _anisotropy_by(name))
    if any(layer.divergence for layer in (*first.layers, *second.layers)):
        yield _over_layers("KL to reference", "gauss", first, second, _gauss)
    by_sentence = _over_sentences(first, second, sentences, options)
    if by_sentence is not None:
        yield by_sentence


def _over_layers(
    measure: str,
    estimator: str,
    first: GroupGeometry,
    second: GroupGeometry,
    value: Callable[[LayerGeometry], float | None],
) -> PairedMeasure:
    layers = []
    for a, b in zip(first.layers, second.layers, strict=True):
        ours, theirs = value(a), value(b)
        if ours is not None and theirs is not None:
            layers.append(
                LayerDifference(layer=a.layer, difference=ours - theirs, low=None, high=None)
            )
    return paired_measure(measure, estimator, layers)


def _over_sentences(
    first: GroupGeometry,
    second: GroupGeometry,
    sentences: SentenceValues,
    options: GeometryOptions,
) -> PairedMeasure | None:
    """KL to the reference of sentences that all three have."""
    layers, n_shared = [], 0
    for layer in range(len(first.layers)):
        ours = sentences.get((first.group, layer), {})
        theirs = sentences.get((second.group, layer), {})
        shared = [i for i in ours if i in theirs]
        if not shared:
            return None
        n_shared = len(shared)
        gaps = np.array([ours[i] - theirs[i] for i in shared], dtype=np.float64)
        low, high = bootstrap_interval(gaps, options.resamples, options.seed) or (None, None)
        layers.append(
            LayerDifference(layer=layer, difference=float(gaps.mean()), low=low, high=high)
        )
    return paired_measure("KL to reference", "softmax-mean", layers, n_shared)


def _dimension_by(estimator: str) -> Callable[[LayerGeometry], float | None]:
    def value(layer: LayerGeometry) -> float | None:
        found = (d.dimension for d in layer.intrinsic_dimension if d.estimator == estimator)
        return next(found, None)

    return value


def _anisotropy_by(name: str) -> Callable[[LayerGeometry], float | None]:
    def value(layer: LayerGeometry) -> float | None:
        found: float | None = getattr(layer.anisotropy, name)
        return found

    return value


def _gauss(layer: LayerGeometry) -> float | None:
    found = layer.divergence_by("gauss")
    return None if found is None else found.to_reference
