"""The mean ranks of a family's models, with their standard errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import fsum

from ...errors import StudyError
from ...records import Slot
from .mean_point import mean_point, rank_curve
from .report import FamilyRankReport, RankCurve, RankPoint, RankReport, SlotRanks, printing_order


def family_ranks(reports: Sequence[RankReport], *, name: str = "family") -> FamilyRankReport:
    """Means by stack, role, depth and θ, and the laws that the means follow.

    A model enters a mean where its rank is neither a count of rounding errors nor an exact
    zero; each point says how many were left out.

    Raises:
        StudyError: There are no reports, a model stands twice, or the models were not
            studied alike.
    """
    ordered = sorted(reports, key=lambda report: report.name)
    _check_alike(name, ordered)
    depths = dict(sorted({s: d for report in ordered for s, d in report.depths.items()}.items()))
    return FamilyRankReport(
        name=name,
        subject=ordered[0].subject,
        models=tuple(report.name for report in ordered),
        thetas=ordered[0].thetas,
        depths=depths,
        slots=_mean_slots(ordered),
        curves=_mean_curves(ordered),
        notes=_notes(ordered),
    )


def _check_alike(name: str, reports: Sequence[RankReport]) -> None:
    if not reports:
        raise StudyError(f"{name}: no model has ranks yet; study its models first")
    first = reports[0]
    for before, report in pairwise(reports):
        if report.name == before.name:
            raise StudyError(f"{name}: {report.name} stands twice; give each model once")
        if (report.thetas, report.subject) != (first.thetas, first.subject):
            raise StudyError(
                f"{report.name}: ranks of {_studied(report)}, but of {_studied(first)} in "
                f"{first.name}; study both alike"
            )
        for stack in report.depths.keys() & first.depths.keys():
            if report.depths[stack] != first.depths[stack]:
                raise StudyError(
                    f"{report.name}: {report.depths[stack]} {stack} layers, but "
                    f"{first.depths[stack]} in {first.name}; a family has one depth"
                )


def _studied(report: RankReport) -> str:
    return f"{report.subject} at θ={', '.join(f'{theta:g}' for theta in report.thetas)}"


def _mean_curves(reports: Iterable[RankReport]) -> tuple[RankCurve, ...]:
    groups: dict[tuple[str, str, float], list[RankCurve]] = {}
    for report in reports:
        for curve in report.curves:
            groups.setdefault((curve.stack, curve.role, curve.theta), []).append(curve)
    means = []
    for (stack, role, theta), curves in groups.items():
        by_layer: dict[int, list[RankPoint]] = {}
        for curve in curves:
            for point in curve.points:
                by_layer.setdefault(point.layer, []).append(point)
        points = [mean_point(here) for here in by_layer.values()]
        means.append(rank_curve(stack, role, theta, curves[0].n_layers, points))
    means.sort(key=lambda curve: (*printing_order(curve.stack, curve.role), curve.theta))
    return tuple(means)


def _mean_slots(reports: Iterable[RankReport]) -> tuple[SlotRanks, ...]:
    groups: dict[Slot, list[SlotRanks]] = {}
    for report in reports:
        for ranks in report.slots:
            groups.setdefault(ranks.slot, []).append(ranks)
    means = [_mean_slot(slot, group) for slot, group in groups.items()]
    means.sort(key=lambda m: (*printing_order(m.slot.stack, m.slot.role), m.slot.layer))
    return tuple(means)


def _mean_slot(slot: Slot, group: Sequence[SlotRanks]) -> SlotRanks:
    changed = [ranks for ranks in group if ranks.count]
    known = [ranks.known_rank for ranks in group if ranks.known_rank is not None]

    def mean(values: Iterable[float]) -> float:
        return fsum(values) / max(1, len(changed))

    return SlotRanks(
        slot=slot,
        shape=group[0].shape,
        count=len(changed),
        norm=mean(ranks.norm for ranks in changed),
        stable_rank=mean(ranks.stable_rank for ranks in changed),
        entropy_rank=mean(ranks.entropy_rank for ranks in changed),
        signal_fraction=mean(ranks.signal_fraction for ranks in changed),
        known_rank=max(known, default=None),
    )


def _notes(reports: Sequence[RankReport]) -> tuple[str, ...]:
    adapters = [
        report for report in reports if any(ranks.known_rank is not None for ranks in report.slots)
    ]
    if not adapters:
        return ()
    known = sorted(
        ranks.known_rank
        for report in adapters
        for ranks in report.slots
        if ranks.known_rank is not None
    )
    span = str(known[0]) if known[0] == known[-1] else f"{known[0]}…{known[-1]}"
    return (
        f"{len(adapters)} of {len(reports)} models are adapters of rank {span}, "
        "which their ranks cannot exceed",
    )
