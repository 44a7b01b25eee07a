"""The geometry study: every group's numbers in every layer, and how groups and networks differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, starmap
from operator import attrgetter, itemgetter, methodcaller
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t as student

from ...arrays import Float64
from ...results import JsonRecord, Row
from ..texts import Text
from .group_states import (
    SCRAMBLED,
    CollectedStates,
    GeometryOptions,
    Tokenize,
    fertility,
    scrambled_group,
)
from .intrinsic_dimension import (
    BLOCKS,
    CONFIDENCE,
    ESTIMATORS,
    FEWEST_ROWS,
    IntrinsicDimension,
    interval,
    intrinsic_dimension,
)
from .moments import (
    DIVERGENCES,
    Anisotropy,
    Divergence,
    Divergent,
    LayerLinearity,
    anisotropy,
    gaussian_divergence,
    gaussian_floor,
    layer_linearity,
    pooled,
    softmax_mean,
)

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates


@dataclass(slots=True)
class ReferenceDivergences:
    """The divergences of all groups from the reference, layer by layer.

    Attributes:
        sentences: By (group, layer), the `softmax-mean` KL(group ‖ reference) of each parallel
            text by its id.
    """

    collected: CollectedStates
    sentences: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    floors: dict[int, float | None] = field(default_factory=dict)

    def divergences(self, name: str, layer: int) -> tuple[Divergence, ...]:
        """The divergence by each estimator; none of the reference from itself."""
        reference = self.collected.reference
        if reference is None or name == reference:
            return ()
        scale = self.collected.by_group[reference].sums[layer].rms_coordinate
        if scale == 0.0:
            zero = "the reference's states are all zero"
            return tuple(Divergence(estimator=estimator, reason=zero) for estimator in DIVERGENCES)
        by_mean = self._by_mean(name, reference, layer, scale)
        return by_mean, self._gauss(name, reference, layer)

    def _by_mean(self, name: str, reference: str, layer: int, scale: float) -> Divergence:
        """Between mean vectors: the mean over all parallel texts with tokens on both sides."""
        own, theirs = (self.collected.by_group[group] for group in (name, reference))
        numbers = self.collected.index[reference]
        pairs = {}
        for i, number in self.collected.index[name].items():
            mean = own.mean_of(number, layer)
            other = theirs.mean_of(numbers[i], layer) if i in numbers else None
            if mean is not None and other is not None:
                pairs[i] = mean, other
        if not pairs:
            reason = "no text shares its id with the reference"
            return Divergence(estimator="softmax-mean", sentences=0, reason=reason)
        to, back = softmax_mean(*map(np.stack, zip(*pairs.values(), strict=True)), scale=scale)
        self.sentences[name, layer] = dict(zip(pairs, to.tolist(), strict=True))
        return Divergence(
            estimator="softmax-mean",
            to_reference=float(to.mean()),
            from_reference=float(back.mean()),
            sentences=len(pairs),
            scale=scale,
        )

    def _gauss(self, name: str, reference: str, layer: int) -> Divergence:
        own, halves = (self.collected.by_group[g].moments(layer) for g in (name, reference))
        axes = self.collected.options.axes
        if layer not in self.floors:
            self.floors[layer] = gaussian_floor(halves, axes=axes)
        floor = self.floors[layer]
        return gaussian_divergence(pooled(own), pooled(halves), floor=floor, axes=axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGeometry(JsonRecord):
    """One group in one layer.

    Attributes:
        layer: 0 is the input of the first block, l the output of block l.
        intrinsic_dimension: By estimator.
        linearity: Of the step from the layer before; None for layer 0.
        divergence: From the reference, by estimator; empty without a reference and for it.
    """

    layer: int
    tokens: int
    intrinsic_dimension: tuple[IntrinsicDimension, ...]
    anisotropy: Anisotropy
    linearity: LayerLinearity | None
    divergence: tuple[Divergence, ...]

    def linear(self, score: str) -> float | None:
        """A score of the step from the layer before, such as `held_out_stream`, where there is."""
        found: float | None = getattr(self.linearity, score, None)
        return found

    def divergence_by(self, estimator: Divergent) -> Divergence | None:
        """The result of an estimator; None without a reference."""
        return next((d for d in self.divergence if d.estimator == estimator), None)

    def diverges(self, estimator: Divergent, key: str) -> float | None:
        """A number of its result, such as `jeffreys`, where there is one."""
        found: float | None = getattr(self.divergence_by(estimator), key, None)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGeometry(JsonRecord):
    """One group in all layers.

    Attributes:
        tokens: Tokens that were studied, the same in every layer.
        fertility: None without a tokenizer, and of an untrained network.
        notes: What too few texts mean for the numbers.
    """

    group: str
    texts: int
    tokens: int
    fertility: Row | None
    layers: tuple[LayerGeometry, ...]
    notes: tuple[str, ...]


FEWEST_SENTENCES = 10
"""With fewer, a bootstrap over sentences says little about other sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedGroup:
    """One group of one network; `sentences` as of `ReferenceDivergences`."""

    geometry: GroupGeometry
    states: CollectedStates
    sentences: Mapping[tuple[str, int], Mapping[str, float]]

    @property
    def ids(self) -> Mapping[str, int]:
        return self.states.index[self.geometry.group]


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


