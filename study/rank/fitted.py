"""What came of fitting laws to a curve, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """A fitted value; `standard_error` is None where the points do not determine it."""

    name: str
    value: float
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw:
    """One law, fitted.

    Attributes:
        law: A name of `laws.LAWS`.
        r_squared: Share of the (weighted) spread that is explained, 0…1.
        rss: Residual sum of squares, with weights of mean 1.
    """

    law: str
    formula: str
    parameters: tuple[Parameter, ...]
    r_squared: float
    rss: float
    aicc: float

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(parameter.value for parameter in self.parameters)

    def to_json(self) -> dict[str, Any]:
        return {
            "law": self.law,
            "formula": self.formula,
            "parameters": {
                p.name: {"value": p.value, "standard_error": p.standard_error}
                for p in self.parameters
            },
            "r_squared": self.r_squared,
            "rss": self.rss,
            "aicc": self.aicc,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FittedLaw:
        return cls(
            law=document["law"],
            formula=document["formula"],
            parameters=tuple(
                Parameter(name, float(found["value"]), _maybe(found["standard_error"]))
                for name, found in document["parameters"].items()
            ),
            r_squared=float(document["r_squared"]),
            rss=float(document["rss"]),
            aicc=float(document["aicc"]),
        )


@dataclass(frozen=True, slots=True)
class Segments:
    """Mean ranks of a deep model's first three layers, last three, and those between."""

    first: float | None
    middle: float | None
    last: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LawChoice:
    """The law of a curve, or why it has none.

    Attributes:
        points: Depths that were fitted.
        weighted: By 1/s.e.².
        pattern: Whether `best` is worth believing.
        reason: Why there is no pattern, or no fit; empty where there is one.
        best: None where there were too few points.
        loo_rmse: Of `best`, each point predicted from the others; in ranks.
        constant_loo_rmse: The same of the constant.
        candidates: Every law fitted, best AICc first.
        left_out: Laws with too many parameters for so few points.
        segments: Of models with nine layers or more.
    """

    points: int
    weighted: bool = False
    pattern: bool
    reason: str
    best: FittedLaw | None = None
    loo_rmse: float | None = None
    constant_loo_rmse: float | None = None
    candidates: tuple[FittedLaw, ...] = ()
    left_out: tuple[str, ...] = ()
    segments: Segments | None = None

    @property
    def verdict(self) -> str:
        """The law's name, `no pattern` or `no fit`."""
        if self.best is None:
            return "no fit"
        return self.best.law if self.pattern else "no pattern"

    def to_json(self) -> dict[str, Any]:
        segments = self.segments
        return {
            "verdict": self.verdict,
            "points": self.points,
            "weighted": self.weighted,
            "pattern": self.pattern,
            "reason": self.reason,
            "best": None if self.best is None else self.best.to_json(),
            "loo_rmse": self.loo_rmse,
            "constant_loo_rmse": self.constant_loo_rmse,
            "candidates": [fitted.to_json() for fitted in self.candidates],
            "left_out": list(self.left_out),
            "segments": segments
            and {"first": segments.first, "middle": segments.middle, "last": segments.last},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LawChoice:
        best, segments = document["best"], document["segments"]
        return cls(
            points=int(document["points"]),
            weighted=document["weighted"],
            pattern=document["pattern"],
            reason=document["reason"],
            best=None if best is None else FittedLaw.from_json(best),
            loo_rmse=_maybe(document["loo_rmse"]),
            constant_loo_rmse=_maybe(document["constant_loo_rmse"]),
            candidates=tuple(FittedLaw.from_json(each) for each in document["candidates"]),
            left_out=tuple(document["left_out"]),
            segments=segments
            and Segments(*(_maybe(segments[key]) for key in ("first", "middle", "last"))),
        )


def _maybe(value: float | None) -> float | None:
    return None if value is None else float(value)
