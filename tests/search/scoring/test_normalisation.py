"""The formulas of s-norm against plain loops, and what no score may depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.search import family_scores

BLOCKS = ("update", "output", "input")


def make_cosines(seed, n=9, blocks=3):
    """Symmetric cosines of a family of unit vectors, block by block."""
    vectors = np.random.default_rng(seed).normal(size=(blocks, n, 6))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return vectors @ vectors.transpose(0, 2, 1)


def family_traits(cosines, kinds, n_kinds=2):
    """Of a family that is its own cohort."""
    counts = ~np.eye(cosines.shape[1], dtype=bool)
    return family_scores.measure_traits(
        cosines, kinds, every_block(cosines), kinds, counts.astype(float), counts, n_kinds
    )


def every_block(cosines):
    """Of models that have all blocks."""
    return np.ones((cosines.shape[1], len(cosines)))


def halves(n, of_first):
    return np.array([0] * of_first + [1] * (n - of_first))


def test_z_is_the_mean_of_both_models_z_block_by_block_by_hand():
    cosines, kinds = make_cosines(0, n=12), halves(12, 6)
    weights = family_scores.weights_by_kinds(BLOCKS, ("adapter", "full"))

    scores = family_scores.normalised(cosines, *[family_traits(cosines, kinds)] * 2, weights)

    for i in range(12):
        for j in range(12):
            expected = 0.0
            for block in range(3):
                z = []
                for one, other in ((i, j), (j, i)):
                    strangers = [
                        cosines[block, one, k]
                        for k in range(12)
                        if k != one and kinds[k] == kinds[other]
                    ]
                    z.append((cosines[block, i, j] - np.median(strangers)) / np.std(strangers))
                expected += weights[kinds[i], kinds[j], block] * sum(z) / 2
            assert scores[i, j] == pytest.approx(expected)


def test_a_kind_of_few_models_takes_the_centre_of_all():
    cosines, kinds = make_cosines(0), halves(9, 2)

    traits = family_traits(cosines, kinds)

    others = [cosines[0, 5, k] for k in range(9) if k != 5]
    assert traits.centres[5, 0, 0] == pytest.approx(np.median(others))
    assert traits.spreads[5, 0, 0] == pytest.approx(np.std(others))


@given(seed=st.integers(0, 10_000))
def test_models_that_are_no_strangers_change_no_trait(seed):
    cosines, kinds = make_cosines(seed), halves(9, 9)
    counts = ~np.eye(9, dtype=bool)
    weights = counts.astype(float)
    weights[:, 3] = weights[3, :] = 0.0
    other = cosines.copy()
    other[:, :, 3] = other[:, 3, :] = 0.99

    first, second = (
        family_scores.measure_traits(c, kinds, every_block(c), kinds, weights, counts, 1)
        for c in (cosines, other)
    )

    rows = np.arange(9) != 3
    assert second.centres[rows] == pytest.approx(first.centres[rows])
    assert second.spreads[rows] == pytest.approx(first.spreads[rows])


@given(seed=st.integers(0, 10_000))
def test_profile_correlations_are_those_of_the_scores_with_all_others(seed):
    rng = np.random.default_rng(seed)
    scores, counts = rng.normal(size=(7, 7)), ~np.eye(7, dtype=bool)
    kinds, weights = np.zeros(7, np.int64), counts.astype(np.float64)
    traits = family_scores.measure_traits(
        np.zeros((1, 7, 7)), kinds, np.ones((7, 1)), kinds, weights, counts, 1
    ).with_profile(scores)

    found = family_scores.profile_correlations(traits, traits)

    for i in range(7):
        for j in range(7):
            both = [k for k in range(7) if k not in (i, j)]
            left = np.array([scores[i, k] - np.delete(scores[i], i).mean() for k in both])
            right = np.array([scores[j, k] - np.delete(scores[j], j).mean() for k in both])
            expected = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
            assert found[i, j] == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(20, 200))
def test_a_right_tail_does_not_widen_the_spread_of_strangers(seed, n):
    values = np.random.default_rng(seed).normal(size=n)
    with_tail = values + 50.0 * (values > np.quantile(values, 0.8))

    assert family_scores.lower_spread(with_tail) == pytest.approx(
        family_scores.lower_spread(values)
    )
    assert family_scores.deviation(values) == (float(np.median(values)), float(np.std(values)))
    few = values[:19]
    equal = 1e3 + 1e-13 * values  # but for rounding
    for each in (equal, equal[:19]):
        assert family_scores.lower_spread(each)[1] == family_scores.deviation(each)[1] == 1.0
    assert family_scores.lower_spread(few) == family_scores.deviation(few)
