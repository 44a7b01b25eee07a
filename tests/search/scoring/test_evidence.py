"""From z to a false discovery rate and a verdict."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import laplace

from deltadex.search.scoring.evidence import (
    COPY_COSINE,
    FEWEST_QUERIES,
    LIKELY,
    PERHAPS,
    UNCALIBRATED,
    Calibration,
    calibrate,
    tail,
    verdict,
)

falling_z = st.lists(st.floats(-50, 50), min_size=1, max_size=40).map(
    lambda z: np.array(sorted(z, reverse=True))
)


def known(rate):
    return Calibration(rate, "the null alone", 0, 0)


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=20), st.floats(0.2, 5))
def test_the_tail_is_laplaces(z, rate):
    assert tail(np.array(z), rate) == pytest.approx(laplace.sf(z, scale=rate), abs=1e-12)


def test_the_tail_of_infinities_is_none_or_all():
    assert tail(np.array([np.inf, -np.inf]), 1.0).tolist() == [0.0, 1.0]


@given(falling_z, st.integers(0, 30), st.floats(0.2, 5))
def test_rates_are_those_of_benjamini_and_hochberg(z, more, rate):
    n = len(z) + more

    found = known(rate).fdr(z, n)

    p = laplace.sf(z, scale=rate)
    for place, own in enumerate(z):
        below = [n * p[k] / (k + 1) for k in range(len(z)) if z[k] <= own and k >= place]
        assert found[place] == pytest.approx(min(1.0, min(below)), abs=1e-12)


@given(falling_z, st.integers(0, 30), st.floats(0.2, 5))
def test_rates_rise_along_the_list_and_are_at_most_one(z, more, rate):
    found = known(rate).fdr(z, len(z) + more)

    assert (np.diff(found) >= 0).all()
    assert ((found >= 0) & (found <= 1)).all()


@given(falling_z, st.floats(0.01, 20), st.integers(1, 30))
def test_a_larger_z_never_has_a_larger_rate_nor_more_candidates_a_smaller(z, step, more):
    calibration = known(1.0)

    assert (calibration.fdr(z + step, len(z)) <= calibration.fdr(z, len(z)) + 1e-12).all()
    assert (calibration.fdr(z, len(z) + more) >= calibration.fdr(z, len(z)) - 1e-12).all()


def test_no_neighbours_have_no_rates():
    assert known(1.0).fdr(np.zeros(0), 0).shape == (0,)


@pytest.mark.parametrize(
    ("cosine", "fdr", "words"),
    [
        (COPY_COSINE, 1.0, "copy"),
        (0.3, LIKELY, "likely the same data"),
        (0.3, PERHAPS, "perhaps"),
        (0.94, 0.051, "no model stands out"),
        (-1.0, 1.0, "no model stands out"),
    ],
)
def test_verdicts(cosine, fdr, words):
    assert verdict(cosine, fdr) == words


# the rate of a family


def make_family(n, n_datasets, seed=0, height=0.0):
    """z of unrelated models, those of a dataset `height` above; and their labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n))
    labels = [f"d{i % n_datasets}" for i in range(n)]
    z = (z + z.T) / math.sqrt(2)
    for i in range(n):
        for j in range(n):
            z[i, j] += height * (labels[i] == labels[j])
    return z, labels


def ask(z, labels, n_family=None):
    return calibrate(z, labels, ~np.eye(len(z), dtype=bool), n_family or len(z))


@pytest.mark.parametrize(
    ("n", "n_datasets", "source"),
    [
        (40, 8, "labelled pairs"),
        (40, 5, "labelled pairs"),
        (40, 4, "the null alone"),
        (40, 40, "the null alone"),
        (FEWEST_QUERIES - 1, 5, "the null alone"),
        (FEWEST_QUERIES, 5, "labelled pairs"),
        (2, 1, "the null alone"),
    ],
)
def test_labelled_pairs_calibrate_where_there_are_enough(n, n_datasets, source):
    calibration = ask(*make_family(n, n_datasets))

    assert calibration.source == source
    assert calibration.queries == (n if n_datasets > 1 else 0)


def test_labels_that_are_hidden_do_not_count():
    z, labels = make_family(40, 8)

    assert ask(z, [None] * 40).source == "the null alone"
    assert ask(z, labels[:10] + [None] * 30).queries == 10


@pytest.mark.parametrize("n", [1, 2, 5, 20, 1000])
def test_the_rate_of_the_null_alone_is_wider_in_small_families(n):
    calibration = ask(np.zeros((1, 1)), [None], n)

    assert calibration.rate == pytest.approx(UNCALIBRATED * (1 + 2 / n))


def test_siblings_do_not_change_the_rate():
    (z, labels), (near, _) = make_family(60, 6), make_family(60, 6, height=9.0)

    assert ask(near, labels) == ask(z, labels)


def test_the_rate_lets_one_query_in_twenty_stand_out():
    heavy, labels = make_family(200, 20, seed=1)
    heavy = 3 * heavy

    calibration = ask(heavy, labels)

    nearest = [
        heavy[i, [j for j in range(200) if labels[j] != labels[i]]].max() for i in range(200)
    ]
    rates = [calibration.fdr(np.array([z]), 190)[0] for z in nearest]
    assert 0.02 <= np.mean([rate <= 0.05 for rate in rates]) <= 0.06


@given(seed=st.integers(0, 1000), order=st.permutations(range(24)))
def test_the_order_of_the_models_does_not_change_the_rate(seed, order):
    z, labels = make_family(24, 6, seed)
    order = np.array(order)

    moved = ask(z[np.ix_(order, order)], [labels[i] for i in order])

    assert moved.rate == pytest.approx(ask(z, labels).rate)
