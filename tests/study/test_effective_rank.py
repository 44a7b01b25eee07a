"""Effective ranks against hand-made spectra, laws, and rounding that is really done."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from deltadex.study.rank.rank_study import (
    energy_rank,
    entropy_rank,
    rounding_reason,
    signal_fraction,
    stable_rank,
)

THETAS = (0.5, 0.9, 0.99)
NOTHING = np.empty(0)

spectra = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12).map(
    lambda values: np.array(sorted(values, reverse=True))
)


def test_hand_made_spectrum_has_the_ranks_that_a_pencil_gives():
    energies = np.array([4.0, 3.0, 2.0, 1.0])

    assert [energy_rank(energies, theta) for theta in (0.4, 0.5, 0.7, 0.9, 1.0)] == [1, 2, 2, 3, 4]
    assert stable_rank(energies) == pytest.approx(2.5)
    expected = 1 / np.prod([p**p for p in (0.4, 0.3, 0.2, 0.1)])
    assert entropy_rank(energies) == pytest.approx(expected)


@pytest.mark.parametrize("energies", [NOTHING, np.zeros(5)], ids=["empty", "zeros"])
def test_an_exact_zero_has_rank_zero_and_is_not_rounding(energies):
    assert energy_rank(energies, 0.9) == 0
    assert stable_rank(energies) == 0.0
    assert entropy_rank(energies) == 0.0
    assert signal_fraction(energies, 1.0) == 0.0
    assert rounding_reason(energies, 1.0, 0.9) == ""


@pytest.mark.parametrize(
    ("energies", "theta", "line"),
    [
        *(([1.0, 1.0], theta, "theta") for theta in (0.0, -0.5, 1.01, float("nan"))),
        *(([1.0, wrong], 0.5, "not negative") for wrong in (-1.0, np.nan, np.inf)),
    ],
)
def test_a_theta_that_is_no_share_and_energies_that_are_none_are_refused(energies, theta, line):
    with pytest.raises(ValueError, match=line):
        energy_rank(np.array(energies), theta)


def test_noise_is_flagged_only_above_what_theta_leaves_out():
    energies = np.array([6.0, 4.0])

    assert rounding_reason(energies, 1.0, 0.9) == ""
    assert rounding_reason(energies, 1.01, 0.9).startswith("storage rounding is about 10%")
    assert rounding_reason(energies, 0.0, 1.0) == ""
    assert rounding_reason(energies, 1e-6, 1.0) != ""
    assert signal_fraction(energies, 1.0) == pytest.approx(0.9)
    assert signal_fraction(energies, 99.0) == 0.0


def rounded_update(relative_norm, dtype):
    """Energies and expected noise of a rank-4 update between two matrices of that dtype."""
    rng = np.random.default_rng(0)
    base = rng.normal(scale=0.05, size=(128, 128))
    update = rng.normal(size=(128, 4)) @ rng.normal(size=(4, 128))
    update *= relative_norm * np.linalg.norm(base) / np.linalg.norm(update)
    bits, least = {torch.float32: (23, -126), torch.bfloat16: (7, -126), torch.float16: (10, -14)}[
        dtype
    ]
    stored = [torch.from_numpy(w).to(dtype).double().numpy() for w in (base, base + update)]
    exponents = np.maximum(np.frexp(stored)[1] - 1, least)
    noise = float((np.exp2(exponents - bits) ** 2).sum() / 12)
    return np.linalg.svd(stored[1] - stored[0], compute_uv=False) ** 2, noise


@pytest.mark.parametrize(
    ("relative_norm", "dtype", "flagged"),
    [
        (1e-2, torch.bfloat16, (False, False, True)),
        (3e-3, torch.bfloat16, (False, True, True)),
        (1e-3, torch.float32, (False, False, False)),
        (1e-3, torch.bfloat16, (True, True, True)),
        (1e-3, torch.float16, (False, False, True)),
    ],
)
def test_a_rank_four_update_is_flagged_exactly_where_rounding_hides_it(
    relative_norm, dtype, flagged
):
    energies, noise = rounded_update(relative_norm, dtype)

    reasons = [rounding_reason(energies, noise, theta) for theta in THETAS]
    ranks = [energy_rank(energies, theta) for theta in THETAS]

    assert tuple(map(bool, reasons)) == flagged
    assert tuple(rank > 4 for rank in ranks) == flagged
