"""What came of a geometry study, and its JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .anisotropy import Anisotropy
from .divergence import Divergence, Divergent
from .fertility import Fertility
from .intrinsic_dimension import Estimator, IntrinsicDimension
from .options import GeometryOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGeometry:
    """One group in one layer.

    Attributes:
        layer: 0 is what enters the first block, l what leaves block l.
        intrinsic_dimension: By estimator.
        divergence: From the reference, by estimator; empty without one, and for it itself.
    """

    layer: int
    tokens: int
    intrinsic_dimension: tuple[IntrinsicDimension, ...]
    anisotropy: Anisotropy
    divergence: tuple[Divergence, ...]

    def dimension_by(self, estimator: Estimator) -> IntrinsicDimension | None:
        """What an estimator said, if it was asked."""
        return next((d for d in self.intrinsic_dimension if d.estimator == estimator), None)

    def divergence_by(self, estimator: Divergent) -> Divergence | None:
        """What an estimator said, if there is a reference."""
        return next((d for d in self.divergence if d.estimator == estimator), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGeometry:
    """One group in all layers.

    Attributes:
        tokens: That were studied, in every layer the same.
        fertility: None where no tokenizer was given.
    """

    group: str
    texts: int
    tokens: int
    fertility: Fertility | None
    layers: tuple[LayerGeometry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDifference:
    """First script − second in one layer.

    Attributes:
        low, high: 95 % of the bootstrap over parallel sentences; None for measures of whole
            clouds, or of fewer than ten sentences.
    """

    layer: int
    difference: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedMeasure:
    """One measure of two scripts.

    Attributes:
        estimator: Of the measure, as elsewhere in the report.
        layers: Those in which both have a number.
        mean_difference: Over them.
        sign_test_p: Two-sided, over layers without ties. Layers of one network are not
            independent, so it is smaller than it should be.
        sentences: Parallel ones, where the measure has a number for each.
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
class ScriptPair:
    """One language in two scripts; every difference is first − second.

    Attributes:
        shared_ids: Texts that both have.
        first_fertility, second_fertility: To be read first: a script cut into more tokens, or
            into unknown ones, differs for that reason already.
    """

    language: str
    first: str
    second: str
    shared_ids: int
    first_fertility: Fertility | None
    second_fertility: Fertility | None
    measures: tuple[PairedMeasure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryReport:
    """Geometry of a network's states on some texts.

    Attributes:
        sample: Rows of each draw for intrinsic dimension, the same everywhere; None where no
            group has enough.
    """

    reference: str | None
    n_layers: int
    dim: int
    sample: int | None
    options: GeometryOptions
    groups: tuple[GroupGeometry, ...]
    pairs: tuple[ScriptPair, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields by their names, all the way down."""
        return asdict(self)
