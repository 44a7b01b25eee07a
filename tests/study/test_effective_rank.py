"""Effective ranks against hand-made spectra, laws, and rounding that is really done."""

import numpy as np
import pytest

from deltadex.study.rank.rank_study import (
    energy_rank,
    entropy_rank,
    rounding_reason,
    signal_fraction,
    stable_rank,
)


def test_hand_made_spectrum_has_the_ranks_that_a_pencil_gives():
    energies = np.array([4.0, 3.0, 2.0, 1.0])

    assert [energy_rank(energies, theta) for theta in (0.4, 0.5, 0.7, 0.9, 1.0)] == [1, 2, 2, 3, 4]
    assert stable_rank(energies) == pytest.approx(2.5)
    expected = 1 / np.prod([p**p for p in (0.4, 0.3, 0.2, 0.1)])
    assert entropy_rank(energies) == pytest.approx(expected)


def test_noise_is_flagged_only_above_what_theta_leaves_out():
    energies = np.array([6.0, 4.0])

    assert rounding_reason(energies, 1.0, 0.9) == ""
    assert rounding_reason(energies, 1.01, 0.9).startswith("storage rounding is about 10%")
    assert rounding_reason(energies, 0.0, 1.0) == ""
    assert rounding_reason(energies, 1e-6, 1.0) != ""
    assert signal_fraction(energies, 1.0) == pytest.approx(0.9)
    assert signal_fraction(energies, 99.0) == 0.0
