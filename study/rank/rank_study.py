"""How many directions a matrix really uses, from the energies σ² of its singular values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from math import fsum, sqrt
from typing import Literal

import numpy as np

from ...arrays import Float64
from ...errors import StudyError
from ...records import Slot, SlotSpectrum, role_order, stack_order
from ...results import JsonRecord, agree, count
from .law_choice import LawChoice, fit_laws

SAME_SHARE = 1e-12
"""Shares of the energy closer than this are equal: float64 sums are not exact."""


def energy_rank(energies: Float64[np.ndarray, " sigma"], theta: float) -> int:
    """Fewest directions that carry the share `theta` of Σσ²; 0 for an exact zero.

    r_θ = min { r : Σ_{i≤r} σ_i² ≥ θ Σ σ_i² }, 0 < θ ≤ 1.
    """
    if not 0 < theta <= 1:
        raise ValueError(f"theta must lie in (0, 1], got {theta}")
    shares = _shares(energies)
    if not len(shares):
        return 0
    needed = int(np.searchsorted(np.cumsum(shares), theta - SAME_SHARE)) + 1
    return min(needed, len(shares))


def stable_rank(energies: Float64[np.ndarray, " sigma"]) -> float:
    """‖·‖_F² / σ₁², at least 1; 0 for an exact zero."""
    shares = _shares(energies)
    return float(1.0 / shares[0]) if len(shares) else 0.0


def entropy_rank(energies: Float64[np.ndarray, " sigma"]) -> float:
    """exp(−Σ p ln p) of the shares p = σ²/Σσ², 1 … their number; 0 for an exact zero.

    Roy & Vetterli 2007 take shares of σ; these are shares of σ², as r_θ's are.
    """
    shares = _shares(energies)
    return float(np.exp(-np.sum(shares * np.log(shares)))) if len(shares) else 0.0


def signal_fraction(energies: Float64[np.ndarray, " sigma"], noise_energy: float) -> float:
    """Share of ‖·‖_F² that storage rounding does not explain, 0…1; 0 for an exact zero."""
    return 1.0 - _noise_fraction(energies, noise_energy)


def rounding_reason(
    energies: Float64[np.ndarray, " sigma"], noise_energy: float, theta: float
) -> str:
    """Why r_θ counts rounding errors rather than directions; empty where it does not.

    The rank is not to be trusted where rounding is a larger share of the energy than the
    1 − θ that r_θ may leave out. An exact zero has rank 0 whatever rounding was expected.
    """
    noise = _noise_fraction(energies, noise_energy)
    if not energies.any() or noise <= 1.0 - theta + SAME_SHARE:
        return ""
    return (
        f"storage rounding is about {noise:.0%} of the energy, "
        f"and a rank at θ={theta:g} leaves out only {1.0 - theta:.2g}"
    )


def _noise_fraction(energies: Float64[np.ndarray, " sigma"], noise_energy: float) -> float:
    total = float(energies.sum())
    return min(1.0, noise_energy / total) if total > 0 else 1.0


def _shares(energies: Float64[np.ndarray, " sigma"]) -> Float64[np.ndarray, " positive"]:
    """The positive energies as shares of their sum, descending."""
    if not (np.isfinite(energies).all() and (energies >= 0).all()):
        raise ValueError("energies must be finite and not negative")
    positive = np.sort(energies[energies > 0])[::-1]
    relative = positive / positive[:1]
    relative = relative[relative > 0]
    shares: Float64[np.ndarray, " positive"] = relative / relative.sum()
    return shares


Subject = Literal["update", "weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPoint(JsonRecord):
    """r_θ at one depth: of a matrix, or the mean of `count` parts of a slot or models of a family.

    Attributes:
        layer: From 0, as in slots.
        normalised: rank / min(out, in), 0…1.
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
    """The numbers of one slot that need no threshold: means over parts or models that are not 0.

    Attributes:
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
    """The ranks of one model's matrices, of ΔW or of W.

    Attributes:
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
        if theta not in self.thetas:
            known = ", ".join(f"{share:g}" for share in self.thetas)
            raise StudyError(f"{self.name}: no ranks at θ={theta:g}; there are θ={known}")
        return tuple(curve for curve in self.curves if curve.theta == theta)


THETAS = (0.5, 0.9, 0.99)


