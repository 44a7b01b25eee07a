"""The records of a group of texts: its numbers in every layer."""

from __future__ import annotations

from dataclasses import dataclass

from ..report_json import JsonRecord
from .anisotropy import Anisotropy
from .divergence import Divergence, Divergent
from .fertility import Fertility
from .intrinsic_dimension import IntrinsicDimension


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGeometry(JsonRecord):
    """One group in one layer.

    Attributes:
        layer: 0 is the input of the first block, l the output of block l.
        intrinsic_dimension: By estimator, in the order of the options.
        divergence: From the reference, by estimator; empty without a reference and for it.
    """

    layer: int
    tokens: int
    intrinsic_dimension: tuple[IntrinsicDimension, ...]
    anisotropy: Anisotropy
    divergence: tuple[Divergence, ...]

    def divergence_by(self, estimator: Divergent) -> Divergence | None:
        """The result of an estimator; None without a reference."""
        return next((d for d in self.divergence if d.estimator == estimator), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGeometry(JsonRecord):
    """One group in all layers.

    Attributes:
        tokens: Tokens that were studied, the same in every layer.
        fertility: None without a tokenizer.
    """

    group: str
    texts: int
    tokens: int
    fertility: Fertility | None
    layers: tuple[LayerGeometry, ...]
