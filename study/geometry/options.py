"""What a geometry study is made with."""

from __future__ import annotations

from dataclasses import dataclass, field

from .anisotropy import METHODS, Method
from .divergence import AXES
from .intrinsic_dimension import ESTIMATORS, FEWEST_ROWS, Estimator


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryOptions:
    """Kept in the report: with the same states, the same options give the same numbers."""

    estimators: tuple[Estimator, ...] = field(
        default=ESTIMATORS,
        metadata={"help": "Estimators of intrinsic dimension; the first is drawn."},
    )
    method: Method = field(
        default="gram",
        metadata={"help": "How the largest σ² is found; all but gram by the kept tokens only."},
    )
    keep: int = field(
        default=2000,
        metadata={"help": "Tokens kept of each group, at random, the same in every layer."},
    )
    sample: int | None = field(
        default=None,
        metadata={
            "help": "Rows of each draw for intrinsic dimension; by default the most that all "
            "groups and layers can draw as four fifths of their distinct rows."
        },
    )
    draws: int = field(default=5, metadata={"help": "Draws for intrinsic dimension, 5 or more."})
    axes: int = field(default=AXES, metadata={"help": "Axes of the Gaussian divergence."})
    padded_texts: int = field(
        default=32, metadata={"help": "Parallel texts for the padded softmax divergence."}
    )
    resamples: int = field(
        default=1000, metadata={"help": "Bootstrap resamples of the sentences of two scripts."}
    )
    seed: int = field(default=0, metadata={"help": "Of everything that is drawn."})

    def __post_init__(self) -> None:
        if not self.estimators or set(self.estimators) - set(ESTIMATORS):
            raise ValueError(f"estimators must be some of {', '.join(ESTIMATORS)}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.keep < FEWEST_ROWS:
            raise ValueError(f"keep must be {FEWEST_ROWS} or more, got {self.keep}")
        if self.sample is not None and not FEWEST_ROWS <= self.sample <= self.keep:
            raise ValueError(f"sample must be {FEWEST_ROWS}…{self.keep} (keep), got {self.sample}")
        if self.draws < 5:
            raise ValueError(f"draws must be 5 or more, got {self.draws}")
        if self.axes < 1 or self.padded_texts < 0 or self.resamples < 1:
            raise ValueError("axes and resamples must be 1 or more, padded_texts 0 or more")
