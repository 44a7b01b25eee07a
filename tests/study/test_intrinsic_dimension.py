"""The estimators against scikit-dimension, a literal transcription, and known manifolds."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from deltadex.study.geometry import intrinsic_dimension
from deltadex.study.geometry.intrinsic_dimension import (
    ESTIMATORS,
    distinct_rows,
    estimate,
    facco,
    low_fifth,
    two_nearest,
)


def make_ball(n, dimension, *, within=30, seed=0):
    """Uniform in a ball of a flat subspace."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, dimension))
    rows *= rng.random((n, 1)) ** (1 / dimension) / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ np.linalg.qr(rng.standard_normal((within, dimension)))[0].T


def nearest_in(rows):
    return two_nearest(rows, [np.arange(len(rows))])[0]


def by_name(rows, **options):
    return {found.estimator: found for found in intrinsic_dimension(rows, **options)}


def low_fifth_row_by_row(rows):
    """internals: centre, scale, one row at a time, as LLM-Microscope's notebook does."""
    rows = rows - rows.mean(axis=0)
    rows = rows / np.linalg.norm(rows, axis=1).mean()
    ratios = []
    for i in range(len(rows)):
        gaps = np.sort(np.linalg.norm(np.delete(rows, i, axis=0) - rows[i], axis=1))
        ratios.append(gaps[1] / gaps[0] if gaps[0] >= 1e-8 else -1.0)
    kept = sorted(ratio for ratio in ratios if ratio > 1 + 1e-8)
    n, m = len(kept), len(ratios) - len(kept)
    above = below = 0.0
    for i, ratio in enumerate(kept[: n // 5], start=1):
        above += np.log(ratio) * -np.log(1 - (m + i) / (n + m))
        below += np.log(ratio) ** 2
    return above / below


def test_facco_and_maximum_likelihood_equal_scikit_dimension():
    skdim = pytest.importorskip("skdim")
    rows = make_ball(700, 8)

    found = by_name(rows)

    facco_form = skdim.id.TwoNN().fit(rows).dimension_
    with np.errstate(divide="ignore"):  # it draws the line that it does not use
        closed_form = skdim.id.TwoNN(discard_fraction=0.0, method="mle").fit(rows).dimension_
    assert found["facco"].dimension == pytest.approx(facco_form, rel=1e-9)
    assert found["mle"].dimension == pytest.approx(closed_form, rel=1e-9)
    assert found["mle"].standard_error == pytest.approx(closed_form / 700**0.5)
    assert found["facco"].standard_error is None


@pytest.mark.parametrize("n_duplicates", [0, 12, 60])
def test_low_fifth_equals_the_published_loop_duplicates_and_all(n_duplicates):
    rows = make_ball(300, 6)
    rows = np.vstack([rows, rows[:n_duplicates]])
    scaled = rows - rows.mean(axis=0)
    scaled /= np.linalg.norm(scaled, axis=1).mean()

    assert low_fifth(nearest_in(scaled)) == pytest.approx(low_fifth_row_by_row(rows), rel=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("dimension", "low", "high"), [(2, 1.7, 2.3), (5, 4.2, 5.5), (10, 8, 11)])
def test_flat_balls_have_their_dimension(estimator, dimension, low, high):
    """Bounds: the bias that internals.md 3.1 measured at N = 2000, and its spread."""
    found = by_name(make_ball(2000, dimension), estimators=[estimator])[estimator]

    assert low < found.dimension < high


def test_high_dimensions_are_underestimated_by_all():
    """Why anything above 20 is a lower bound."""
    found = by_name(make_ball(1500, 50, within=60))

    assert all(15 < each.dimension < 40 for each in found.values())


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_duplicates_are_counted_and_move_nothing(share):
    rows = make_ball(600, 6).astype(np.float32)
    repeats = rows[np.random.default_rng(1).integers(0, 600, int(600 * share))]
    order = np.random.default_rng(2).permutation(600 + len(repeats))

    clean, dirty = by_name(rows), by_name(np.vstack([rows, repeats])[order])

    for name in ESTIMATORS:
        assert dirty[name].dimension == pytest.approx(clean[name].dimension, rel=1e-4)
        assert (dirty[name].distinct, dirty[name].duplicates) == (600, len(repeats))
    assert low_fifth_row_by_row(np.vstack([rows, repeats])) > 1.1 * clean["low-fifth"].dimension


def test_rows_that_differ_by_float32_rounding_are_duplicates():
    rng = np.random.default_rng(0)
    rows = (3.0 + rng.standard_normal((300, 40))).astype(np.float32)
    again = rows[:80] * (1 + rng.choice([-1, 1], (80, 40)) * np.finfo(np.float32).eps)

    kept = distinct_rows(np.vstack([rows, again.astype(np.float32)]))

    np.testing.assert_array_equal(kept, np.arange(300))


def test_distinct_rows_equal_numpy_unique():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (400, 4)).astype(np.float64)

    kept = distinct_rows(rows)

    np.testing.assert_array_equal(kept, np.sort(np.unique(rows, axis=0, return_index=True)[1]))


@given(seed=st.integers(0, 99), scale=st.floats(1e-3, 1e3))
@settings(max_examples=10, deadline=None)
def test_rotation_scale_shift_and_order_change_nothing(seed, scale):
    rng = np.random.default_rng(seed)
    rows = make_ball(150, 4, within=8, seed=seed)
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0]

    moved = by_name(scale * (rows @ turn + 1.0)[rng.permutation(150)])

    for name, found in by_name(rows).items():
        assert moved[name].dimension == pytest.approx(found.dimension, rel=1e-6)


