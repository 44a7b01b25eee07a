"""The estimators against scikit-dimension, a literal transcription, and known manifolds."""

import numpy as np
import pytest
from scipy.stats import sem, t

from deltadex.study.geometry.intrinsic_dimension import (
    BLOCKS,
    ESTIMATORS,
    assign_blocks,
    distinct_rows,
    estimate,
    facco,
    intrinsic_dimension,
    low_fifth,
    two_nearest,
)


def make_ball(n, dimension, *, within=30, seed=0):
    """Uniform in a ball of a flat subspace."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, dimension))
    rows *= rng.random((n, 1)) ** (1 / dimension) / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ np.linalg.qr(rng.standard_normal((within, dimension)))[0].T


def by_name(rows, **options):
    return {found.estimator: found for found in intrinsic_dimension(rows, **options)}


def estimates(rows):
    """By estimator, of the distinct rows, whether or not they are enough."""
    nearest = two_nearest(rows[distinct_rows(rows)].astype(np.float64))
    return {name: estimate(nearest, name) for name in ESTIMATORS}


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
    assert list(found) == ["facco", "mle", "low-fifth"]
    assert {each.standard_error for each in found.values()} == {None}


def test_low_fifth_equals_the_published_loop_duplicates_and_all():
    rows = make_ball(300, 6)
    rows = np.vstack([rows, rows[:60]])
    scaled = rows - rows.mean(axis=0)
    scaled /= np.linalg.norm(scaled, axis=1).mean()

    assert low_fifth(two_nearest(scaled)) == pytest.approx(low_fifth_row_by_row(rows), rel=1e-9)


def test_duplicates_are_counted_and_move_nothing():
    rows = make_ball(600, 6).astype(np.float32)
    repeats = rows[np.random.default_rng(1).integers(0, 600, 600)]
    order = np.random.default_rng(2).permutation(600 + len(repeats))

    together = np.vstack([rows, repeats])[order]
    clean, dirty = estimates(rows), estimates(together)

    assert dirty == pytest.approx(clean, rel=1e-4)
    for found in intrinsic_dimension(together):
        assert (found.distinct, found.duplicates) == (600, len(repeats))
    assert low_fifth_row_by_row(np.vstack([rows, repeats])) > 1.1 * clean["low-fifth"]


def test_distinct_rows_equal_numpy_unique_and_rounding_to_float32_makes_duplicates():
    rng = np.random.default_rng(0)
    rows = (3.0 + rng.standard_normal((300, 40))).astype(np.float32)
    again = rows[:80] * (1 + rng.choice([-1, 1], (80, 40)) * np.finfo(np.float32).eps)
    few = rng.integers(0, 3, (400, 4)).astype(np.float64)

    kept = distinct_rows(np.vstack([rows, again.astype(np.float32)]))

    np.testing.assert_array_equal(kept, np.arange(300))
    first = np.sort(np.unique(few, axis=0, return_index=True)[1])
    np.testing.assert_array_equal(distinct_rows(few), first)


@pytest.mark.parametrize("cloud", ["outliers", "tight", "far from the origin"])
def test_nearest_two_are_exact_where_float32_cannot_tell_neighbours_apart(cloud):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 20))
    if cloud == "outliers":
        rows[::9] += 3000.0
    elif cloud == "tight":
        rows = np.repeat(rows[:10], 30, axis=0) + 1e-6 * rng.standard_normal((300, 20))
    else:
        rows += 100.0
        rows[1] = rows[0] + np.eye(20)[0] * 1e-7

    found = two_nearest(rows)

    gaps = np.linalg.norm(rows[:, None] - rows, axis=2) + np.diag(np.full(300, np.inf))
    np.testing.assert_allclose(found, np.sort(gaps, axis=1)[:, :2], rtol=1e-12)


def test_the_error_is_the_spread_between_blocks_that_share_no_row_and_few_texts_have_none():
    rows, blocks = make_ball(900, 4), np.arange(900) // 7 % BLOCKS
    order = np.random.default_rng(0).permutation(900)

    found = by_name(rows[order], blocks=blocks[order])
    few = by_name(rows[:400], blocks=assign_blocks(list("abcd")).repeat(100))["facco"]

    for name, each in found.items():
        alone = [estimate(two_nearest(rows[blocks == block]), name) for block in range(BLOCKS)]
        assert each.blocks == pytest.approx(alone, rel=1e-9)
        assert each.standard_error == pytest.approx(sem(alone))
        reach = t.ppf(0.975, BLOCKS - 1) * sem(alone)
        ends = (each.dimension - reach, each.dimension + reach)
        assert (each.low, each.high) == pytest.approx(ends)
    assert few.dimension is not None
    assert (few.standard_error, few.low, few.high, few.blocks) == (None, None, None, ())


@pytest.mark.parametrize(
    ("rows", "sample", "reason"),
    [
        (np.zeros((0, 4)), None, "0 distinct rows; an estimate needs 100"),
        (make_ball(99, 3), None, "99 distinct rows; an estimate needs 100"),
        (make_ball(150, 3), 200, "too few: 150 distinct rows of 200"),
        (make_ball(105, 17), None, "too few: 105 rows; an estimate of"),
        (np.stack(np.meshgrid(*[np.arange(5.0)] * 3), -1).reshape(-1, 3), None, "equally far"),
    ],
)
def test_what_cannot_be_estimated_is_none_with_a_reason(rows, sample, reason):
    for found in intrinsic_dimension(rows, sample=sample):
        assert (found.dimension, found.standard_error, found.low, found.high) == (None,) * 4
        assert reason in found.reason


def test_no_ratio_is_no_dimension():
    for nearest in (np.ones((3, 2)), np.zeros((0, 2))):
        assert [estimate(nearest, name) for name in ESTIMATORS] == [None] * 3
    assert facco(np.array([[0.0, 1.0], [0.0, 2.0]])) is None
