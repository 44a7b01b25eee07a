"""Every group's divergences from the reference, layer by layer."""

from __future__ import annotations

import numpy as np

from .collect import Collected
from .divergence import (
    BothWays,
    Divergence,
    gaussian_divergence,
    gaussian_floor,
    softmax_divergence,
    softmax_mean,
    softmax_padded,
)
from .moments import pooled
from .options import GeometryOptions

EMPTY = BothWays(np.empty(0), np.empty(0))


class Comparison:
    """Of collected groups with one of them.

    Attributes:
        sentences: By (group, layer), of `softmax-mean`: KL(group ‖ reference) of each parallel
            text by its id.
    """

    def __init__(self, found: Collected, reference: str, options: GeometryOptions) -> None:
        self._found, self._reference, self._options = found, reference, options
        self.sentences: dict[tuple[str, int], dict[str, float]] = {}
        self._floors: dict[int, float | None] = {}

    def divergences(self, name: str, layer: int) -> tuple[Divergence, ...]:
        """By each estimator; none of the reference from itself."""
        if name == self._reference:
            return ()
        scale = self._found.by_group[self._reference].sums[layer].rms_coordinate
        if scale == 0.0:
            zero = "the reference's states are all zero"
            return (
                Divergence(estimator="softmax-mean", reason=zero),
                Divergence(estimator="softmax-padded", reason=zero),
                Divergence(estimator="gauss", reason=zero),
            )
        return (
            softmax_divergence("softmax-mean", self._by_mean(name, layer, scale), scale=scale),
            softmax_divergence("softmax-padded", self._padded(name, layer, scale), scale=scale),
            self._gauss(name, layer),
        )

    def _by_mean(self, name: str, layer: int, scale: float) -> BothWays:
        """Between mean vectors, over all parallel texts with tokens on both sides."""
        own, theirs = self._found.by_group[name], self._found.by_group[self._reference]
        numbers = self._found.index[self._reference]
        ids, ours, others = [], [], []
        for i, number in self._found.index[name].items():
            mean = own.mean_of(number, layer)
            other = theirs.mean_of(numbers[i], layer) if i in numbers else None
            if mean is not None and other is not None:
                ids.append(i)
                ours.append(mean)
                others.append(other)
        if not ids:
            return EMPTY
        both = softmax_mean(np.stack(ours), np.stack(others), scale=scale)
        self.sentences[name, layer] = dict(zip(ids, both.forward.tolist(), strict=True))
        return both

    def _padded(self, name: str, layer: int, scale: float) -> BothWays:
        """Between tokens, over the parallel texts that were kept whole."""
        own, theirs = self._found.by_group[name], self._found.by_group[self._reference]
        ours, others = [], []
        for i in self._found.padded[name]:
            rows = own.tokens_of(self._found.index[name][i], layer)
            other = theirs.tokens_of(self._found.index[self._reference][i], layer)
            if rows is not None and other is not None:
                ours.append(rows)
                others.append(other)
        return softmax_padded(ours, others, scale=scale) if ours else EMPTY

    def _gauss(self, name: str, layer: int) -> Divergence:
        half, axes = self._found.half, self._options.axes
        halves = self._found.by_group[self._reference].moments(layer, half)
        if layer not in self._floors:
            self._floors[layer] = gaussian_floor(halves, axes=axes)
        own = pooled(self._found.by_group[name].moments(layer, half))
        return gaussian_divergence(own, pooled(halves), floor=self._floors[layer], axes=axes)
