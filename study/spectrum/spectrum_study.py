"""From singular values to spectra: norms, the random bulk's edge, and the tail's power law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log10, sqrt
from typing import Any, Literal

import numpy as np

from ...arrays import Float64, Int64
from ...errors import StudyError
from ...records import SlotSpectrum, role_order, stack_order
from ...results import JsonRecord, agree, count

Subject = Literal["update", "weights"]
SUBJECTS: tuple[Subject, ...] = ("update", "weights")
PLAUSIBLE_FROM = 0.1
"""P-value above which a power law is not ruled out (Clauset, Shalizi & Newman 2009, 4.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw(JsonRecord):
    """A tail whose density falls as x^−α.

    Attributes:
        alpha: The exponent of the density.
        standard_error: (α − 1)/√n_tail, with the tail's beginning taken as known.
        x_min: Where the tail begins: an eigenvalue.
        distance: Kolmogorov-Smirnov distance between the tail and the law, 0…1.
        n_tail: Eigenvalues in the tail.
        p_value: Share of draws from the law that are as far from their own fit.
    """

    alpha: float
    standard_error: float
    x_min: float
    distance: float
    n_tail: int
    p_value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixSpectrum(JsonRecord):
    """The eigenvalues λ = σ² of one matrix's WᵀW, of the weights or of the update.

    Attributes:
        part: The expert, where a slot holds several; else empty.
        shape: (out, in).
        n_eigenvalues: Those above 0 and above what storage rounding makes.
        n_rounding: Those that storage rounding can make; no law is fitted to them.
        log_norm: log₁₀ Σλ = log₁₀ ‖W‖_F²; None for an exact zero, as the next three.
        log_spectral_norm: log₁₀ λ₁.
        stable_rank: Σλ / λ₁.
        bulk_edge: Marchenko & Pastur's largest eigenvalue of a matrix with this shape and norm
            whose entries are independent.
        n_spikes: Eigenvalues above it.
        power_law: None where there are too few eigenvalues.
        alpha_hat: α·log₁₀ λ₁, the weighted alpha; None where λ₁ ≤ 1, where it would reward
            what it should punish.
        reason: Why there is no power law, or why it is doubtful; empty otherwise.
        curve: (number of eigenvalues that are as large, λ), at ranks that are evenly spaced in
            their logarithm.
    """

    subject: Subject
    stack: str
    layer: int
    role: str
    part: str
    shape: tuple[int, int]
    n_eigenvalues: int
    n_rounding: int
    log_norm: float | None
    log_spectral_norm: float | None
    stable_rank: float | None
    bulk_edge: float | None
    n_spikes: int
    power_law: PowerLaw | None
    alpha_hat: float | None
    reason: str
    curve: tuple[tuple[int, float], ...]

    @property
    def verdict(self) -> str:
        """`power law`, `no power law` where draws rule it out, `too few`, or `no update`."""
        if self.power_law is None:
            is_equal = self.subject == "update" and self.log_norm is None
            return "no update" if is_equal else "too few"
        p_value = self.power_law.p_value
        return "no power law" if p_value is not None and p_value < PLAUSIBLE_FROM else "power law"

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict} | JsonRecord.to_json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectrumReport(JsonRecord):
    """The spectra of one model: of ΔW, W or both, by subject, stack, role, layer and part.

    Attributes:
        depths: Layers of each stack.
        draws: Of each p-value.
        notes: Sentences on what limits the numbers.
    """

    name: str
    subjects: tuple[Subject, ...]
    depths: Mapping[str, int]
    draws: int
    matrices: tuple[MatrixSpectrum, ...]
    notes: tuple[str, ...]


Values = Float64[np.ndarray, " values"]

CELLS_AT_ONCE = 1 << 16
"""Distances that are in memory at once."""
TRIED_IN_DRAWS = 200
"""Beginnings of a tail that are tried for a p-value, in the data and in draws alike."""


