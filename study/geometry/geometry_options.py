"""The options of a geometry study."""

from __future__ import annotations

from dataclasses import dataclass

from ..report_json import JsonRecord
from .anisotropy import METHODS, Method
from .divergence import AXES
from .geometry import Geometry
from .intrinsic_dimension import ESTIMATORS, FEWEST_ROWS, Estimator


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryOptions(JsonRecord):
    """The options are part of the report: the same states and options give the same numbers.

    Attributes:
        estimators: Estimators of intrinsic dimension; in the order of the report.
        method: How the largest σ² is computed; every method but `gram` uses the sampled tokens.
        keep: Tokens sampled from each group at random, the same in every layer.
        sample: Rows that intrinsic dimension is estimated from; by default the most that all
            groups and layers with enough of them have.
        axes: Axes of the Gaussian divergence.
        padded_texts: Parallel texts for the padded softmax divergence.
        resamples: Bootstrap resamples of the texts.
        seed: Of everything that is drawn.
    """

    estimators: tuple[Estimator, ...] = ESTIMATORS
    method: Method = Geometry.method
    keep: int = Geometry.keep_tokens
    sample: int | None = None
    axes: int = AXES
    padded_texts: int = 32
    resamples: int = 1000
    seed: int = Geometry.seed

    def __post_init__(self) -> None:
        if not self.estimators or set(self.estimators) - set(ESTIMATORS):
            raise ValueError(f"estimators must be some of {', '.join(ESTIMATORS)}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.keep < FEWEST_ROWS:
            raise ValueError(f"keep must be {FEWEST_ROWS} or more, got {self.keep}")
        if self.sample is not None and not FEWEST_ROWS <= self.sample <= self.keep:
            raise ValueError(f"sample must be {FEWEST_ROWS}…{self.keep} (keep), got {self.sample}")
        if self.axes < 1 or self.padded_texts < 0 or self.resamples < 1:
            raise ValueError("axes and resamples must be 1 or more, padded_texts 0 or more")
