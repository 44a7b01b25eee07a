"""Reports of a rank study, of one model or of a family's mean; nothing here needs SciPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import StudyError
from ..report_json import JsonRecord

SIGNIFICANCE = 0.05
"""P-value above which no dependence on depth is shown."""

Subject = Literal["update", "weights"]


@dataclass(frozen=True, slots=True)
class Parameter(JsonRecord):
    """A fitted value; `standard_error` is None where the points do not determine it."""

    value: float
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw(JsonRecord):
    """A law with the parameters that fit best.

    Attributes:
        law: A name of `laws.LAWS`.
        parameters: By name, linear ones first.
        r_squared: Share of the (weighted) variance that is explained, 0…1.
        rss: Residual sum of squares, with weights of mean 1.
        aicc: Akaike's criterion for small samples, for comparison: no law is chosen by it.
    """

    law: str
    formula: str
    parameters: Mapping[str, Parameter]
    r_squared: float
    rss: float
    aicc: float

    @property
    def values(self) -> tuple[float, ...]:
        """The values of the parameters."""
        return tuple(parameter.value for parameter in self.parameters.values())


@dataclass(frozen=True, slots=True)
class Segments(JsonRecord):
    """Mean ranks of a deep model's first three layers, last three, and those between."""

    first: float | None
    middle: float | None
    last: float | None


@dataclass(frozen=True, slots=True)
class Miss(JsonRecord):
    """A layer (from 0) that a law misses, and by how many standard errors of its mean."""

    layer: int
    standard_errors: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LawChoice(JsonRecord):
    """The law of a curve, or why it has none.

    Attributes:
        points: Depths that were fitted.
        weighted: By the standard errors of means over models.
        pattern: Whether `best` describes the curve.
        reason: Why no law beyond the constant holds; empty where one does.
        best: The law; the best one tried where none holds; None with too few points.
        p_value: Share of the layers' permutations that follow some law as well.
        walk_p_value: Share of random walks that follow some law as well; None where no law was
            chosen before.
        scatter: Standard deviation of the ranks about `best` beyond their known errors.
        fit_p_value: Of `best` against the standard errors alone; None without them.
        misses: Layers that `best` misses by more than two standard errors.
        loo_rmse: Error of `best` where each point is predicted from the others, in ranks.
        constant_loo_rmse: The same of the constant.
        candidates: Every fitted law, by AICc from the best to the worst.
        left_out: Laws with too many parameters for the number of points.
        segments: Of models with nine layers or more.
    """

    points: int
    weighted: bool = False
    pattern: bool
    reason: str
    best: FittedLaw | None = None
    p_value: float | None = None
    walk_p_value: float | None = None
    scatter: float | None = None
    fit_p_value: float | None = None
    misses: tuple[Miss, ...] = ()
    loo_rmse: float | None = None
    constant_loo_rmse: float | None = None
    candidates: tuple[FittedLaw, ...] = ()
    left_out: tuple[str, ...] = ()
    segments: Segments | None = None

    @property
    def verdict(self) -> str:
        """The law's name, `constant`, `step at layer n`, or why there is none of them."""
        if self.best is None or self.p_value is None:
            return "too few points"
        if not self.pattern:
            return "depends on depth, no law" if self.p_value <= SIGNIFICANCE else "no pattern"
        if self.best.law == "step":
            return f"step at layer {self.best.parameters['c'].value:.0f}"
        return self.best.law

    def to_json(self) -> dict[str, Any]:
        """The fields and the verdict."""
        return {"verdict": self.verdict} | JsonRecord.to_json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPoint(JsonRecord):
    """r_θ at one depth: of a matrix, or the mean over a slot's parts or a family's models.

    Attributes:
        layer: From 0, as in slots.
        normalised: rank / min(out, in), 0…1.
        standard_error: Of the mean; None for a single value.
        count: Values in the mean.
        left_out: Values that are zero or rounding, while others are neither.
        valid: Whether the rank counts more than rounding errors.
        reason: Why the point is fitted by no law; empty where it is.
    """

    layer: int
    rank: float
    normalised: float
    standard_error: float | None = None
    count: int = 1
    left_out: int = 0
    valid: bool = True
    reason: str = ""

    @property
    def fitted(self) -> bool:
        """Whether laws are fitted to it: it is neither rounding nor an exact zero."""
        return self.valid and self.rank > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCurve(JsonRecord):
    """r_θ by depth in one role of one stack, and the law that it follows."""

    stack: str
    role: str
    theta: float
    n_layers: int
    points: tuple[RankPoint, ...]
    fit: LawChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRanks(JsonRecord):
    """The numbers of one slot that need no threshold.

    The ranks and the signal are means over the parts, or models, that are not exactly zero.

    Attributes:
        layer: From 0, as in slots.
        shape: (out, in) of one part.
        count: Parts, or models, in the means; 0 where all are exactly zero.
        norm: ‖·‖_F of all parts together; in a family, the models' mean.
        signal_fraction: Share of ‖·‖_F² that storage rounding does not explain, 0…1.
        known_rank: The largest rank of an adapter in this slot; None without adapters.
    """

    stack: str
    layer: int
    role: str
    shape: tuple[int, int]
    count: int
    norm: float
    stable_rank: float
    entropy_rank: float
    signal_fraction: float
    known_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport(JsonRecord):
    """The ranks of one model's matrices.

    Attributes:
        subject: Whether they are ranks of ΔW or of W.
        models: The models that the ranks are of; for one model, its name alone.
        thetas: Shares of energy, ascending.
        depths: Layers of each stack.
        slots: By stack, role and layer.
        curves: By stack, role and θ.
        notes: Sentences on what limits the numbers.
    """

    name: str
    subject: Subject
    models: tuple[str, ...]
    thetas: tuple[float, ...]
    depths: Mapping[str, int]
    slots: tuple[SlotRanks, ...]
    curves: tuple[RankCurve, ...]
    notes: tuple[str, ...]

    def curves_at(self, theta: float) -> tuple[RankCurve, ...]:
        """The curve of each stack and role, in printing order."""
        if theta not in self.thetas:
            known = ", ".join(f"{share:g}" for share in self.thetas)
            raise StudyError(f"{self.name}: no ranks at θ={theta:g}; there are θ={known}")
        return tuple(curve for curve in self.curves if curve.theta == theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRankReport(RankReport):
    """The mean over models of every value that is neither rounding nor an exact zero."""
