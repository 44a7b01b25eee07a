"""The report of a spectrum study; nothing here needs NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..report_json import JsonRecord

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
        layer: From 0, as in slots.
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
        """The fields and the verdict."""
        return {"verdict": self.verdict} | JsonRecord.to_json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectrumReport(JsonRecord):
    """The spectra of one model.

    Attributes:
        subjects: What was measured: ΔW, W or both.
        depths: Layers of each stack.
        draws: Of each p-value.
        matrices: By subject, stack, role, layer and part.
        notes: Sentences on what limits the numbers.
    """

    name: str
    subjects: tuple[Subject, ...]
    depths: Mapping[str, int]
    draws: int
    matrices: tuple[MatrixSpectrum, ...]
    notes: tuple[str, ...]
