"""How many directions a matrix really uses, from the energies σ² of its singular values."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64

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