def fit_power_law(values: Values, *, draws: int = 0, seed: int = 0) -> PowerLaw | None:
    """The power law of the values' tail; None where fewer than three of them differ.

    Args:
        values: Positive.
        draws: Of the test whether a power law is plausible; without any, no p-value.
    """
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError("values must be finite and positive")
    ascending = np.sort(values)
    starts = _starts(ascending)
    if len(starts) < 2:
        return None
    start, alpha, distance = _nearest(ascending, starts)
    n_tail = len(ascending) - start
    return PowerLaw(
        alpha=alpha,
        standard_error=(alpha - 1.0) / n_tail**0.5,
        x_min=float(ascending[start]),
        distance=distance,
        n_tail=n_tail,
        p_value=_p_value(ascending, start, alpha, draws, seed) if draws else None,
    )


def _starts(ascending: Values) -> Int64[np.ndarray, " starts"]:
    """Where tails may begin: at each value once, but not at the largest."""
    return np.unique(ascending, return_index=True)[1][:-1].astype(np.int64)


def _nearest(ascending: Values, starts: Int64[np.ndarray, " starts"]) -> tuple[int, float, float]:
    """(start, α, distance) of the tail that is nearest to its power law.

    The empirical distribution is counted below each value, i/n, as in the authors' programs.
    """
    n = len(ascending)
    logs = np.log(ascending / ascending[0])
    sizes = n - starts
    sums = np.cumsum(logs[::-1])[::-1][starts] - sizes * logs[starts]
    exponents = sizes / sums  # α − 1
    distances = np.empty(len(starts))
    at_once = max(1, CELLS_AT_ONCE // n)
    for first in range(0, len(starts), at_once):
        some = slice(first, first + at_once)
        begin = int(starts[some][0])
        above = np.maximum(logs[begin:] - logs[starts[some], None], 0.0)  # (starts, values)
        below = np.arange(begin, n) - starts[some, None]
        gap = np.abs(below / sizes[some, None] + np.expm1(-exponents[some, None] * above))
        distances[some] = np.where(below >= 0, gap, 0.0).max(axis=1)
    best = int(np.argmin(distances))
    return int(starts[best]), 1.0 + float(exponents[best]), float(distances[best])


def _p_value(ascending: Values, start: int, alpha: float, draws: int, seed: int) -> float:
    """Share of draws that are at least as far from their own power law.

    A draw has as many values: each is from the fitted tail with the tail's share as probability,
    otherwise one of the values below the tail.
    """
    n = len(ascending)
    observed = _nearest(ascending, _thinned(_starts(ascending)))[2]
    rng = np.random.default_rng(seed)
    body, x_min = ascending[:start], ascending[start]
    as_far = 0
    for _ in range(draws):
        in_tail = n if start == 0 else int(rng.binomial(n, (n - start) / n))
        tail = x_min * (1.0 - rng.random(in_tail)) ** (-1.0 / (alpha - 1.0))
        drawn = np.sort(np.concatenate([tail, rng.choice(body, n - in_tail)]) if start else tail)
        starts = _thinned(_starts(drawn))
        as_far += len(starts) < 1 or _nearest(drawn, starts)[2] >= observed
    return as_far / draws


def _thinned(starts: Int64[np.ndarray, " starts"]) -> Int64[np.ndarray, " some_starts"]:
    """Evenly many of them, so that a draw costs the same whatever the matrix's size."""
    if len(starts) <= TRIED_IN_DRAWS:
        return starts
    chosen = np.linspace(0, len(starts) - 1, TRIED_IN_DRAWS).round().astype(np.int64)
    return starts[chosen]


FEWEST_EIGENVALUES = 50
"""As WeightWatcher: fewer have no tail that could be told from another distribution's."""
FEW_IN_TAIL = 10
NOTHING = 1e-13
"""Eigenvalues below this share of the largest are float64's rounding, not the matrix's."""
NO_UPDATE = "no update: every layer matrix equals the base's"
POINTS = 64
"""Of a curve."""


def spectrum_study(
    name: str, spectra: Mapping[Subject, Sequence[SlotSpectrum]], *, draws: int = 100, seed: int = 0
) -> SpectrumReport:
    """The spectra of a model's updates, of its weights or of both, and their tails.

    Args:
        spectra: In any order, each slot and part once.
        draws: Of the test whether a power law is plausible; 0 leaves it out.

    Raises:
        StudyError: there are no spectra.
    """

    def order(spectrum: SlotSpectrum) -> tuple[tuple[int, str], tuple[int, str], int, str]:
        slot = spectrum.slot
        return stack_order(slot.stack), role_order(slot.role), slot.layer, spectrum.part

    updates = spectra.get("update", ())
    is_equal = bool(updates) and not any(spectrum.energies.size for spectrum in updates)
    if is_equal:
        spectra = {**spectra, "update": ()}
    matrices = tuple(
        _matrix(subject, spectrum, draws, seed)
        for subject in SUBJECTS
        for spectrum in sorted(spectra.get(subject, ()), key=order)
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
    """The largest eigenvalue of WᵀW for independent entries of this norm: s²(√rows + √cols)², with
    s² the mean square of an entry (Marchenko & Pastur 1967)."""
    rows, cols = shape
    return norm_squared / (rows * cols) * (sqrt(rows) + sqrt(cols)) ** 2


def _matrix(subject: Subject, spectrum: SlotSpectrum, draws: int, seed: int) -> MatrixSpectrum:
    energies = np.sort(spectrum.energies)[::-1]
    energies = energies[energies > NOTHING * energies[:1]]
    total = float(energies.sum())
    floor = bulk_edge(spectrum.shape, spectrum.noise_energy)
    true = energies[energies > floor]
    enough = len(true) >= FEWEST_EIGENVALUES
    law = fit_power_law(true, draws=draws, seed=seed) if enough else None
    n_rounding, reason = len(energies) - len(true), ""
    if law is None:
        beside = f" beside {n_rounding} of storage rounding" if n_rounding else ""
        reason = f"{count(len(true), 'eigenvalue')}{beside}; a tail needs {FEWEST_EIGENVALUES}"
    elif law.n_tail < FEW_IN_TAIL:
        reason = f"the tail has {count(law.n_tail, 'eigenvalue')}"
    edge = bulk_edge(spectrum.shape, total)
    largest = float(energies[0]) if total > 0 else None
    return MatrixSpectrum(
        subject=subject,
        **asdict(spectrum.slot),
        part=spectrum.part,
        shape=spectrum.shape,
        n_eigenvalues=len(true),
        n_rounding=n_rounding,
        log_norm=log10(total) if largest else None,
        log_spectral_norm=log10(largest) if largest else None,
        stable_rank=total / largest if largest else None,
        bulk_edge=edge if largest else None,
        n_spikes=int(np.sum(true > edge)),
        power_law=law,
        alpha_hat=law.alpha * log10(largest) if law and largest and largest > 1 else None,
        reason=reason,
        curve=_curve(true),
    )


def _curve(energies: Float64[np.ndarray, " sigma"]) -> tuple[tuple[int, float], ...]:
    if not len(energies):
        return ()
    ranks = np.unique(np.geomspace(1, len(energies), POINTS).round().astype(int))
    return tuple((int(rank), float(f"{energies[rank - 1]:.6g}")) for rank in ranks)


def _notes(matrices: Sequence[MatrixSpectrum]) -> tuple[str, ...]:
    verdicts = Counter(matrix.verdict for matrix in matrices)
    few, equal, ruled_out = (verdicts[v] for v in ("too few", "no update", "no power law"))
    rounded, of = sum(m.n_rounding > 0 for m in matrices), count(len(matrices), "matrix")
    tested = count(len(matrices) - few - equal, "matrix")
    notes = {
        f"{equal} of {of} {agree(equal, 'equals', 'equal')} the base's: no update": equal,
        f"{few} of {of} {agree(few, 'has')} fewer than {FEWEST_EIGENVALUES} eigenvalues that are "
        "neither zero nor rounding: no exponent": few,
        f"in {ruled_out} of {tested} draws rule a power law out (p < 0.1): "
        "their exponent, in parentheses, describes no tail": ruled_out,
        f"in {count(rounded, 'matrix')} eigenvalues that storage rounding can make are left "
        "out": rounded,
    }
    return tuple(note for note, n in notes.items() if n)