def rank_study(
    name: str,
    spectra: Iterable[SlotSpectrum],
    *,
    thetas: Sequence[float] = THETAS,
    n_layers: Mapping[str, int] | None = None,
    subject: Subject = "update",
) -> RankReport:
    """Ranks by stack, role and depth, and the laws that they follow.

    The parts of a slot are averaged. Exact zeros and ranks that count rounding errors are
    reported, but no law is fitted to them. Peak: the spectra, O(min(out, in)) each.

    Args:
        spectra: In any order, each slot and part once.
        thetas: Shares of the energy, in (0, 1].
        n_layers: Depth of each stack, at least its deepest layer among the spectra.

    Raises:
        StudyError: there are no spectra.
    """
    shares = tuple(sorted({float(theta) for theta in thetas}))
    ordered = sorted(spectra, key=lambda s: (*_role_order(s.slot), s.slot.layer, s.part))
    if not ordered:
        raise StudyError(f"{name}: no layer matrix to rank; index the model to see what it holds")
    parts = {slot: tuple(group) for slot, group in groupby(ordered, key=lambda s: s.slot)}
    least, depths = n_layers or {}, dict[str, int]()
    for slot in parts:
        known = depths.get(slot.stack, least.get(slot.stack, 0))
        depths[slot.stack] = max(known, slot.layer + 1)
    slots = tuple(_slot_ranks(group) for group in parts.values())
    curves = []
    for stack, role in dict.fromkeys((slot.stack, slot.role) for slot in parts):
        groups = [group for s, group in parts.items() if (s.stack, s.role) == (stack, role)]
        for theta in shares:
            points = [mean_point([_point(s, theta, subject) for s in group]) for group in groups]
            curves.append(rank_curve(stack, role, theta, depths[stack], points))
    changed, notes = any(slot.norm for slot in slots), []
    ranks = _adapter_ranks(slots)
    if changed and ranks:
        notes.append(
            f"the update is an adapter of rank {ranks}: no rank here can exceed it, "
            "so depth shows only how much of it is used"
        )
    if not changed and subject == "update":
        notes.append("no layer matrix differs from the base's: there is no update to rank")
    return RankReport(
        name=name,
        subject=subject,
        models=(name,),
        thetas=shares,
        depths=depths,
        slots=slots,
        curves=tuple(curves),
        notes=tuple(notes),
    )


def family_ranks(reports: Sequence[RankReport], *, name: str = "family") -> RankReport:
    """Means by stack, role, depth and θ, and the laws that the means follow.

    A model enters a mean where its rank is neither a count of rounding errors nor an exact
    zero; each point counts the models that were left out.

    Args:
        reports: Of models of one depth, of the same matrices and θ.
    """
    ordered = sorted(reports, key=lambda report: report.name)
    slots, curves = defaultdict(list), defaultdict(list)
    for report in ordered:
        for ranks in report.slots:
            slots[Slot(ranks.stack, ranks.layer, ranks.role)].append(ranks)
        for curve in report.curves:
            curves[*_role_order(curve), curve.theta].append(curve)
    adapters = [report for report in ordered if _adapter_ranks(report.slots)]
    ranks_of_all = _adapter_ranks([ranks for report in adapters for ranks in report.slots])
    note = (
        f"{len(adapters)} of {count(len(reports), 'model')} "
        f"{agree(len(adapters), 'is an adapter', 'are adapters')} of rank {ranks_of_all}, "
        f"which {agree(len(adapters), 'its', 'their')} ranks cannot exceed"
    )
    return RankReport(
        name=name,
        subject=ordered[0].subject,
        models=tuple(report.name for report in ordered),
        thetas=ordered[0].thetas,
        depths=dict(sorted({s: d for report in ordered for s, d in report.depths.items()}.items())),
        slots=tuple(
            _mean_slot(slots[slot])
            for slot in sorted(slots, key=lambda slot: (*_role_order(slot), slot.layer))
        ),
        curves=tuple(_mean_curve(curves[order]) for order in sorted(curves)),
        notes=(note,) if adapters else (),
    )


