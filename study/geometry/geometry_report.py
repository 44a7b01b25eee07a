"""The geometry study: every group's numbers in every layer, and how groups and networks differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from operator import attrgetter, itemgetter, methodcaller
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t as student

from ...arrays import Float64
from ...results import JsonRecord, Row
from ..texts import Text
from . import moments
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

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates


def _divergences(
    collected: CollectedStates, name: str, layer: int, floor: float | None
) -> tuple[moments.Divergence, ...]:
    """A group's divergence from the reference by each estimator; none of the reference from itself,
    of whose halves `floor` is."""
    reference = collected.reference
    if reference is None or name == reference:
        return ()
    own, theirs = (collected.by_group[group] for group in (name, reference))
    scale = theirs.sums[layer].rms_coordinate
    if scale == 0.0:
        zero = "the reference's states are all zero"
        return tuple(moments.Divergence(estimator=e, reason=zero) for e in moments.DIVERGENCES)
    clouds = (moments.pooled(group.moments(layer)) for group in (own, theirs))
    gauss = moments.gaussian_divergence(*clouds, floor=floor, axes=collected.options.axes)
    return _by_mean(collected, name, layer, scale), gauss


def _by_mean(collected: CollectedStates, name: str, layer: int, scale: float) -> moments.Divergence:
    """Between mean vectors: the mean over all parallel texts with tokens on both sides."""
    reference = str(collected.reference)
    own, theirs = (collected.by_group[group] for group in (name, reference))
    numbers = collected.index[reference]
    pairs = {}
    for i, number in collected.index[name].items():
        mean = own.mean_of(number, layer)
        other = theirs.mean_of(numbers[i], layer) if i in numbers else None
        if mean is not None and other is not None:
            pairs[i] = mean, other
    if not pairs:
        reason = "no text shares its id with the reference"
        return moments.Divergence(estimator="softmax-mean", sentences=0, reason=reason)
    to, back = moments.softmax_mean(*map(np.stack, zip(*pairs.values(), strict=True)), scale=scale)
    return moments.Divergence(
        estimator="softmax-mean",
        to_reference=float(to.mean()),
        from_reference=float(back.mean()),
        sentences=len(pairs),
        scale=scale,
        by_text=dict(zip(pairs, to.tolist(), strict=True)),
    )


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
    anisotropy: moments.Anisotropy
    linearity: moments.LayerLinearity | None
    divergence: tuple[moments.Divergence, ...]

    def linear(self, score: str) -> float | None:
        """A score of the step from the layer before, such as `held_out_stream`, where there is."""
        found: float | None = getattr(self.linearity, score, None)
        return found

    def divergence_by(self, estimator: moments.Divergent) -> moments.Divergence | None:
        """The result of an estimator; None without a reference."""
        return next((d for d in self.divergence if d.estimator == estimator), None)

    def diverges(self, estimator: moments.Divergent, key: str) -> float | None:
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
        ids: Of its texts, with their numbers.
    """

    group: str
    texts: int
    tokens: int
    fertility: Row | None
    layers: tuple[LayerGeometry, ...]
    notes: tuple[str, ...]
    ids: Mapping[str, int] = field(default_factory=dict, repr=False)


FEWEST_SENTENCES = 10
"""With fewer, a bootstrap over sentences says little about other sentences."""


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


def compare_groups(
    first: GroupGeometry, second: GroupGeometry, options: GeometryOptions
) -> list[Row]:
    """First group − second: by `measure` and `estimator`, the `layers` in which both have a number,
    and the `sentences`, texts that both have, where the interval is a bootstrap over them.

    A layer's `low` and `high` are 95 %: by blocks of texts for intrinsic dimension, by a bootstrap
    over texts for the divergence of softmaxes; None for fewer than ten texts, and for other
    measures.
    """
    return [measure for measure in _measures(first, second, options) if measure["layers"]]


def _measures(
    first: GroupGeometry, second: GroupGeometry, options: GeometryOptions
) -> Iterator[Row]:
    pairs = list(zip(first.layers, second.layers, strict=True))
    paired = first.ids.keys() == second.ids.keys()
    for place, of_dimension in enumerate(ESTIMATORS):
        layers = []
        for a, b in pairs:
            ours, theirs = a.intrinsic_dimension[place], b.intrinsic_dimension[place]
            if ours.dimension is not None and theirs.dimension is not None:
                gap = ours.dimension - theirs.dimension
                bounds = _dimension_interval(gap, ours, theirs, paired=paired)
                layers.append(_difference(a.layer, gap, bounds))
        yield _measure("intrinsic dimension", of_dimension, layers)
    for measure, estimator, value in WITHOUT_INTERVAL:
        values = ((a.layer, value(a), value(b)) for a, b in pairs)
        layers = [
            _difference(layer, own - other)
            for layer, own, other in values
            if own is not None and other is not None
        ]
        yield _measure(measure, estimator, layers)
    yield from _softmax(pairs, options)


def _measure(
    measure: str, estimator: str, layers: Sequence[Row], sentences: int | None = None
) -> Row:
    row = {"measure": measure, "estimator": estimator, "layers": layers}
    return row | {"sentences": sentences}


def _difference(layer: int, difference: float, bounds: tuple[float, float] | None = None) -> Row:
    low, high = bounds or (None, None)
    return {"layer": layer, "difference": difference, "low": low, "high": high}


