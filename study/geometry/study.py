"""The geometry of a network's states, layer by layer and group by group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..texts import Text
from .anisotropy import Anisotropy, sampled_anisotropy, streamed_anisotropy
from .collect import Collected, GroupStates, collect
from .divergence import (
    BothWays,
    Divergence,
    gaussian_divergence,
    softmax_divergence,
    softmax_mean,
    softmax_padded,
)
from .fertility import Fertility, Tokenize, fertility
from .intrinsic_dimension import FEWEST_ROWS, intrinsic_dimension
from .moments import pooled
from .neighbours import distinct_rows
from .options import GeometryOptions
from .pairs import compare_scripts
from .report import GeometryReport, GroupGeometry, LayerGeometry

if TYPE_CHECKING:
    from ..network import TokenStates

EMPTY = BothWays(np.empty(0), np.empty(0))


def geometry_study(
    states: Iterable[TokenStates],
    texts: Sequence[Text],
    *,
    reference: str | None = None,
    options: GeometryOptions | None = None,
    tokenize: Tokenize | None = None,
    unknown: int | None = None,
) -> GeometryReport:
    """Intrinsic dimension, anisotropy, divergence from `reference`, fertility, script pairs.

    Peak, for G groups, L layers and width d: L·G·d·(8·d + 4·keep) bytes, 8·L·d² more with a
    reference, and of each parallel text 4·L·d bytes, `padded_texts` of each group whole; the
    8·d only with the method `gram`. Above 8 GiB it is refused.

    Args:
        states: Of `texts`, as `token_states` yields them; read once.
        reference: A group that the others are compared with, over texts of the same id.
        tokenize: For fertility.
        unknown: Id of the tokenizer's unknown token.

    Raises:
        StudyError: no such reference, no tokens, states not finite or too large.
    """
    options = options or GeometryOptions()
    found = collect(states, texts, reference, options)
    sample = options.sample or _common_sample(found)
    cut = fertility(texts, tokenize, unknown=unknown) if tokenize is not None else {}
    sentences = _sentence_values(found, reference)
    groups = tuple(
        _group(name, found, reference, sample, sentences, cut.get(name), options)
        for name in found.by_group
    )
    forward = {
        where: dict(zip(ids, both.forward.tolist(), strict=True))
        for where, (ids, both) in sentences.items()
    }
    return GeometryReport(
        reference=reference,
        n_layers=found.shape[0],
        dim=found.shape[1],
        sample=sample,
        options=options,
        groups=groups,
        pairs=compare_scripts(groups, found.index, forward, options),
    )


def _group(
    name: str,
    found: Collected,
    reference: str | None,
    sample: int | None,
    sentences: Mapping[tuple[str, int], tuple[list[str], BothWays]],
    cut: Fertility | None,
    options: GeometryOptions,
) -> GroupGeometry:
    own = found.by_group[name]
    layers = []
    for layer in range(found.shape[0]):
        divergence: tuple[Divergence, ...] = ()
        if reference is not None and name != reference:
            means = sentences[name, layer][1]
            divergence = _divergence(name, found, reference, layer, means, options)
        layers.append(
            LayerGeometry(
                layer=layer,
                tokens=own.n_tokens,
                intrinsic_dimension=intrinsic_dimension(
                    own.kept.rows(layer),
                    estimators=options.estimators,
                    sample=sample,
                    draws=options.draws,
                    seed=options.seed,
                ),
                anisotropy=_anisotropy(own, found, layer, options),
                divergence=divergence,
            )
        )
    return GroupGeometry(
        group=name,
        texts=len(found.index[name]),
        tokens=own.n_tokens,
        fertility=cut,
        layers=tuple(layers),
    )


def _common_sample(found: Collected) -> int | None:
    """Four fifths of the fewest distinct rows, among those that are enough; None if none are."""
    distinct = [
        len(distinct_rows(group.kept.rows(layer)))
        for group in found.by_group.values()
        for layer in range(found.shape[0])
    ]
    enough = [n for n in distinct if n >= FEWEST_ROWS]
    return max(FEWEST_ROWS, min(enough) * 4 // 5) if enough else None


def _anisotropy(
    own: GroupStates, found: Collected, layer: int, options: GeometryOptions
) -> Anisotropy:
    if options.method == "gram":
        return streamed_anisotropy(pooled(own.moments(layer, found.half)), own.sums[layer])
    return sampled_anisotropy(
        own.kept.rows(layer), own.sums[layer], method=options.method, seed=options.seed
    )


def _divergence(
    name: str,
    found: Collected,
    reference: str,
    layer: int,
    means: BothWays,
    options: GeometryOptions,
) -> tuple[Divergence, ...]:
    """By all three estimators."""
    own, theirs = found.by_group[name], found.by_group[reference]
    scale = theirs.sums[layer].rms_coordinate
    reason = "" if scale > 0 else "the reference's states are all zero"
    return (
        softmax_divergence("softmax-mean", means, scale=scale, reason=reason),
        softmax_divergence(
            "softmax-padded", _padded(name, found, reference, layer), scale=scale, reason=reason
        ),
        gaussian_divergence(
            pooled(own.moments(layer, found.half)),
            theirs.moments(layer, found.half),
            axes=options.axes,
        ),
    )


def _sentence_values(
    found: Collected, reference: str | None
) -> dict[tuple[str, int], tuple[list[str], BothWays]]:
    """By (group, layer): ids of sentences with tokens on both sides, and their divergences."""
    values: dict[tuple[str, int], tuple[list[str], BothWays]] = {}
    if reference is None:
        return values
    theirs = found.by_group[reference]
    for name, own in found.by_group.items():
        for layer in range(found.shape[0]) if name != reference else ():
            scale = theirs.sums[layer].rms_coordinate
            ids, ours, others = [], [], []
            for i, number in found.index[name].items():
                mean = own.mean_of(number, layer)
                other = theirs.mean_of(found.index[reference].get(i, -1), layer)
                if mean is not None and other is not None:
                    ids.append(i)
                    ours.append(mean)
                    others.append(other)
            usable = bool(ids) and scale > 0
            both = softmax_mean(np.stack(ours), np.stack(others), scale=scale) if usable else EMPTY
            values[name, layer] = (ids if usable else [], both)
    return values


def _padded(name: str, found: Collected, reference: str, layer: int) -> BothWays:
    own, theirs = found.by_group[name], found.by_group[reference]
    scale = theirs.sums[layer].rms_coordinate
    ours, others = [], []
    for i in found.padded[name] if scale > 0 else ():
        rows = own.tokens_of(found.index[name][i], layer)
        other = theirs.tokens_of(found.index[reference][i], layer)
        if rows is not None and other is not None:
            ours.append(rows)
            others.append(other)
    return softmax_padded(ours, others, scale=scale) if ours else EMPTY