def mean_point(points: Sequence[RankPoint]) -> RankPoint:
    """The mean of the values that are neither rounding nor zero, with its standard error.

    Where there is none, the mean of the values that are rounding, and marked so; else zero.
    """
    if len(points) == 1:
        return points[0]
    fitted = [point for point in points if point.fitted]
    rounding = [point for point in points if not point.valid]
    averaged = fitted or rounding
    if not averaged:
        return replace(points[0], count=len(points))
    n = len(averaged)
    mean = fsum(point.rank for point in averaged) / n
    variance = fsum((point.rank - mean) ** 2 for point in averaged) / max(1, n - 1)
    return RankPoint(
        layer=averaged[0].layer,
        rank=mean,
        normalised=fsum(point.normalised for point in averaged) / n,
        standard_error=sqrt(variance / n) if n > 1 else None,
        count=n,
        left_out=len(points) - n,
        valid=bool(fitted),
        reason=""
        if fitted
        else f"in all {n} that are not zero, as in the first: {rounding[0].reason}",
    )


def rank_curve(
    stack: str, role: str, theta: float, n_layers: int, points: Sequence[RankPoint]
) -> RankCurve:
    """The points by depth, with the law that fits those that carry a rank."""
    by_depth = sorted(points, key=lambda point: point.layer)
    fitted = [point for point in by_depth if point.fitted]
    errors = [point.standard_error for point in fitted if point.standard_error is not None]
    return RankCurve(
        stack=stack,
        role=role,
        theta=theta,
        n_layers=n_layers,
        points=tuple(by_depth),
        fit=fit_laws(
            np.array([point.layer + 1 for point in fitted], dtype=np.int64),
            np.array([point.rank for point in fitted], dtype=np.float64),
            n_layers,
            standard_errors=np.array(errors, float) if len(errors) == len(fitted) else None,
            counts=np.array([point.count for point in fitted], dtype=np.int64),
        ),
    )


def _role_order(place: Slot | RankCurve) -> tuple[tuple[int, str], tuple[int, str]]:
    """Encoders before decoders, and roles in the order of `records.ROLES`."""
    return stack_order(place.stack), role_order(place.role)


def _point(spectrum: SlotSpectrum, theta: float, subject: Subject) -> RankPoint:
    rank = energy_rank(spectrum.energies, theta)
    rounding = rounding_reason(spectrum.energies, spectrum.noise_energy, theta)
    zero = "no update here" if subject == "update" else "all weights are zero"
    return RankPoint(
        layer=spectrum.slot.layer,
        rank=float(rank),
        normalised=rank / min(spectrum.shape),
        valid=not rounding,
        reason=rounding if rank else zero,
    )


def _slot_ranks(spectra: Sequence[SlotSpectrum]) -> SlotRanks:
    parts = [
        SlotRanks(
            **asdict(spectrum.slot),
            shape=spectrum.shape,
            count=int(spectrum.energies.any()),
            norm=0.0,
            stable_rank=stable_rank(spectrum.energies),
            entropy_rank=entropy_rank(spectrum.energies),
            signal_fraction=signal_fraction(spectrum.energies, spectrum.noise_energy),
            known_rank=spectrum.known_rank,
        )
        for spectrum in spectra
    ]
    energy = fsum(float(spectrum.energies.sum()) for spectrum in spectra)
    return replace(_mean_slot(parts), norm=sqrt(energy))


def _mean_slot(group: Sequence[SlotRanks]) -> SlotRanks:
    changed = [ranks for ranks in group if ranks.count]
    known = [ranks.known_rank for ranks in group if ranks.known_rank is not None]

    def mean(values: Iterable[float]) -> float:
        return fsum(values) / max(1, len(changed))

    return replace(
        group[0],
        count=len(changed),
        norm=mean(ranks.norm for ranks in changed),
        stable_rank=mean(ranks.stable_rank for ranks in changed),
        entropy_rank=mean(ranks.entropy_rank for ranks in changed),
        signal_fraction=mean(ranks.signal_fraction for ranks in changed),
        known_rank=max(known, default=None),
    )


def _mean_curve(curves: Sequence[RankCurve]) -> RankCurve:
    by_layer = defaultdict(list)
    for point in (point for curve in curves for point in curve.points):
        by_layer[point.layer].append(point)
    first, points = curves[0], [mean_point(group) for group in by_layer.values()]
    return rank_curve(first.stack, first.role, first.theta, first.n_layers, points)


def _adapter_ranks(slots: Iterable[SlotRanks]) -> str:
    """The ranks of the adapters in the slots, as `8` or `4…8`; empty for dense updates."""
    known = [slot.known_rank for slot in slots if slot.known_rank is not None]
    return "…".join(map(str, sorted({min(known), max(known)}))) if known else ""
