"""The records of a group of texts: its numbers in every layer."""

from __future__ import annotations

from dataclasses import dataclass

from ..report_json import JsonRecord
from .anisotropy import Anisotropy
from .depth_trends import DepthTrend
from .divergence import Divergence, Divergent
from .fertility import Fertility
from .intrinsic_dimension import Estimator, IntrinsicDimension
from .linearity import LayerLinearity


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
