"""Divergences against their formulas, one sum at a time, and their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from deltadex.study.geometry import gaussian_divergence
from deltadex.study.geometry.moments import (
    Moments,
    gaussian_floor,
    softmax_divergence,
    softmax_mean,
    softmax_padded,
)


def softmax(vector):
    powers = np.exp(vector - vector.max())
    return powers / powers.sum()


def gaussian_by_formula(mean_a, spread_a, mean_b, spread_b):
    inverse = np.linalg.inv(spread_b)
    step = mean_b - mean_a
    volumes = np.log(np.linalg.det(spread_b) / np.linalg.det(spread_a))
    return 0.5 * (np.trace(inverse @ spread_a) + step @ inverse @ step - len(step) + volumes)


def make_clouds(n=3000, dim=5, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((dim, dim))
    ours = rng.standard_normal((n, dim)) @ mix
    theirs = 1.4 * rng.standard_normal((n, dim)) @ mix + 0.5
    return ours, theirs


def kl(ours, theirs, **options):
    return gaussian_divergence(Moments.of(ours), Moments.of(theirs), **options)


def test_softmax_mean_equals_scipys_entropy():
    rng = np.random.default_rng(0)
    ours, theirs = rng.standard_normal((2, 7, 20))

    both = softmax_mean(ours, theirs, scale=2.0)

    pairs = [(softmax(a / 2), softmax(b / 2)) for a, b in zip(ours, theirs, strict=True)]
    assert both.forward.tolist() == pytest.approx([entropy(p, q) for p, q in pairs])
    assert both.backward.tolist() == pytest.approx([entropy(q, p) for p, q in pairs])


def test_padded_fills_the_shorter_sentence_with_uniform_tokens():
    rng = np.random.default_rng(0)
    ours = [rng.standard_normal((3, 4)), rng.standard_normal((2, 4))]
    theirs = [rng.standard_normal((1, 4)), rng.standard_normal((2, 4))]

    both = softmax_padded(ours, theirs, scale=0.5)

    uniform = np.full(4, 0.25)
    first = [
        entropy(softmax(2 * ours[0][0]), softmax(2 * theirs[0][0])),
        entropy(softmax(2 * ours[0][1]), uniform),
        entropy(softmax(2 * ours[0][2]), uniform),
    ]
    second = [
        entropy(softmax(2 * a), softmax(2 * b)) for a, b in zip(ours[1], theirs[1], strict=True)
    ]
    assert both.forward.tolist() == pytest.approx([np.mean(first), np.mean(second)])


def test_padded_measures_length_even_of_the_same_text():
    rows = np.random.default_rng(0).standard_normal((9, 12))

    same = softmax_padded([rows], [rows], scale=1.0)
    cut = softmax_padded([rows], [rows[:7]], scale=1.0)

    assert same.forward.tolist() == [0.0]
    assert cut.forward[0] > 0.01


def test_softmax_divergence_is_half_the_variance_of_small_differences():
    """internals.md 3.3: why vectors are divided by their size first."""
    rng = np.random.default_rng(0)
    ours, theirs = 0.05 * rng.standard_normal((2, 4, 300))

    both = softmax_mean(ours, theirs, scale=1.0)

    assert both.forward == pytest.approx(0.5 * np.var(ours - theirs, axis=1), rel=0.02)


@given(factor=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_with_its_scale_softmax_does_not_see_the_size_of_states(factor, seed):
    ours, theirs = np.random.default_rng(seed).standard_normal((2, 3, 8))

    plain = softmax_mean(ours, theirs, scale=1.0)
    large = softmax_mean(factor * ours, factor * theirs, scale=factor)

    assert large.forward == pytest.approx(plain.forward, rel=1e-6)


def test_means_over_sentences_come_with_direction_count_and_scale():
    ours, theirs = np.random.default_rng(0).standard_normal((2, 5, 8))
    both = softmax_mean(ours, theirs, scale=3.0)

    found = softmax_divergence("softmax-mean", both, scale=3.0)

    assert found.to_reference == pytest.approx(both.forward.mean())
    assert found.from_reference == pytest.approx(both.backward.mean())
    assert found.to_reference != found.from_reference
    assert (found.sentences, found.scale, found.reason) == (5, 3.0, "")


def test_no_parallel_sentence_is_no_divergence():
    none = softmax_mean(np.empty((0, 3)), np.empty((0, 3)), scale=1.0)

    found = softmax_divergence("softmax-mean", none, scale=1.0)

    assert (found.to_reference, found.sentences) == (None, 0)
    assert "no text shares its id" in found.reason


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_that_is_not_above_zero_is_refused(scale):
    with pytest.raises(ValueError, match="scale must be above 0"):
        softmax_mean(np.ones((1, 2)), np.ones((1, 2)), scale=scale)


def test_gauss_over_all_axes_is_the_textbook_formula():
    ours, theirs = make_clouds()

    found = kl(ours, theirs, shrinkage=0.0)

    moments = (
        ours.mean(axis=0),
        np.cov(ours.T, bias=True),
        theirs.mean(axis=0),
        np.cov(theirs.T, bias=True),
    )
    assert found.axes == 5
    assert found.to_reference == pytest.approx(gaussian_by_formula(*moments))
    assert found.from_reference == pytest.approx(
        gaussian_by_formula(moments[2], moments[3], moments[0], moments[1])
    )
    assert found.jeffreys == pytest.approx(found.to_reference + found.from_reference)
    assert found.tokens == (3000, 3000)


def test_gauss_in_fewer_axes_looks_along_the_pooled_main_ones():
    rng = np.random.default_rng(0)
    ours = rng.standard_normal((2000, 6)) * [9, 5, 1e-3, 1e-3, 1e-3, 1e-3]
    theirs = ours.copy()
    theirs[:, 5] += 0.004

    narrow, wide = kl(ours, theirs, axes=2), kl(ours, theirs, axes=6, shrinkage=0.0)

    assert narrow.jeffreys == pytest.approx(0.0, abs=1e-3)
    assert wide.jeffreys > 1.0


def test_shrinkage_is_towards_a_sphere_of_the_same_trace():
    ours, theirs = make_clouds(dim=3)
    spreads = [np.cov(rows.T, bias=True) for rows in (ours, theirs)]
    shrunk = [0.9 * s + 0.1 * np.trace(s) / 3 * np.eye(3) for s in spreads]

    found = kl(ours, theirs)

    assert found.to_reference == pytest.approx(
        gaussian_by_formula(ours.mean(axis=0), shrunk[0], theirs.mean(axis=0), shrunk[1])
    )


@given(seed=st.integers(0, 99), factor=st.floats(0.01, 100.0))
@settings(max_examples=15, deadline=None)
def test_rotation_shift_and_scale_of_both_change_nothing_for_gauss(seed, factor):
    rng = np.random.default_rng(seed)
    ours, theirs = make_clouds(500, 8, seed=seed)
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0]

    found = kl(ours, theirs, axes=4)
    moved = kl(factor * (ours @ turn + 1.0), factor * (theirs @ turn + 1.0), axes=4)

    assert moved.to_reference == pytest.approx(found.to_reference, rel=1e-6)
    assert moved.from_reference == pytest.approx(found.from_reference, rel=1e-6)


def test_equal_clouds_are_at_zero_and_the_floor_is_what_halves_differ_by():
    ours, _ = make_clouds(4000, 4)
    halves = [Moments.of(ours[::2]), Moments.of(ours[1::2])]

    floor = gaussian_floor(halves)
    found = gaussian_divergence(Moments.of(ours), Moments.of(ours), floor=floor)

    assert found.jeffreys == pytest.approx(0.0, abs=1e-12)
    assert 0.0 < floor < 0.05
    assert found.floor == floor


def test_the_floor_rises_as_tokens_get_fewer():
    ours, _ = make_clouds(8000, 16)

    floors = [
        gaussian_floor([Moments.of(ours[:n:2]), Moments.of(ours[1:n:2])]) for n in (1600, 8000)
    ]

    assert floors[0] > 2 * floors[1]


def test_too_few_tokens_are_refused_with_the_number_wanted():
    ours, theirs = make_clouds(499, 5)

    found = kl(ours, theirs)

    assert (found.to_reference, found.jeffreys) == (None, None)
    assert found.reason == "499 and 499 tokens; 5 axes need 500 a side"
    assert gaussian_floor([Moments.of(ours[:200]), Moments.of(ours[200:])]) is None


def test_tokens_in_fewer_axes_than_compared_are_refused():
    flat = np.random.default_rng(0).standard_normal((1000, 2)) @ np.ones((2, 5))

    found = kl(flat, flat)

    assert found.reason == "the tokens fill fewer than 5 axes"


def test_one_part_or_an_empty_half_has_no_floor():
    ours, _ = make_clouds(1000, 4)

    assert gaussian_floor([Moments.of(ours)]) is None
    assert gaussian_floor([Moments.of(ours), Moments.of(ours[:0])]) is None
