"""The geometry study: every group's numbers in every layer, and how groups and networks differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..report_json import JsonRecord
from ..texts import Text
from .anisotropy import sampled_anisotropy, streamed_anisotropy
from .contrasts import Contrast, contrasts
from .depth_trends import depth_trends, trends_disagree
from .fertility import Fertility, Tokenize, fertility
from .geometry_options import GeometryOptions
from .group_geometry import GroupGeometry, LayerGeometry
from .group_states import CollectedStates
from .intrinsic_dimension import FEWEST_ROWS, intrinsic_dimension
from .linearity import layer_linearity
from .moments import pooled
from .paired_measures import ComparedGroup
from .reference_divergences import ReferenceDivergences
from .script_pairs import ScriptPair, compare_scripts
from .text_blocks import BLOCKS

if TYPE_CHECKING:
    from ..network import TokenStates


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
