"""Norms and growth against NumPy on everything at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_layers import batches, make_hidden
from scipy.stats import linregress, t

from deltadex.errors import StudyError
from deltadex.study.layers.layer_norms import NormTally, fit_growth, row_norms, unit_rows


def tally_of(hidden, sizes=(16,), first_layer=0):
    tally = NormTally(first_layer)
    for batch in batches(hidden, sizes=sizes):
        tally.add(batch.hidden)
    return tally.result()


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_norms_do_not_depend_on_the_batches(sizes):
    hidden = make_hidden(layers=4, tokens=50, dim=7)
    expected = np.linalg.norm(hidden.astype(np.float64), axis=2)

    norms = tally_of(hidden, sizes)

    assert norms.n_tokens == 50
    assert norms.smallest == pytest.approx(expected.min(axis=1))
    assert norms.mean == pytest.approx(expected.mean(axis=1))
    assert norms.largest == pytest.approx(expected.max(axis=1))


def test_the_embedding_output_can_be_left_out():
    hidden = make_hidden(layers=4)

    norms = tally_of(hidden, first_layer=1)

    assert norms.layers == (1, 2, 3)
    assert norms.mean == pytest.approx(tally_of(hidden).mean[1:])


@pytest.mark.parametrize(
    ("rate", "verdict", "exponential"),
    [(1.045, "grow", True), (0.951, "shrink", True), (1.0, "flat", False)],
)
def test_a_planted_trend_is_named(rate, verdict, exponential):
    growth = fit_growth(range(8), [3 * rate**layer for layer in range(8)])

    assert growth.rate == pytest.approx(rate)
    assert growth.at(5) == pytest.approx(3 * rate**5)
    assert growth.rate_interval == pytest.approx((rate, rate))
    assert (growth.verdict, growth.exponential) == (verdict, exponential)
    assert growth.r2 == pytest.approx(float(exponential))


def test_growth_agrees_with_scipy_and_noise_is_flat():
    means = np.random.default_rng(1).uniform(5, 15, size=9)
    expected = linregress(np.arange(1, 10), np.log(means))
    margin = t.ppf(0.975, 7) * expected.stderr

    growth = fit_growth(range(1, 10), means.tolist())

    assert growth.rate == pytest.approx(np.exp(expected.slope))
    assert growth.intercept == pytest.approx(expected.intercept)
    assert growth.r2 == pytest.approx(expected.rvalue**2)
    assert growth.rate_interval == pytest.approx(
        (np.exp(expected.slope - margin), np.exp(expected.slope + margin))
    )
    assert (growth.verdict, growth.exponential) == ("flat", False)


def test_norms_that_grow_by_equal_amounts_grow_and_not_exponentially():
    linear = fit_growth(range(40), [1 + 2.0 * layer for layer in range(40)])

    assert (linear.verdict, linear.exponential) == ("grow", False)
    assert linear.to_json()["verdict"] == "grow"


def test_three_layers_leave_too_much_doubt():
    """R² is .93, and Student's t of one degree of freedom 12.7."""
    growth = fit_growth(range(3), [1.0, 1.3, 1.45])

    assert growth.r2 > 0.85
    assert growth.verdict == "flat"


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=9), st.floats(0.01, 100))
@settings(max_examples=25, deadline=None)
def test_the_unit_of_norms_changes_no_trend(means, unit):
    plain = fit_growth(range(len(means)), means)
    scaled = fit_growth(range(len(means)), [unit * mean for mean in means])

    assert scaled.rate == pytest.approx(plain.rate)
    assert scaled.rate_interval == pytest.approx(plain.rate_interval)


@pytest.mark.parametrize("means", [[1.0, 2.0], [1.0, 0.0, 2.0]])
def test_nothing_is_fitted_to_two_layers_or_to_a_norm_of_zero(means):
    assert fit_growth(range(len(means)), means) is None


def test_norms_that_overflow_in_float32_are_finite():
    vectors = np.full((2, 4), 2e19, dtype=np.float32)

    assert row_norms(vectors) == pytest.approx([4e19, 4e19])


def test_unit_rows_have_length_one_and_zero_stays_zero():
    vectors = make_hidden(layers=1, tokens=5)[0].copy()
    vectors[2] = 0

    lengths = np.linalg.norm(unit_rows(vectors), axis=1)

    assert lengths == pytest.approx([1, 1, 0, 1, 1])


def test_no_tokens_are_refused():
    with pytest.raises(StudyError, match="no tokens"):
        NormTally().result()
