"""Whitened cosines against conditional covariances, by solving for each pair on its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sketched import make_vectors

from deltadex.search.whitening import RIDGE, Whitening


def whiten(vectors, cohort, strangers=1.0):
    """All pairs of some models, of which the first `cohort` are the cohort."""
    cosines = (vectors @ vectors.T)[None]
    places = np.where(np.arange(len(vectors)) < cohort, np.arange(len(vectors)), -1)
    known, shares = cosines[:, :, :cohort], np.full((len(vectors), cohort), strangers)
    shares[places >= 0, places[places >= 0]] = 0.0
    whitening = Whitening(known[:, :cohort])
    seen = whitening.see(known, known[0], shares, places)
    return whitening(cosines, seen, seen)[0]


def conditional(vectors, first, second, others):
    """The correlation of two models given some others, each known with a variance of `RIDGE`."""
    pair, rest = vectors[[first, second]], vectors[others]
    known = np.linalg.solve(rest @ rest.T + RIDGE * np.eye(len(rest)), rest @ pair.T)
    covariance = pair @ pair.T - (rest @ pair.T).T @ known
    return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), cohort=st.integers(2, 14))
def test_a_pair_is_correlated_given_the_rest_of_the_cohort(seed, cohort):
    vectors = make_vectors(seed, 14, datasets=4)

    found = whiten(vectors, cohort)

    for first, second in [(0, 1), (0, 4), (1, 13), (12, 13), (4, 12)]:
        others = [row for row in range(cohort) if row not in (first, second)]
        expected = conditional(vectors, first, second, others)
        assert found[first, second] == pytest.approx(expected, abs=1e-9)


def test_a_copy_that_is_no_member_has_the_cosines_of_its_original():
    vectors = make_vectors(0, 13, datasets=4)
    vectors[12] = vectors[3]

    found = whiten(vectors, 12, strangers=0.0)

    others = [row for row in range(12) if row != 3]
    assert found[12, others] == pytest.approx(found[3, others], abs=1e-9)
    assert found[12, 3] == pytest.approx(1.0)