WITHOUT_INTERVAL: tuple[tuple[str, str, Callable[[LayerGeometry], float | None]], ...] = (
    ("anisotropy, centred", "gram", attrgetter("anisotropy.centred")),
    ("anisotropy, uncentred", "gram", attrgetter("anisotropy.uncentred")),
    ("mean cosine", "exact", attrgetter("anisotropy.mean_cosine")),
    ("linearity, stream", "least squares", methodcaller("linear", "held_out_stream")),
    ("linearity, contribution", "least squares", methodcaller("linear", "held_out_contribution")),
    ("KL to reference", "gauss", methodcaller("diverges", "gauss", "to_reference")),
)
"""(measure, estimator, number of a layer) of what has no interval of its difference."""


def compare_groups(first: ComparedGroup, second: ComparedGroup) -> list[Row]:
    """First group − second: by `measure` and `estimator`, the `layers` in which both have a number,
    and the `sentences`, texts that both have, where the interval is a bootstrap over them.

    A layer's `low` and `high` are 95 %: by blocks of texts for intrinsic dimension, by a bootstrap
    over texts for the divergence of softmaxes; None for fewer than ten texts, and for other
    measures.
    """
    return [measure for measure in _measures(first, second) if measure["layers"]]


def _measures(first: ComparedGroup, second: ComparedGroup) -> Iterator[Row]:
    yield from _dimensions(first, second)
    for measure, estimator, value in WITHOUT_INTERVAL:
        yield _measure(measure, estimator, starmap(_difference, _gaps(first, second, value)))
    yield from _softmax(first, second)


def _measure(
    measure: str, estimator: str, layers: Iterable[Row], sentences: int | None = None
) -> Row:
    row = {"measure": measure, "estimator": estimator, "layers": list(layers)}
    return row | {"sentences": sentences}


def _difference(layer: int, difference: float, bounds: tuple[float, float] | None = None) -> Row:
    low, high = bounds or (None, None)
    return {"layer": layer, "difference": difference, "low": low, "high": high}


def _gaps(
    first: ComparedGroup, second: ComparedGroup, value: Callable[[LayerGeometry], float | None]
) -> Iterator[tuple[int, float]]:
    """(layer, difference) of a measure, where both have it."""
    for a, b in zip(first.geometry.layers, second.geometry.layers, strict=True):
        ours, theirs = value(a), value(b)
        if ours is not None and theirs is not None:
            yield a.layer, ours - theirs


