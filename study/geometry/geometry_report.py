"""The geometry study: every group's numbers in every layer, and its divergence from a reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Float32
from ..report_json import JsonRecord
from ..texts import Text
from .anisotropy import sampled_anisotropy, streamed_anisotropy
from .divergence import (
    DIVERGENCES,
    BothWays,
    Divergence,
    gaussian_divergence,
    gaussian_floor,
    softmax_divergence,
    softmax_mean,
    softmax_padded,
)
from .fertility import Tokenize, fertility
from .geometry_options import GeometryOptions
from .group_geometry import GroupGeometry, LayerGeometry
from .group_states import CollectedStates
from .intrinsic_dimension import (
    FEWEST_ROWS,
    distinct_rows,
    intrinsic_dimension,
)
from .moments import pooled
from .script_pairs import ScriptPair, compare_scripts

if TYPE_CHECKING:
    from ..network import TokenStates

NO_SENTENCES = BothWays(np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryReport(JsonRecord):
    """The geometry of a network's states on some texts.

    Attributes:
        sample: Rows of each draw for intrinsic dimension, the same in every group and layer;
            None where no group has enough.
    """

    reference: str | None
    n_layers: int
    dim: int
    sample: int | None
    options: GeometryOptions
    groups: tuple[GroupGeometry, ...]
    pairs: tuple[ScriptPair, ...]


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
    reference, and 4·L·d bytes for each parallel text, with `padded_texts` of each group whole.
    The 8·d is needed by the method `gram` only. A study above 8 GiB is refused.

    Args:
        states: Of `texts`, as `token_states` yields them; they are read once.
        reference: A group that the others are compared with, over texts of the same id.
        tokenize: For fertility.
        unknown: Id of the tokenizer's unknown token.

    Raises:
        StudyError: no such reference, no tokens, states not finite or too large.
    """
    options = options or GeometryOptions()
    collected = CollectedStates(states, texts, reference, options)
    sample = options.sample or _common_sample(collected)
    comparison = None if reference is None else _Comparison(collected, reference, options.axes)
    fertilities = {} if tokenize is None else fertility(texts, tokenize, unknown=unknown)

    def layer_geometry(name: str, layer: int) -> LayerGeometry:
        own = collected.by_group[name]
        rows = own.sample.rows(layer)
        return LayerGeometry(
            layer=layer,
            tokens=own.n_tokens,
            intrinsic_dimension=intrinsic_dimension(
                rows,
                estimators=options.estimators,
                sample=sample,
                draws=options.draws,
                seed=options.seed,
            ),
            anisotropy=(
                streamed_anisotropy(pooled(own.moments(layer, collected.half)), own.sums[layer])
                if options.method == "gram"
                else sampled_anisotropy(
                    rows, own.sums[layer], method=options.method, seed=options.seed
                )
            ),
            divergence=() if comparison is None else comparison.divergences(name, layer),
        )

    groups = tuple(
        GroupGeometry(
            group=name,
            texts=len(collected.index[name]),
            tokens=own.n_tokens,
            fertility=fertilities.get(name),
            layers=tuple(layer_geometry(name, layer) for layer in range(collected.shape[0])),
        )
        for name, own in collected.by_group.items()
    )
    sentences = {} if comparison is None else comparison.sentences
    return GeometryReport(
        reference=reference,
        n_layers=collected.shape[0],
        dim=collected.shape[1],
        sample=sample,
        options=options,
        groups=groups,
        pairs=compare_scripts(groups, collected.index, sentences, options),
    )


def _common_sample(collected: CollectedStates) -> int | None:
    """Four fifths of the fewest distinct rows, of clouds that have enough; None if none has."""
    distinct = [
        len(distinct_rows(group.sample.rows(layer)))
        for group in collected.by_group.values()
        for layer in range(collected.shape[0])
    ]
    enough = [n for n in distinct if n >= FEWEST_ROWS]
    return max(FEWEST_ROWS, min(enough) * 4 // 5) if enough else None


@dataclass(slots=True)
class _Comparison:
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
