"""From singular values to spectra: norms, the random bulk's edge, and the tail's power law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10, sqrt

import numpy as np

from ...arrays import Float64
from ...errors import StudyError
from ...records import ROLES, STACKS, SlotSpectrum
from .power_law import fit_power_law
from .spectrum_report import SUBJECTS, MatrixSpectrum, SpectrumReport, Subject

FEWEST_EIGENVALUES = 50
"""As WeightWatcher: fewer have no tail that could be told from another distribution's."""
FEW_IN_TAIL = 10
NOTHING = 1e-13
"""Eigenvalues below this share of the largest are float64's rounding, not the matrix's."""
NO_UPDATE = "no update: every layer matrix equals the base's"
POINTS = 64
"""Of a curve."""


def spectrum_study(
    name: str,
    spectra: Mapping[Subject, Sequence[SlotSpectrum]],
    *,
    draws: int = 100,
    seed: int = 0,
) -> SpectrumReport:
    """The spectra of a model's updates, of its weights or of both, and their tails.

    Args:
        spectra: In any order, each slot and part once.
        draws: Of the test whether a power law is plausible; 0 leaves it out.

    Raises:
        StudyError: There are no spectra.
    """
    updates = spectra.get("update", ())
    is_equal = bool(updates) and not any(spectrum.energies.size for spectrum in updates)
    if is_equal:
        spectra = {**spectra, "update": ()}
    matrices = tuple(
        _matrix(subject, spectrum, draws, seed)
        for subject in SUBJECTS
        for spectrum in sorted(spectra.get(subject, ()), key=_order)
    )
    if not matrices:
        reason = NO_UPDATE if is_equal else "no layer matrix; index the model to see what it holds"
        raise StudyError(f"{name}: {reason}")
    depths: dict[str, int] = {}
    for matrix in matrices:
        depths[matrix.stack] = max(depths.get(matrix.stack, 0), matrix.layer + 1)
    return SpectrumReport(
        name=name,
        subjects=tuple(subject for subject in SUBJECTS if spectra.get(subject)),
        depths=depths,
        draws=draws,
        matrices=matrices,
        notes=((f"{NO_UPDATE}; W alone is measured",) if is_equal else ()) + _notes(matrices),
    )


def bulk_edge(shape: tuple[int, int], norm_squared: float) -> float:
    """The largest eigenvalue of WᵀW for independent entries of this norm: s²(√rows + √cols)².

    s² is the mean square of an entry (Marchenko & Pastur 1967); of a matrix whose entries are
    permuted at random, this is where the bulk ends.
    """
    rows, cols = shape
    return norm_squared / (rows * cols) * (sqrt(rows) + sqrt(cols)) ** 2


def _order(spectrum: SlotSpectrum) -> tuple[int, int, int, str]:
    slot = spectrum.slot
    return STACKS.index(slot.stack), ROLES.index(slot.role), slot.layer, spectrum.part


def _matrix(subject: Subject, spectrum: SlotSpectrum, draws: int, seed: int) -> MatrixSpectrum:
    energies = np.sort(spectrum.energies)[::-1]
    energies = energies[energies > NOTHING * energies[:1]]
    total = float(energies.sum())
    floor = bulk_edge(spectrum.shape, spectrum.noise_energy)
    true = energies[energies > floor]
    enough = len(true) >= FEWEST_EIGENVALUES
    law = fit_power_law(true, draws=draws, seed=seed) if enough else None
    edge = bulk_edge(spectrum.shape, total)
    largest = float(energies[0]) if total > 0 else None
    return MatrixSpectrum(
        subject=subject,
        stack=spectrum.slot.stack,
        layer=spectrum.slot.layer,
        role=spectrum.slot.role,
        part=spectrum.part,
        shape=spectrum.shape,
        n_eigenvalues=len(true),
        n_rounding=len(energies) - len(true),
        log_norm=log10(total) if largest else None,
        log_spectral_norm=log10(largest) if largest else None,
        stable_rank=total / largest if largest else None,
        bulk_edge=edge if largest else None,
        n_spikes=int(np.sum(true > edge)),
        power_law=law,
        alpha_hat=law.alpha * log10(largest) if law and largest and largest > 1 else None,
        reason=_reason(len(true), len(energies) - len(true), law.n_tail if law else None),
        curve=_curve(true),
    )


def _reason(n_true: int, n_rounding: int, n_tail: int | None) -> str:
    if n_tail is None:
        beside = f" beside {n_rounding} of storage rounding" if n_rounding else ""
        return f"{n_true} eigenvalues{beside}; a tail needs {FEWEST_EIGENVALUES}"
    if n_tail < FEW_IN_TAIL:
        return f"the tail has {n_tail} eigenvalues"
    return ""


def _curve(energies: Float64[np.ndarray, " sigma"]) -> tuple[tuple[int, float], ...]:
    if not len(energies):
        return ()
    ranks = np.unique(np.geomspace(1, len(energies), POINTS).round().astype(int))
    return tuple((int(rank), float(f"{energies[rank - 1]:.6g}")) for rank in ranks)


def _notes(matrices: Sequence[MatrixSpectrum]) -> tuple[str, ...]:
    few = [matrix for matrix in matrices if matrix.verdict == "too few"]
    equal = [matrix for matrix in matrices if matrix.verdict == "no update"]
    rounded = [matrix for matrix in matrices if matrix.n_rounding]
    ruled_out = [matrix for matrix in matrices if matrix.verdict == "no power law"]
    fitted = len(matrices) - len(few) - len(equal)
    notes = []
    if equal:
        notes.append(f"{len(equal)} of {len(matrices)} matrices equal the base's: no update")
    if few:
        notes.append(
            f"{len(few)} of {len(matrices)} matrices have fewer than {FEWEST_EIGENVALUES} "
            "eigenvalues that are neither zero nor rounding: no exponent"
        )
    if ruled_out:
        notes.append(
            f"in {len(ruled_out)} of {fitted} matrices draws rule a power law out (p < 0.1): "
            "their exponent, in parentheses, describes no tail"
        )
    if rounded:
        notes.append(
            f"in {len(rounded)} matrices eigenvalues that storage rounding can make are left out"
        )
    return tuple(notes)
