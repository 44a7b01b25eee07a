"""The geometry study: every group's numbers in every layer, and how groups and networks differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from ...arrays import Float32, Float64
from ..report_json import JsonRecord
from ..texts import Text
from .group_states import (
    SCRAMBLED,
    CollectedStates,
    Fertility,
    GeometryOptions,
    Tokenize,
    fertility,
    scrambled_group,
)
from .intrinsic_dimension import (
    BLOCKS,
    CONFIDENCE,
    FEWEST_ROWS,
    DepthTrend,
    Estimator,
    IntrinsicDimension,
    depth_trends,
    interval,
    intrinsic_dimension,
    trends_disagree,
)
from .moments import (
    DIVERGENCES,
    Anisotropy,
    BothWays,
    Divergence,
    Divergent,
    LayerLinearity,
    gaussian_divergence,
    gaussian_floor,
    layer_linearity,
    pooled,
    sampled_anisotropy,
    softmax_divergence,
    softmax_mean,
    softmax_padded,
    streamed_anisotropy,
    text_influence,
)

if TYPE_CHECKING:
    from ..network import TokenStates


NO_SENTENCES = BothWays(np.empty(0), np.empty(0))


@dataclass(slots=True)
class ReferenceDivergences:
    """The divergences of all groups from the reference, layer by layer.

    Attributes:
        sentences: By (group, layer), the `softmax-mean` KL(group ‖ reference) of each parallel
            text by its id.
    """

    collected: CollectedStates
    reference: str
    axes: int
    sentences: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    floors: dict[int, float | None] = field(default_factory=dict)

    def divergences(self, name: str, layer: int) -> tuple[Divergence, ...]:
        """The divergence by each estimator; none of the reference from itself."""
        if name == self.reference:
            return ()
        scale = self.collected.by_group[self.reference].sums[layer].rms_coordinate
        if scale == 0.0:
            zero = "the reference's states are all zero"
            return tuple(Divergence(estimator=estimator, reason=zero) for estimator in DIVERGENCES)
        return (
            softmax_divergence("softmax-mean", self._by_mean(name, layer, scale), scale=scale),
            softmax_divergence("softmax-padded", self._padded(name, layer, scale), scale=scale),
            self._gauss(name, layer),
        )

    def _by_mean(self, name: str, layer: int, scale: float) -> BothWays:
        """Between mean vectors, over all parallel texts with tokens on both sides."""
        own, theirs = (self.collected.by_group[group] for group in (name, self.reference))
        numbers = self.collected.index[self.reference]
        pairs: dict[str, tuple[Float32[np.ndarray, " dim"], Float32[np.ndarray, " dim"]]] = {}
        for i, number in self.collected.index[name].items():
            mean = own.mean_of(number, layer)
            other = theirs.mean_of(numbers[i], layer) if i in numbers else None
            if mean is not None and other is not None:
                pairs[i] = mean, other
        if not pairs:
            return NO_SENTENCES
        both = softmax_mean(*map(np.stack, zip(*pairs.values(), strict=True)), scale=scale)
        self.sentences[name, layer] = dict(zip(pairs, both.forward.tolist(), strict=True))
        return both

    def _padded(self, name: str, layer: int, scale: float) -> BothWays:
        """Between tokens, over the parallel texts that are stored whole."""
        ours, others = [], []
        for i in self.collected.padded[name]:
            rows, other = (
                self.collected.by_group[group].tokens_of(self.collected.index[group][i], layer)
                for group in (name, self.reference)
            )
            if rows is not None and other is not None:
                ours.append(rows)
                others.append(other)
        return softmax_padded(ours, others, scale=scale) if ours else NO_SENTENCES

    def _gauss(self, name: str, layer: int) -> Divergence:
        own, halves = (
            self.collected.by_group[group].moments(layer, self.collected.half)
            for group in (name, self.reference)
        )
        if layer not in self.floors:
            self.floors[layer] = gaussian_floor(halves, axes=self.axes)
        floor = self.floors[layer]
        return gaussian_divergence(pooled(own), pooled(halves), floor=floor, axes=self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGeometry(JsonRecord):
    """One group in one layer.

    Attributes:
        layer: 0 is the input of the first block, l the output of block l.
        intrinsic_dimension: By estimator, in the order of the options.
        linearity: Of the step from the layer before; None for layer 0, and where the memory
            for it was refused.
        divergence: From the reference, by estimator; empty without a reference and for it.
    """

    layer: int
    tokens: int
    intrinsic_dimension: tuple[IntrinsicDimension, ...]
    anisotropy: Anisotropy
    linearity: LayerLinearity | None
    divergence: tuple[Divergence, ...]

    def dimension_by(self, estimator: Estimator) -> IntrinsicDimension | None:
        """The result of an estimator; None where it was not asked for."""
        return next((d for d in self.intrinsic_dimension if d.estimator == estimator), None)

    def divergence_by(self, estimator: Divergent) -> Divergence | None:
        """The result of an estimator; None without a reference."""
        return next((d for d in self.divergence if d.estimator == estimator), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGeometry(JsonRecord):
    """One group in all layers.

    Attributes:
        tokens: Tokens that were studied, the same in every layer.
        fertility: None without a tokenizer, and of an untrained network.
        trends: Of intrinsic dimension with depth, by estimator.
        trends_disagree: One estimator is sure of a trend that another is not sure of, or denies.
        notes: What a reader of the numbers has to know first: too few texts.
    """

    group: str
    texts: int
    tokens: int
    fertility: Fertility | None
    layers: tuple[LayerGeometry, ...]
    trends: tuple[DepthTrend, ...]
    trends_disagree: bool
    notes: tuple[str, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(JsonRecord):
    """One group under two conditions; every difference is first − second.

    Attributes:
        condition: What the second is.
        group: The group's name.
    """

    condition: Literal["untrained", "scrambled"]
    group: str
    measures: tuple[PairedMeasure, ...]


def contrasts(
    trained: Sequence[ComparedGroup], untrained: Sequence[ComparedGroup], options: GeometryOptions
) -> tuple[Contrast, ...]:
    """Of every group with its untrained one, and with its scrambled one, where they exist."""
    fresh = {group.geometry.group: group for group in untrained}
    by_name = {group.geometry.group: group for group in trained}
    found = []
    permuted = {scrambled_group(name) for name in by_name}
    for name, group in by_name.items():
        if name in permuted:
            continue
        others: list[tuple[Literal["untrained", "scrambled"], ComparedGroup | None]] = [
            ("untrained", fresh.get(name)),
            ("scrambled", by_name.get(scrambled_group(name))),
        ]
        found += [
            Contrast(
                condition=condition, group=name, measures=compare_groups(group, other, options)
            )
            for condition, other in others
            if other is not None
        ]
    return tuple(found)


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
    groups: Sequence[ComparedGroup], options: GeometryOptions
) -> tuple[ScriptPair, ...]:
    """Every two groups named `language_ScriptA` and `language_ScriptB`, Latin script first."""
    by_language: dict[str, list[ComparedGroup]] = {}
    for group in groups:
        language, _, script = group.geometry.group.rpartition("_")
        if language and script and not script.endswith(SCRAMBLED):
            by_language.setdefault(language, []).append(group)
    return tuple(
        ScriptPair(
            language=language,
            first=first.geometry.group,
            second=second.geometry.group,
            shared_ids=len(first.ids.keys() & second.ids.keys()),
            first_fertility=first.geometry.fertility,
            second_fertility=second.geometry.fertility,
            measures=compare_groups(first, second, options),
        )
        for language, scripts in by_language.items()
        for first, second in combinations(sorted(scripts, key=_latin_first), 2)
    )


def _latin_first(script: ComparedGroup) -> tuple[bool, str]:
    return not script.geometry.group.endswith("_Latn"), script.geometry.group


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryReport(JsonRecord):
    """The geometry of a network's states on some texts.

    Attributes:
        sample: Rows that intrinsic dimension is estimated from, the same in every group, layer
            and network; None where no group has enough.
        sample_set_by: The group and layer that have no more rows.
        groups: Of the network that is studied.
        untrained: The same groups of a network of the same shape with fresh weights; empty
            where there was none.
        pairs: One language in two scripts.
        contrasts: Trained less untrained, and as written less scrambled.
    """

    reference: str | None
    n_layers: int
    dim: int
    sample: int | None
    sample_set_by: str
    options: GeometryOptions
    groups: tuple[GroupGeometry, ...]
    untrained: tuple[GroupGeometry, ...]
    pairs: tuple[ScriptPair, ...]
    contrasts: tuple[Contrast, ...]


def geometry_study(
    states: Iterable[TokenStates],
    texts: Sequence[Text],
    *,
    untrained: Iterable[TokenStates] | None = None,
    reference: str | None = None,
    options: GeometryOptions | None = None,
    tokenize: Tokenize | None = None,
    unknown: int | None = None,
) -> GeometryReport:
    """Intrinsic dimension, anisotropy, linearity, divergence from `reference`, fertility, pairs.

    Peak, for G groups, L layers and width d: L·G·d·(32·d + 4·keep) bytes, and 4·L·d bytes for
    each parallel text with a reference, with `padded_texts` of each group whole; twice that with
    an untrained network. The 32·d is needed by the method `gram` only. Above 8 GiB linearity is
    left out, which needs half of the 32·d; a study that does not fit then is refused.

    Args:
        states: Of `texts`, as `token_states` yields them; they are read once.
        untrained: Of the same texts, by a network of the same shape with fresh weights.
        reference: A group that the others are compared with, over texts of the same id.
        tokenize: For fertility.
        unknown: Id of the tokenizer's unknown token.

    Raises:
        StudyError: no such reference, no tokens, states not finite or too large.
    """
    options = options or GeometryOptions()
    sources = [states] if untrained is None else [states, untrained]
    collected = [
        CollectedStates(source, texts, reference, options, networks=len(sources))
        for source in sources
    ]
    sample, set_by = _common_sample(collected)
    fertilities = {} if tokenize is None else fertility(texts, tokenize, unknown=unknown)
    studied = _groups(collected[0], reference, options.sample or sample, options, fertilities)
    fresh = [
        group
        for states_of in collected[1:]
        for group in _groups(states_of, reference, options.sample or sample, options, {})
    ]
    return GeometryReport(
        reference=reference,
        n_layers=collected[0].shape[0],
        dim=collected[0].shape[1],
        sample=options.sample or sample,
        sample_set_by="--sample" if options.sample else set_by,
        options=options,
        groups=tuple(group.geometry for group in studied),
        untrained=tuple(group.geometry for group in fresh),
        pairs=compare_scripts(studied, options),
        contrasts=contrasts(studied, fresh, options),
    )


def _groups(
    collected: CollectedStates,
    reference: str | None,
    sample: int | None,
    options: GeometryOptions,
    fertilities: Mapping[str, Fertility],
) -> list[ComparedGroup]:
    """The groups of one network, in order of the texts."""
    divergences = None
    if reference is not None:
        divergences = ReferenceDivergences(collected, reference, options.axes)
    groups = [
        _group(collected, name, divergences, sample, options, fertilities.get(name))
        for name in collected.by_group
    ]
    sentences = {} if divergences is None else divergences.sentences
    return [
        ComparedGroup(geometry=group, states=collected, sentences=sentences) for group in groups
    ]


def _group(
    collected: CollectedStates,
    name: str,
    divergences: ReferenceDivergences | None,
    sample: int | None,
    options: GeometryOptions,
    fertility: Fertility | None,
) -> GroupGeometry:
    """One group in all layers."""
    own = collected.by_group[name]
    blocks = collected.block[own.sample.texts()]

    def layer_geometry(layer: int) -> LayerGeometry:
        rows = own.sample.rows(layer)
        steps = own.step(layer, collected.half) if layer else []
        return LayerGeometry(
            layer=layer,
            tokens=own.n_tokens,
            intrinsic_dimension=intrinsic_dimension(
                rows,
                estimators=options.estimators,
                blocks=blocks,
                distinct=own.distinct()[layer],
                sample=sample,
                seed=options.seed,
            ),
            anisotropy=(
                streamed_anisotropy(pooled(own.moments(layer, collected.half)), own.sums[layer])
                if options.method == "gram"
                else sampled_anisotropy(
                    rows, own.sums[layer], method=options.method, seed=options.seed
                )
            ),
            linearity=layer_linearity(steps) if steps else None,
            divergence=() if divergences is None else divergences.divergences(name, layer),
        )

    layers = tuple(layer_geometry(layer) for layer in range(collected.shape[0]))
    trends = depth_trends(
        [layer.intrinsic_dimension for layer in layers],
        resamples=options.resamples,
        seed=options.seed,
    )
    return GroupGeometry(
        group=name,
        texts=len(collected.index[name]),
        tokens=own.n_tokens,
        fertility=fertility,
        layers=layers,
        trends=trends,
        trends_disagree=trends_disagree(trends),
        notes=tuple(_notes(len(collected.index[name]))),
    )


def _notes(n_texts: int) -> list[str]:
    """What too few texts mean for the numbers."""
    if n_texts == 1:
        return ["one text: its tokens depend on each other; no error and no held-out score"]
    if n_texts < BLOCKS:
        return [f"{n_texts} texts: intrinsic dimension has no error below {BLOCKS} texts"]
    return []


def _common_sample(networks: Sequence[CollectedStates]) -> tuple[int | None, str]:
    """The fewest distinct rows, of clouds that have enough, and where; None if none has."""
    counts = [
        (len(rows), f"{name or 'all texts'}, layer {layer}")
        for collected in networks
        for name, group in collected.by_group.items()
        for layer, rows in enumerate(group.distinct())
    ]
    enough = [(n, where) for n, where in counts if n >= FEWEST_ROWS]
    return min(enough, key=lambda found: found[0]) if enough else (None, "")
