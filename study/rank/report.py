"""What a rank study found, of one model or of a family's mean, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ...errors import StudyError
from ...records import ROLES, STACKS, Slot
from .fitted import LawChoice

Subject = Literal["update", "weights"]
Report = TypeVar("Report", bound="RankReport")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPoint:
    """r_θ at one depth: of a matrix, or the mean over a slot's parts or a family's models.

    Attributes:
        layer: From 0, as in slots.
        normalised: rank / min(out, in), 0…1.
        standard_error: Of the mean; None where one value stands alone.
        count: Values in the mean.
        left_out: Values that are zero or rounding, while others are neither.
        valid: Not a count of rounding errors.
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
        """Whether laws are fitted to it: neither rounding nor an exact zero."""
        return self.valid and self.rank > 0

    def to_json(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "rank": self.rank,
            "normalised": self.normalised,
            "standard_error": self.standard_error,
            "count": self.count,
            "left_out": self.left_out,
            "valid": self.valid,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RankPoint:
        error = document["standard_error"]
        return cls(
            layer=int(document["layer"]),
            rank=float(document["rank"]),
            normalised=float(document["normalised"]),
            standard_error=None if error is None else float(error),
            count=int(document["count"]),
            left_out=int(document["left_out"]),
            valid=document["valid"],
            reason=document["reason"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCurve:
    """r_θ by depth in one role of one stack, and the law that it follows."""

    stack: str
    role: str
    theta: float
    n_layers: int
    points: tuple[RankPoint, ...]
    fit: LawChoice

    def to_json(self) -> dict[str, Any]:
        return {
            "stack": self.stack,
            "role": self.role,
            "theta": self.theta,
            "n_layers": self.n_layers,
            "points": [point.to_json() for point in self.points],
            "fit": self.fit.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RankCurve:
        return cls(
            stack=document["stack"],
            role=document["role"],
            theta=float(document["theta"]),
            n_layers=int(document["n_layers"]),
            points=tuple(RankPoint.from_json(point) for point in document["points"]),
            fit=LawChoice.from_json(document["fit"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRanks:
    """What is said of one slot without a threshold.

    The ranks and the signal are means over the parts, or models, that are not exactly zero.

    Attributes:
        shape: (out, in) of one part.
        count: Parts, or models, in the means; 0 where all are exactly zero.
        norm: ‖·‖_F of all parts together; in a family, the models' mean.
        signal_fraction: Share of ‖·‖_F² that storage rounding does not explain, 0…1.
        known_rank: The largest that an adapter here was made with; None without adapters.
    """

    slot: Slot
    shape: tuple[int, int]
    count: int
    norm: float
    stable_rank: float
    entropy_rank: float
    signal_fraction: float
    known_rank: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "stack": self.slot.stack,
            "layer": self.slot.layer,
            "role": self.slot.role,
            "shape": list(self.shape),
            "count": self.count,
            "norm": self.norm,
            "stable_rank": self.stable_rank,
            "entropy_rank": self.entropy_rank,
            "signal_fraction": self.signal_fraction,
            "known_rank": self.known_rank,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SlotRanks:
        rows, cols = document["shape"]
        known = document["known_rank"]
        return cls(
            slot=Slot(document["stack"], int(document["layer"]), document["role"]),
            shape=(int(rows), int(cols)),
            count=int(document["count"]),
            norm=float(document["norm"]),
            stable_rank=float(document["stable_rank"]),
            entropy_rank=float(document["entropy_rank"]),
            signal_fraction=float(document["signal_fraction"]),
            known_rank=None if known is None else int(known),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """The ranks of one model's matrices.

    Attributes:
        subject: Whether they are ranks of ΔW or of W.
        models: Whose ranks these are; of one model, its name alone.
        thetas: Shares of energy, ascending.
        depths: Layers of each stack.
        slots: By stack, role and layer.
        curves: By stack, role and θ.
        notes: Plain sentences on what limits the numbers.
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
        """One curve for each stack and role, in printing order."""
        if theta not in self.thetas:
            known = ", ".join(f"{each:g}" for each in self.thetas)
            raise StudyError(f"{self.name}: no ranks at θ={theta:g}; there are θ={known}")
        return tuple(curve for curve in self.curves if curve.theta == theta)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "subject": self.subject,
            "models": list(self.models),
            "thetas": list(self.thetas),
            "depths": dict(self.depths),
            "slots": [slot.to_json() for slot in self.slots],
            "curves": [curve.to_json() for curve in self.curves],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls: type[Report], document: Mapping[str, Any]) -> Report:
        return cls(
            name=document["name"],
            subject=document["subject"],
            models=tuple(document["models"]),
            thetas=tuple(float(theta) for theta in document["thetas"]),
            depths={stack: int(depth) for stack, depth in document["depths"].items()},
            slots=tuple(SlotRanks.from_json(slot) for slot in document["slots"]),
            curves=tuple(RankCurve.from_json(curve) for curve in document["curves"]),
            notes=tuple(document["notes"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRankReport(RankReport):
    """The mean over models: every value that is neither rounding nor an exact zero."""


def printing_order(stack: str, role: str) -> tuple[int, int]:
    """Sorts encoders before decoders, and roles as `records.ROLES` does."""
    return STACKS.index(stack), ROLES.index(role)