def test_nearest_two_equal_sklearn_in_blocks_of_any_size(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((120, 5))
    subsets = [np.arange(120), np.arange(0, 120, 3), np.array([1, 7, 119])]
    monkeypatch.setattr(sys.modules[two_nearest.__module__], "BLOCK_BYTES", 8 * 120 * 7)

    for subset, found in zip(subsets, two_nearest(rows, subsets), strict=True):
        oracle = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(rows[subset])
        np.testing.assert_allclose(found, oracle.kneighbors()[0], rtol=1e-6)


def test_tiny_distances_far_from_the_origin_keep_their_digits():
    rows = 100.0 + np.random.default_rng(0).standard_normal((50, 3))
    rows[1] = rows[0] + [1e-7, 0, 0]

    found = nearest_in(rows)

    assert found[0, 0] == pytest.approx(np.linalg.norm(rows[1] - rows[0]), rel=1e-12)


def test_draws_are_seeded_of_one_size_and_have_a_spread():
    rows = make_ball(500, 5)

    found, again = (by_name(rows, sample=300, draws=6, seed=3) for _ in range(2))
    other = by_name(rows, sample=300, draws=6, seed=4)

    assert found == again
    for name in ESTIMATORS:
        assert (found[name].rows, found[name].draws, found[name].distinct) == (300, 6, 500)
        assert found[name].sd > 0
        assert abs(found[name].dimension - found[name].whole) < 4 * found[name].sd
        assert other[name].dimension != found[name].dimension
        assert other[name].whole == found[name].whole


def test_a_draw_of_all_rows_has_no_spread():
    found = by_name(make_ball(200, 3), sample=200)["facco"]

    assert (found.draws, found.sd) == (1, None)
    assert found.dimension == found.whole


@pytest.mark.parametrize(
    ("rows", "sample", "reason"),
    [
        (np.zeros((0, 4)), None, "0 distinct rows; an estimate needs 100"),
        (np.ones((500, 4)), None, "1 distinct rows; an estimate needs 100"),
        (make_ball(99, 3), None, "99 distinct rows; an estimate needs 100"),
        (make_ball(150, 3), 200, "150 distinct rows, but each draw needs 200"),
        (np.stack(np.meshgrid(*[np.arange(5.0)] * 3), -1).reshape(-1, 3), None, "equally far"),
    ],
)
def test_what_cannot_be_estimated_is_none_with_a_reason(rows, sample, reason):
    for found in intrinsic_dimension(rows, sample=sample):
        assert (found.dimension, found.sd, found.whole, found.standard_error) == (None,) * 4
        assert reason in found.reason


def test_no_ratio_is_no_dimension():
    assert [estimate(np.ones((3, 2)), name) for name in ESTIMATORS] == [None] * 3
    assert [estimate(np.zeros((0, 2)), name) for name in ESTIMATORS] == [None] * 3
    assert facco(np.array([[0.0, 1.0], [0.0, 2.0]])) is None


def test_wrong_calls_are_refused():
    rows = make_ball(150, 3)
    with pytest.raises(ValueError, match="draws must be 5 or more, got 4"):
        intrinsic_dimension(rows, draws=4)
    with pytest.raises(ValueError, match="sample must be 100 rows or more, got 50"):
        intrinsic_dimension(rows, sample=50)
    with pytest.raises(ValueError, match="three rows or more"):
        two_nearest(rows, [np.array([0, 1])])
