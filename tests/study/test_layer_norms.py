"""Norms and growth against NumPy on everything at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_layers import batches, make_hidden
from scipy.stats import linregress

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


def test_planted_growth_is_found():
    growth = fit_growth(range(8), [3 * 1.045**layer for layer in range(8)])

    assert growth.rate == pytest.approx(1.045)
    assert growth.at(5) == pytest.approx(3 * 1.045**5)
    assert growth.r2 == pytest.approx(1)
    assert growth.exponential


def test_growth_agrees_with_scipy_and_noise_is_not_called_exponential():
    means = np.random.default_rng(1).uniform(5, 15, size=9)
    expected = linregress(np.arange(1, 10), np.log(means))

    growth = fit_growth(range(1, 10), means.tolist())

    assert growth.rate == pytest.approx(np.exp(expected.slope))
    assert growth.intercept == pytest.approx(expected.intercept)
    assert growth.r2 == pytest.approx(expected.rvalue**2)
    assert not growth.exponential


def test_equal_norms_have_rate_one_and_explain_nothing():
    growth = fit_growth(range(5), [7.0] * 5)

    assert growth.rate == pytest.approx(1)
    assert (growth.r2, growth.exponential) == (0.0, False)


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
