import numpy as np
import pytest

from deltadex.search.layout import (
    LANDMARK_PERPLEXITY,
    _affinities,
    choose_landmarks,
    place_among,
)


def make_points(n=300, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)


def test_landmarks_are_distinct_and_as_many_as_asked():
    chosen = choose_landmarks(make_points(), np.random.default_rng(1).permutation(300), 40)

    assert len(np.unique(chosen)) == 40
    assert (np.diff(chosen) > 0).all()


def test_a_small_group_far_from_the_sample_gets_a_landmark():
    points = make_points()
    points[290:] += 100
    hashed = np.arange(300)  # the sample is the first, and misses the group

    chosen = choose_landmarks(points, hashed, 40)

    assert (chosen >= 290).any()


def test_a_copy_of_a_landmark_stands_on_it():
    rng = np.random.default_rng(2)
    points = (make_points(60) * 100).astype(np.float32)
    points[50:] = points[:10]
    landmarks = np.arange(50)
    places = rng.normal(size=(50, 2))

    made = place_among(points, landmarks, places)

    assert np.array_equal(made[landmarks], places)
    weights = _affinities(np.array([[0.0, *[1e4] * 14]]))
    assert weights[0, 0] == weights.max()


def test_a_model_stands_among_its_nearest():
    rng = np.random.default_rng(3)
    groups = np.arange(200) % 2
    points = (rng.normal(size=(200, 5)) + 20 * groups[:, None]).astype(np.float32)
    landmarks = np.arange(100)
    places = rng.normal(size=(100, 2)) + 50 * groups[:100, None]

    made = place_among(points, landmarks, places)

    assert ((made[100:, 0] > 25) == (groups[100:] == 1)).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_affinities_have_the_perplexity_that_is_asked(scale):
    squares = np.random.default_rng(4).random((20, 15)) * scale

    weights = _affinities(squares)

    assert weights.sum(axis=1) == pytest.approx(1)
    entropy = -(weights * np.log(weights)).sum(axis=1)
    assert np.exp(entropy) == pytest.approx(LANDMARK_PERPLEXITY, rel=1e-6)


def test_landmarks_at_one_distance_count_alike():
    assert _affinities(np.ones((1, 15))) == pytest.approx(1 / 15)
