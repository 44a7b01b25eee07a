"""Divergences and linearity by moments, against their formulas and least squares on the rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.study.geometry import moments
from deltadex.study.geometry.moments import gaussian_divergence


def gaussian_by_formula(mean_a, spread_a, mean_b, spread_b):
    inverse, step = np.linalg.inv(spread_b), mean_b - mean_a
    volumes = np.log(np.linalg.det(spread_b) / np.linalg.det(spread_a))
    return 0.5 * (np.trace(inverse @ spread_a) + step @ inverse @ step - len(step) + volumes)


def make_clouds(n=3000, dim=5, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((dim, dim))
    ours = rng.standard_normal((n, dim)) @ mix
    theirs = 1.4 * rng.standard_normal((n, dim)) @ mix + 0.5
    return ours, theirs


def kl(ours, theirs, **options):
    return gaussian_divergence(moments.Moments.of(ours), moments.Moments.of(theirs), **options)


def test_gauss_over_all_axes_is_the_textbook_formula():
    clouds = make_clouds()

    found = kl(*clouds, shrinkage=0.0)

    ours, theirs = ((rows.mean(axis=0), np.cov(rows.T, bias=True)) for rows in clouds)
    assert found.axes == 5
    assert found.to_reference == pytest.approx(gaussian_by_formula(*ours, *theirs))
    assert found.from_reference == pytest.approx(gaussian_by_formula(*theirs, *ours))
    assert found.jeffreys == pytest.approx(found.to_reference + found.from_reference)
    assert found.tokens == (3000, 3000)


def floor_of(rows):
    return moments.gaussian_floor([moments.Moments.of(rows[::2]), moments.Moments.of(rows[1::2])])


def test_equal_clouds_are_at_zero_and_the_floor_is_what_halves_differ_by():
    ours, _ = make_clouds(4000, 4)

    floor = floor_of(ours)
    found = kl(ours, ours, floor=floor)

    assert found.jeffreys == pytest.approx(0.0, abs=1e-12)
    assert 0.0 < floor < 0.05
    assert found.floor == floor
    for parts in ([ours], [ours, ours[:0]]):
        assert moments.gaussian_floor([moments.Moments.of(part) for part in parts]) is None


def test_too_few_tokens_and_axes_have_no_divergence_and_a_reason():
    ours, theirs = make_clouds(499, 5)
    flat = np.random.default_rng(0).standard_normal((1000, 2)) @ np.ones((2, 5))

    found = kl(ours, theirs)

    assert (found.to_reference, found.jeffreys) == (None, None)
    assert found.reason == "499 and 499 tokens; 5 axes need 500 a side"
    assert floor_of(ours[:400]) is None
    assert kl(flat, flat).reason == "the tokens fill fewer than 5 axes"


def make_step(n=300, dim=6, *, noise=0.3, seed=0, offset=0.0):
    """(input, output) of a layer: a linear map, a curve, noise."""
    rng = np.random.default_rng(seed)
    before = rng.standard_normal((n, dim)) * rng.uniform(0.2, 3.0, dim) + offset
    bent = np.tanh(before @ rng.standard_normal((dim, dim)))
    after = before @ rng.standard_normal((dim, dim)) + bent + noise * rng.standard_normal((n, dim))
    return before, after + 2 * offset


def linearity(*parts):
    """Of (input, output) of a layer, once or by halves."""
    return moments.layer_linearity([moments.LayerStep.of(*part) for part in parts])


def score_by_lstsq(before, after, *, on=None):
    """Razzhigaev et al. 2024, eq. 1; fitted to `on` (input, output) where it is given."""
    fit_x, fit_y = on or (before, after)
    x, y = before - fit_x.mean(axis=0), after - fit_y.mean(axis=0)
    fitted = np.linalg.lstsq(fit_x - fit_x.mean(axis=0), fit_y - fit_y.mean(axis=0), rcond=None)[0]
    variance = np.linalg.norm(after - after.mean(axis=0)) ** 2
    return 1 - np.linalg.norm(y - x @ fitted) ** 2 / variance


@given(seed=st.integers(0, 99), offset=st.sampled_from([0.0, 100.0]))
@settings(max_examples=20, deadline=None)
def test_scores_are_those_of_least_squares(seed, offset):
    before, after = make_step(seed=seed, offset=offset)

    found = linearity((before, after))

    assert found.stream == pytest.approx(score_by_lstsq(before, after), rel=1e-8)
    assert found.contribution == pytest.approx(score_by_lstsq(before, after - before), rel=1e-8)
    assert (found.held_out_stream, found.tokens, found.reason) == (None, 300, "")


def test_held_out_scores_are_fitted_to_one_half_and_scored_on_the_other():
    halves = [make_step(120, seed=1), make_step(90, seed=1, offset=0.1)]

    found = linearity(*halves)

    expected = [score_by_lstsq(*halves[i], on=halves[1 - i]) for i in (0, 1)]
    own = [(before, after - before) for before, after in halves]
    contributions = [score_by_lstsq(*own[i], on=own[1 - i]) for i in (0, 1)]
    assert found.held_out_stream == pytest.approx(np.mean(expected), rel=1e-8)
    assert found.held_out_contribution == pytest.approx(np.mean(contributions), rel=1e-8)
    whole = score_by_lstsq(*(np.vstack(parts) for parts in zip(*halves, strict=True)))
    assert found.stream == pytest.approx(whole, rel=1e-8)
    assert found.optimistic is False


def test_what_has_no_score_says_why():
    rows = np.random.default_rng(0).standard_normal((50, 4))

    few, still = linearity(make_step(7, 6)), linearity((rows, rows))
    equal = linearity((np.ones((50, 4)), rows))

    assert (few.stream, few.contribution) == (None, None)
    assert few.reason.startswith("too few: any 7 tokens in 6 dimensions")
    assert still.stream == pytest.approx(1.0)
    assert still.contribution is None
    assert (equal.stream, equal.reason) == (None, "all tokens are equal")


def test_a_large_coordinate_and_columns_that_repeat_cost_no_digits():
    before, after = make_step(400, 6)
    before[:, 0] *= 1e6
    before = np.hstack([before, before[:, 1:2] - before[:, 2:3], np.zeros((400, 1))])
    after = np.hstack([after, after[:, :2]])

    found = linearity((before, after))

    scaled = before / np.maximum(np.abs(before).max(axis=0), 1.0)
    assert found.stream == pytest.approx(score_by_lstsq(scaled, after), rel=1e-7)


def test_directions_that_one_half_lacks_are_not_mapped_by_rounding():
    """As embeddings of words that only one half of the texts has."""
    rng = np.random.default_rng(0)
    halves = []
    for width in (5, 8):
        before = np.zeros((400, 8))
        before[:, :width] = rng.standard_normal((400, width))
        before = before @ np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8)))[0]
        after = before + 0.1 * rng.standard_normal((400, 8))
        halves.append((before.astype(np.float32), after.astype(np.float32)))

    found = linearity(*halves)

    # fitted to five directions of eight, it knows five eighths of the other half
    assert 0.5 < found.held_out_stream < 1.0


@given(cuts=st.lists(st.integers(0, 80), max_size=4), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_streamed_moments_do_not_depend_on_batches(cuts, seed):
    hidden = np.random.default_rng(seed).standard_normal((3, 80, 4)) + 50.0
    stream = moments.StreamMoments(3, 4)

    for part in np.split(hidden, sorted(cuts), axis=1):
        stream.update(part)

    for layer, cross in enumerate(stream.crossed):
        centred = hidden - hidden.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(cross.scatter, centred[layer].T @ centred[layer + 1], atol=1e-9)
        assert stream.layers[layer].n == 80