def _dimensions(first: ComparedGroup, second: ComparedGroup) -> Iterator[Row]:
    """With the same texts the blocks are paired, else the variances are added."""
    paired = first.ids.keys() == second.ids.keys()
    for place, estimator in enumerate(ESTIMATORS):
        layers = []
        for a, b in zip(first.geometry.layers, second.geometry.layers, strict=True):
            ours, theirs = a.intrinsic_dimension[place], b.intrinsic_dimension[place]
            if ours.dimension is not None and theirs.dimension is not None:
                gap = ours.dimension - theirs.dimension
                bounds = _dimension_interval(gap, ours, theirs, paired=paired)
                layers.append(_difference(a.layer, gap, bounds))
        yield _measure("intrinsic dimension", estimator, layers)


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


def _softmax(first: ComparedGroup, second: ComparedGroup) -> Iterator[Row]:
    """KL to the reference of the sentences that all three have."""
    options = first.states.options
    layers, shared = [], []
    for layer in range(len(first.geometry.layers)):
        ours, theirs = (
            group.sentences.get((group.geometry.group, layer), {}) for group in (first, second)
        )
        shared = [i for i in ours if i in theirs]
        if not shared:
            return
        gaps = np.array([ours[i] - theirs[i] for i in shared], dtype=np.float64)
        bounds = bootstrap_interval(gaps, options.resamples, options.seed)
        layers.append(_difference(layer, float(gaps.mean()), bounds))
    yield _measure("KL to reference", "softmax-mean", layers, len(shared))


def contrasts(
    trained: Sequence[ComparedGroup], untrained: Sequence[ComparedGroup]
) -> tuple[Row, ...]:
    """Of every group with its untrained one, and with its scrambled one, where they exist."""
    fresh = {group.geometry.group: group for group in untrained}
    by_name = {group.geometry.group: group for group in trained}
    found = []
    permuted = {scrambled_group(name) for name in by_name}
    for name, group in by_name.items():
        if name in permuted:
            continue
        others = {"untrained": fresh.get(name), "scrambled": by_name.get(scrambled_group(name))}
        for condition, other in others.items():
            if other is not None:
                measures = compare_groups(group, other)
                found.append({"condition": condition, "group": name, "measures": measures})
    return tuple(found)


