"""The ranks of one model: of its update, or of its weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import fsum, sqrt

from ...errors import StudyError
from ...records import Slot, SlotSpectrum
from .effective import energy_rank, entropy_rank, rounding_reason, signal_fraction, stable_rank
from .mean_point import mean_point, rank_curve
from .report import RankPoint, RankReport, SlotRanks, Subject, printing_order

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
    reported, and fitted by no law. Peak: the spectra, O(min(out, in)) each.

    Args:
        spectra: In any order, each slot and part once.
        thetas: Shares of the energy, in (0, 1].
        n_layers: Depth of each stack; by default its deepest layer among the spectra.
        subject: What the spectra are of.

    Raises:
        StudyError: There are no spectra.
    """
    for theta in thetas:
        if not 0 < theta <= 1:
            raise ValueError(f"theta must lie in (0, 1], got {theta}")
    shares = tuple(sorted({float(theta) for theta in thetas}))
    ordered = sorted(
        spectra,
        key=lambda s: (*printing_order(s.slot.stack, s.slot.role), s.slot.layer, s.part),
    )
    if not ordered:
        raise StudyError(f"{name}: no layer matrix to rank; index the model to see what it holds")
    parts = {slot: tuple(group) for slot, group in groupby(ordered, key=lambda s: s.slot)}
    for slot, group in parts.items():
        if len({spectrum.part for spectrum in group}) != len(group):
            raise ValueError(f"{name}: a part of {slot} stands twice")
    depths = _depths(name, parts, n_layers or {})
    roles = list(dict.fromkeys((slot.stack, slot.role) for slot in parts))
    slots = tuple(_slot_ranks(slot, group) for slot, group in parts.items())
    curves = tuple(
        rank_curve(
            stack,
            role,
            theta,
            depths[stack],
            [
                mean_point([_point(spectrum, theta, subject) for spectrum in group])
                for slot, group in parts.items()
                if (slot.stack, slot.role) == (stack, role)
            ],
        )
        for stack, role in roles
        for theta in shares
    )
    return RankReport(
        name=name,
        subject=subject,
        models=(name,),
        thetas=shares,
        depths=depths,
        slots=slots,
        curves=curves,
        notes=adapter_note(slots),
    )


def adapter_note(slots: Sequence[SlotRanks]) -> tuple[str, ...]:
    """What an adapter's own rank means for the numbers; nothing for dense updates."""
    known = sorted({slot.known_rank for slot in slots if slot.known_rank is not None})
    if not known:
        return ()
    span = str(known[0]) if len(known) == 1 else f"{known[0]}…{known[-1]}"
    return (
        f"the update is an adapter of rank {span}: no rank here can exceed it, "
        "so depth shows only how much of it is used",
    )


def _depths(
    name: str, parts: Mapping[Slot, tuple[SlotSpectrum, ...]], given: Mapping[str, int]
) -> dict[str, int]:
    depths: dict[str, int] = {}
    for slot in parts:
        depths[slot.stack] = max(depths.get(slot.stack, 0), slot.layer + 1)
    for stack, depth in depths.items():
        if given.get(stack, depth) < depth:
            raise ValueError(f"{name}: {stack} layer {depth - 1} of a stack of {given[stack]}")
    return {stack: given.get(stack, depth) for stack, depth in depths.items()}


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


def _slot_ranks(slot: Slot, group: Sequence[SlotSpectrum]) -> SlotRanks:
    changed = [spectrum for spectrum in group if spectrum.energies.any()]
    known = [spectrum.known_rank for spectrum in group if spectrum.known_rank is not None]

    def mean(values: Iterable[float]) -> float:
        return fsum(values) / max(1, len(changed))

    return SlotRanks(
        slot=slot,
        shape=group[0].shape,
        count=len(changed),
        norm=sqrt(fsum(float(spectrum.energies.sum()) for spectrum in group)),
        stable_rank=mean(stable_rank(s.energies) for s in changed),
        entropy_rank=mean(entropy_rank(s.energies) for s in changed),
        signal_fraction=mean(signal_fraction(s.energies, s.noise_energy) for s in changed),
        known_rank=max(known, default=None),
    )