def _dimension_interval(
    difference: float, ours: IntrinsicDimension, theirs: IntrinsicDimension, *, paired: bool
) -> tuple[float, float] | None:
    """With the same texts the blocks are paired, else the variances are added."""
    if not (ours.blocks and theirs.blocks):
        return None
    if paired:
        gaps = [a - b for a, b in zip(ours.blocks, theirs.blocks, strict=True)]
        return interval(difference, gaps)
    errors = (ours.standard_error or 0.0, theirs.standard_error or 0.0)
    reach = float(student.ppf(0.5 + CONFIDENCE / 2, BLOCKS - 1) * np.hypot(*errors))
    return difference - reach, difference + reach


def _softmax(
    pairs: Sequence[tuple[LayerGeometry, LayerGeometry]], options: GeometryOptions
) -> Iterator[Row]:
    """KL to the reference of the sentences that all three have."""
    layers, shared = [], []
    for pair in pairs:
        found = [layer.divergence_by("softmax-mean") for layer in pair]
        ours, theirs = ({} if one is None else one.by_text for one in found)
        shared = [i for i in ours if i in theirs]
        if not shared:
            return
        gaps = np.array([ours[i] - theirs[i] for i in shared], dtype=np.float64)
        bounds = bootstrap_interval(gaps, options.resamples, options.seed)
        layers.append(_difference(pair[0].layer, float(gaps.mean()), bounds))
    yield _measure("KL to reference", "softmax-mean", layers, len(shared))


def contrasts(
    trained: Sequence[GroupGeometry], untrained: Sequence[GroupGeometry], options: GeometryOptions
) -> tuple[Row, ...]:
    """Of every group with its untrained one, and with its scrambled one, where they exist."""
    fresh = {group.group: group for group in untrained}
    by_name = {group.group: group for group in trained}
    found = []
    permuted = {scrambled_group(name) for name in by_name}
    for name, group in by_name.items():
        if name in permuted:
            continue
        others = {"untrained": fresh.get(name), "scrambled": by_name.get(scrambled_group(name))}
        for condition, other in others.items():
            if other is not None:
                measures = compare_groups(group, other, options)
                found.append({"condition": condition, "group": name, "measures": measures})
    return tuple(found)


def compare_scripts(groups: Sequence[GroupGeometry], options: GeometryOptions) -> tuple[Row, ...]:
    """Every two groups named `language_ScriptA` and `language_ScriptB`, Latin script first.

    Read their fertilities first: a script that is cut into more tokens, or into unknown tokens,
    differs for that reason already.
    """
    by_language: dict[str, list[GroupGeometry]] = {}
    for group in groups:
        language, _, script = group.group.rpartition("_")
        if language and script and not script.endswith(SCRAMBLED):
            by_language.setdefault(language, []).append(group)
    return tuple(
        {
            "language": language,
            "first": first.group,
            "second": second.group,
            "shared_ids": len(first.ids.keys() & second.ids.keys()),
            "measures": compare_groups(first, second, options),
        }
        for language, scripts in by_language.items()
        for first, second in combinations(
            sorted(scripts, key=lambda script: (not script.group.endswith("_Latn"), script.group)),
            2,
        )
    )


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
        groups=tuple(studied),
        untrained=tuple(fresh),
        pairs=compare_scripts(studied, options),
        contrasts=contrasts(studied, fresh, options),
    )


def _groups(
    collected: CollectedStates, sample: int | None, fertilities: Mapping[str, Row]
) -> list[GroupGeometry]:
    floors: list[float | None] = [None] * collected.shape[0]
    if collected.reference is not None:
        halves = map(collected.by_group[collected.reference].moments, range(len(floors)))
        floors = [moments.gaussian_floor(two, axes=collected.options.axes) for two in halves]
    return [
        _group(name, collected, sample, floors, fertilities.get(name))
        for name in collected.by_group
    ]


def _group(
    name: str,
    collected: CollectedStates,
    sample: int | None,
    floors: Sequence[float | None],
    fertility: Row | None,
) -> GroupGeometry:
    own, n_texts = collected.by_group[name], len(collected.index[name])
    blocks = collected.block[own.sample.texts()]

    def layer_geometry(layer: int) -> LayerGeometry:
        return LayerGeometry(
            layer=layer,
            tokens=own.n_tokens,
            intrinsic_dimension=intrinsic_dimension(
                own.sample.rows(layer),
                blocks=blocks,
                distinct=own.distinct()[layer],
                sample=sample,
                seed=collected.options.seed,
            ),
            anisotropy=moments.anisotropy(moments.pooled(own.moments(layer)), own.sums[layer]),
            linearity=moments.layer_linearity(own.step(layer)) if layer else None,
            divergence=_divergences(collected, name, layer, floors[layer]),
        )

    notes = []
    if n_texts == 1:
        notes = ["one text: its tokens depend on each other; no error and no held-out score"]
    elif n_texts < BLOCKS:
        notes = [f"{n_texts} texts: intrinsic dimension has no error below {BLOCKS} texts"]
    return GroupGeometry(
        group=name,
        texts=n_texts,
        tokens=own.n_tokens,
        fertility=fertility,
        layers=tuple(map(layer_geometry, range(collected.shape[0]))),
        notes=tuple(notes),
        ids=collected.index[name],
    )


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