def compare_scripts(groups: Sequence[ComparedGroup]) -> tuple[Row, ...]:
    """Every two groups named `language_ScriptA` and `language_ScriptB`, Latin script first.

    Read their fertilities first: a script that is cut into more tokens, or into unknown tokens,
    differs for that reason already.
    """
    by_language: dict[str, list[ComparedGroup]] = {}
    for group in groups:
        language, _, script = group.geometry.group.rpartition("_")
        if language and script and not script.endswith(SCRAMBLED):
            by_language.setdefault(language, []).append(group)
    return tuple(
        {
            "language": language,
            "first": first.geometry.group,
            "second": second.geometry.group,
            "shared_ids": len(first.ids.keys() & second.ids.keys()),
            "measures": compare_groups(first, second),
        }
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
        untrained: The same groups of a network of the same shape with fresh weights, if any.
        pairs: Of one language in two scripts.
        contrasts: Of a group as it is, less itself under a condition.
    """

    reference: str | None
    n_layers: int
    dim: int
    sample: int | None
    sample_set_by: str
    options: GeometryOptions
    groups: tuple[GroupGeometry, ...]
    untrained: tuple[GroupGeometry, ...]
    pairs: tuple[Row, ...]
    contrasts: tuple[Row, ...]


def geometry_study(
    states: Iterable[TokenStates],
    texts: Sequence[Text],
    *,
    untrained: Iterable[TokenStates] | None = None,
    reference: str | None = None,
    options: GeometryOptions,
    tokenize: Tokenize | None = None,
    unknown: int | None = None,
) -> GeometryReport:
    """Intrinsic dimension, anisotropy, linearity, divergence from `reference`, fertility, pairs.

    Peak, for G groups, L layers and width d: L·G·d·(32·d + 4·keep) bytes, and 4·L·d bytes for
    each parallel text with a reference; twice that with an untrained network. Above 8 GiB the
    sampled tokens stand for all of them; a study that does not fit then is refused.

    Args:
        states: Of `texts`, as `token_states` yields them; they are read once.
        untrained: Of the same texts, by a network of the same shape with fresh weights.
        reference: A group that the others are compared with, over texts of the same id.
        tokenize, unknown: For fertility: the tokenizer, and the id of its unknown token.

    Raises:
        StudyError: no such reference, no tokens, states not finite or too large.
    """
    sources = [states] if untrained is None else [states, untrained]
    collected = [
        CollectedStates(source, texts, reference, options, networks=len(sources))
        for source in sources
    ]
    sample, set_by = _common_sample(collected)
    fertilities = {} if tokenize is None else fertility(texts, tokenize, unknown=unknown)
    studied = _groups(collected[0], sample, fertilities)
    fresh = [group for states_of in collected[1:] for group in _groups(states_of, sample, {})]
    return GeometryReport(
        reference=reference,
        n_layers=collected[0].shape[0],
        dim=collected[0].shape[1],
        sample=sample,
        sample_set_by=set_by,
        options=options,
        groups=tuple(group.geometry for group in studied),
        untrained=tuple(group.geometry for group in fresh),
        pairs=compare_scripts(studied),
        contrasts=contrasts(studied, fresh),
    )


def _groups(
    collected: CollectedStates, sample: int | None, fertilities: Mapping[str, Row]
) -> list[ComparedGroup]:
    divergences = ReferenceDivergences(collected)
    return [
        ComparedGroup(
            geometry=_group(name, divergences, sample, fertilities.get(name)),
            states=collected,
            sentences=divergences.sentences,
        )
        for name in collected.by_group
    ]


def _group(
    name: str, divergences: ReferenceDivergences, sample: int | None, fertility: Row | None
) -> GroupGeometry:
    collected = divergences.collected
    own, options = collected.by_group[name], collected.options
    blocks = collected.block[own.sample.texts()]

    def layer_geometry(layer: int) -> LayerGeometry:
        rows = own.sample.rows(layer)
        return LayerGeometry(
            layer=layer,
            tokens=own.n_tokens,
            intrinsic_dimension=intrinsic_dimension(
                rows,
                blocks=blocks,
                distinct=own.distinct()[layer],
                sample=sample,
                seed=options.seed,
            ),
            anisotropy=anisotropy(pooled(own.moments(layer)), own.sums[layer]),
            linearity=layer_linearity(own.step(layer)) if layer else None,
            divergence=divergences.divergences(name, layer),
        )

    layers = tuple(layer_geometry(layer) for layer in range(collected.shape[0]))
    return GroupGeometry(
        group=name,
        texts=len(collected.index[name]),
        tokens=own.n_tokens,
        fertility=fertility,
        layers=layers,
        notes=tuple(_notes(len(collected.index[name]))),
    )


def _notes(n_texts: int) -> list[str]:
    if n_texts == 1:
        return ["one text: its tokens depend on each other; no error and no held-out score"]
    if n_texts < BLOCKS:
        return [f"{n_texts} texts: intrinsic dimension has no error below {BLOCKS} texts"]
    return []


def _common_sample(networks: Sequence[CollectedStates]) -> tuple[int | None, str]:
    """The fewest distinct rows, of clouds that have enough, and where; None if none has."""
    enough = [
        (len(rows), f"{name or 'all texts'}, layer {layer}")
        for collected in networks
        for name, group in collected.by_group.items()
        for layer, rows in enumerate(group.distinct())
        if len(rows) >= FEWEST_ROWS
    ]
    return min(enough, key=itemgetter(0)) if enough else (None, "")
