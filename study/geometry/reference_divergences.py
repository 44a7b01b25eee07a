"""The divergences of every group from a reference group, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...arrays import Float32
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
from .group_states import CollectedStates
from .moments import pooled

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
